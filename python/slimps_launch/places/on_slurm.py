# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on slurm: inside of an allocation, srun places the processes.

Each process is a `slimps run`, which takes its role from its rank. The scheduler runs beside the
launcher: in a batch script that is the first node.
"""

import os
import re
import shutil
import subprocess

from slimps_launch import carried
from slimps_launch import errors
from slimps_launch.places import on_mpi


def processes_of(environment):
    """Returns (how many processes the allocation has room for, "4 tasks" or the like)."""
    if environment.get("SLURM_NTASKS"):
        tasks = int(environment["SLURM_NTASKS"])
        return tasks, "--ntasks=%d" % tasks
    each = int(environment.get("SLURM_CPUS_PER_TASK", "1"))
    cpus, room = 0, 0
    for part in environment.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        found = re.match(r"(\d+)(?:\(x(\d+)\))?$", part)
        if found:
            on_node, nodes = int(found.group(1)), int(found.group(2) or 1)
            cpus += on_node * nodes
            room += on_node // each * nodes
    return room, "%d CPUs" % cpus


def node_addresses(node_list):
    """Returns the addresses of an allocation's nodes, as Slurm knows them."""
    said = subprocess.run(
        ["scontrol", "--oneliner", "show", "node", node_list],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout
    found = re.findall(r"\bNodeAddr=(\S+)", said)
    if not found:
        raise errors.LaunchError("scontrol does not know %s: %s" % (node_list, said.strip()))
    return found


class Place(on_mpi.Engine):
    carrier = carried.ToldCarrier  # a signal to srun itself would reach the servers, too

    def __init__(self, job, options, detail, again):
        if not os.environ.get("SLURM_JOB_ID"):
            raise errors.LaunchError(
                "--on slurm: this is no allocation: start it in a script by sbatch, or by "
                "salloc --ntasks=%d" % (job.workers + job.servers)
            )
        if shutil.which("srun") is None:
            raise errors.LaunchError("--on slurm: srun is not in PATH")
        self.again = again
        self.apart = options.servers_apart
        self.nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
        self._check_size(job)
        addresses = node_addresses(os.environ["SLURM_JOB_NODELIST"])
        self.address = on_mpi.address_towards(addresses, options.interface)

    def _check_size(self, job):
        room, words = processes_of(os.environ)
        if room < job.workers + job.servers:
            raise errors.LaunchError(
                "the allocation %s (%s) has room for %d processes; %d workers and %d servers need "
                "--ntasks=%d"
                % (
                    os.environ["SLURM_JOB_ID"],
                    words,
                    room,
                    job.workers,
                    job.servers,
                    job.workers + job.servers,
                )
            )
        if self.apart and self.nodes < 2:
            raise errors.LaunchError(
                "--servers-apart: the allocation %s has one node: ask for two or more"
                % os.environ["SLURM_JOB_ID"]
            )

    def start(self, launcher, port):
        job = launcher.job
        part = self.part_command(job, self.again)
        each = os.environ.get("SLURM_CPUS_PER_TASK")  # which not every srun takes from there
        command = ["srun", "--kill-on-bad-exit=1", "--overlap"]
        if self.apart:
            # Two components of a heterogeneous step: ranks go on from one to the next.
            share = self.nodes * job.servers // (job.servers + job.workers)
            server_nodes = min(max(1, share), job.servers, self.nodes - 1)
            worker_nodes = min(self.nodes - server_nodes, job.workers)
            components = [(server_nodes, job.servers), (worker_nodes, job.workers)]
        else:
            count = job.workers + job.servers
            components = [(min(self.nodes, count), count)]
        for number, (nodes, tasks) in enumerate(components):
            command += [":"] if number else []
            command += ["--nodes=%d" % nodes, "--ntasks=%d" % tasks, "--distribution=cyclic"]
            command += ["--cpus-per-task=" + each] if each else []
            command += part
        self.carry(launcher, port, "srun", command, {}, stdin=subprocess.PIPE)
