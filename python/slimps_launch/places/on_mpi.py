# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on mpi[:HOSTFILE]: mpirun of OpenMPI, or mpiexec of MPICH, places the processes.

Each process is a `slimps run`, which takes its role from its rank. The scheduler runs beside the
launcher. SLIMPS_MPIRUN is the command, if it is not the first mpirun or mpiexec in PATH.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess

from slimps_launch import carried
from slimps_launch import errors
from slimps_launch.places import hosts
from slimps_launch import network
from slimps_launch.places import on_ssh
from slimps_launch import run_command
from slimps_launch.placement import meeting

TO_JOIN = 60.0  # seconds from the end of the meeting until all nodes are at the scheduler


class Engine:
    """A place in which one command of an engine starts all servers and workers."""

    address = None
    carrier = carried.Carrier

    def find_scheduler(self, launcher):
        # It starts before the meeting, which says better who is missing.
        launcher.job.roster_timeout = launcher.job.join_timeout + TO_JOIN
        return launcher.announce_scheduler()

    def carry(self, launcher, port, name, command, environment, **how):
        """Starts the engine's command, which starts a `slimps run` for each node of the job."""
        job = launcher.job
        nodes = [carried.CarriedNode("server%d" % rank, "server") for rank in range(job.servers)]
        nodes += [carried.CarriedNode("worker%d" % rank, "worker") for rank in range(job.workers)]
        variables = job.variables("worker", self.address, port)
        del variables["DMLC_ROLE"]
        token = secrets.token_hex(8)
        host = meeting.Host(self.address, 0, token, len(nodes), launcher.say)
        told = {"host": socket.gethostname(), "path": os.environ.get("PATH", os.defpath)}
        told.update(job=token, port=host.port)
        launcher.start_node(
            self.carrier(name, command, nodes),
            {**environment, **variables, run_command.CARRIED: json.dumps(told)},
            **how,
        )

    @staticmethod
    def part_command(job, again):
        """Returns the command line of one process."""
        flags = ["--workers", str(job.workers), "--servers", str(job.servers)]
        if "--insecure" in job.scheduler:
            flags.append("--insecure")
        if job.keys:
            flags += ["--keys", job.keys.path]
        return again + ["run"] + flags + ["--"] + job.worker


def address_towards(names, interface):
    """Returns this machine's address on the way to hosts, with 127.0.0.1 if it is all of them."""
    if interface:
        return network.interface_address(interface)
    for name in names:
        address = network.route_address(name)
        if not network.is_loopback(address) and network.resolve(name) != address:
            return address
    return "127.0.0.1"


class Place(Engine):
    def __init__(self, job, options, path, again):
        self.command = find_command()
        self.is_openmpi = speaks_openmpi(self.command)
        self.path = path
        self.hosts = hosts.read(path) if path else []
        self.places = []
        if path:
            self.places = hosts.around(
                [host.slots for host in self.hosts], job.servers, job.workers, "hostfile " + path
            )
        self.address = address_towards([host.name for host in self.hosts], options.interface)
        self.again = again

    def start(self, launcher, port):
        job = launcher.job
        count = str(job.workers + job.servers)
        if self.is_openmpi:
            # A server has several threads: it is not bound to one core.
            command = self.command + ["-np", count, "--map-by", "node", "--bind-to", "none"]
            if self.path:
                command += ["--hostfile", self.path]
            names = [*on_ssh.passed(os.environ), *job.variables("worker", "", 0)]
            for name in dict.fromkeys([*names, run_command.CARRIED]):
                if name != "DMLC_ROLE":
                    command += ["-x", name]
        else:
            command = self.command + ["-n", count]
            if self.path:
                # The hosts reach mpiexec at the address at which they reach the scheduler.
                command += ["-localhost", self.address]
                command += ["-hosts", ",".join(self.hosts[place].name for place in self.places)]
        self.carry(
            launcher, port, "mpirun", command + self.part_command(job, self.again), dict(os.environ)
        )


def find_command():
    given = on_ssh.command_of("SLIMPS_MPIRUN")
    if given:
        return given
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        raise errors.LaunchError(
            "--on mpi: neither mpirun nor mpiexec is in PATH: install OpenMPI or MPICH, or name "
            "the command in SLIMPS_MPIRUN"
        )
    return [path]


def speaks_openmpi(command):
    """True for OpenMPI's mpirun, False for Hydra's mpiexec (MPICH, Intel MPI).

    LaunchError: it is neither, or cannot be run.
    """
    try:
        said = subprocess.run(
            command + ["--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout
    except OSError as error:
        raise errors.LaunchError(
            "--on mpi: cannot run %s: %s" % (command[0], error.strerror)
        ) from error
    if "OpenRTE" in said or "Open MPI" in said:
        return True
    if "HYDRA" in said or "Intel(R) MPI" in said:
        return False
    raise errors.LaunchError(
        "--on mpi: %s is neither OpenMPI's nor MPICH's: %s"
        % (command[0], said.partition("\n")[0] or "it says nothing to --version")
    )
