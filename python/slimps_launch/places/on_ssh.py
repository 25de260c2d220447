# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on ssh:HOSTFILE: one ssh per host carries the host's processes.

The scheduler runs beside the launcher. On each host an agent (agent.py) starts the processes, which
end when the connection does. Variables travel through ssh's stdin: no command line shows them.
SLIMPS_SSH is the ssh command, with options of its own.
"""

import dataclasses
import json
import os
import shlex
import subprocess

from slimps_launch import carried
from slimps_launch import errors
from slimps_launch import job_trace
from slimps_launch.places import hosts
from slimps_launch import network
from slimps_launch.placement import process_group

SECONDS_TO_CONNECT = 10
OPTIONS = [
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=%d" % SECONDS_TO_CONNECT,
    # A host that says nothing for 15 s is lost.
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
]
# Variables of the launcher that the processes elsewhere get, too.
PASSED = (
    "PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
)
PASSED_PREFIXES = ("DMLC_", "SLIMPS_")


def command_of(variable):
    """Returns the words of the command in a variable: none if it is not set, or blank.

    LaunchError: its quotes do not match.
    """
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise errors.LaunchError("%s=%s: %s" % (variable, os.environ[variable], error)) from None


def passed(environment):
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED or name.startswith(PASSED_PREFIXES)
    }


class Place:
    """The hosts of a hostfile. `again` is the command line of this command, there as here."""

    def __init__(self, job, options, path, again):
        if not path:
            raise errors.LaunchError("--on ssh: expected --on ssh:HOSTFILE")
        self.path = path
        self.hosts = hosts.read(path)
        self.interface = options.interface
        self.address = None
        places = hosts.around(
            [host.slots for host in self.hosts], job.servers, job.workers, "hostfile " + path
        )
        self.nodes = [("server", rank) for rank in range(job.servers)]
        self.nodes += [("worker", rank) for rank in range(job.workers)]
        self.carriers = []
        self.command = (command_of("SLIMPS_SSH") or ["ssh"]) + OPTIONS
        self.again = again
        self.places = places

    def carriers_of_hosts(self):
        carriers = []
        for number, host in enumerate(self.hosts):
            nodes = [
                carried.CarriedNode("%s%d" % node, node[0], host.name)
                for node, place in zip(self.nodes, self.places)
                if place == number
            ]
            if nodes:
                remote = "exec " + shlex.join(self.again + ["agent"])
                carrier = carried.SshCarrier(
                    "ssh %s" % host.name, self.command + [host.name, remote], nodes
                )
                carrier.host = host
                carriers.append(carrier)
        return carriers

    def find_scheduler(self, launcher):
        self.carriers = self.carriers_of_hosts()
        for carrier in self.carriers:
            launcher.start_node(carrier, {}, stdin=subprocess.PIPE)
        launcher.wait_until(
            lambda: all(
                carrier.about is not None or carrier.status is not None for carrier in self.carriers
            ),
            launcher.job.join_timeout,
            1.0,
        )
        complaints = [
            "%s:%d: host %s does not answer%s; it must let this in: %s %s true"
            % (
                self.path,
                carrier.host.line,
                carrier.host.name,
                ": " + carrier.last_lines[-1] if carrier.last_lines else "",
                " ".join(carrier.command[: -2 - len(OPTIONS)]) + " -oBatchMode=yes",
                carrier.host.name,
            )
            for carrier in self.carriers
            if carrier.about is None or carrier.status is not None
        ]
        if complaints:
            raise errors.LaunchError("\nslimps: ".join(complaints))
        self.address = self._address()
        return launcher.announce_scheduler()

    def _address(self):
        """Returns the address of this machine by which the hosts have been reached."""
        if self.interface:
            return network.interface_address(self.interface)
        seen = [carrier.about["launcher"] for carrier in self.carriers]
        seen = [address for address in seen if address and not network.is_loopback(address)]
        if not seen:
            return "127.0.0.1"
        if network.interface_of(seen[0]) is None:
            raise errors.LaunchError(
                "host %s sees this machine as %s, which is none of its addresses: give "
                "--interface NAME, by which the hosts reach this machine"
                % (self.carriers[0].host.name, seen[0])
            )
        return seen[0]

    def start(self, launcher, port):
        job = launcher.job
        first = next(carrier for carrier in self.carriers if "worker0" in carrier.carried)
        master = first.about["address"]
        if not master or network.is_loopback(master):  # this machine, as the others see it
            master = self.address
        for carrier in self.carriers:
            nodes = []
            workers = [node.name for node in carrier.carried.values() if node.role == "worker"]
            for node in carrier.carried.values():
                environment = passed(os.environ)
                rank = int(node.name[len(node.role) :])
                environment.update(job.variables(node.role, self.address, port))
                what = {
                    "name": node.name,
                    "role": node.role,
                    "command": job.remote_server(rank) if node.role == "server" else job.worker,
                    "environment": environment,
                }
                if node.role == "worker":
                    member = process_group.Member(
                        rank,
                        job.workers,
                        workers.index(node.name),
                        len(workers),
                        master,
                        first.about["port"],
                    )
                    what["member"] = dataclasses.asdict(member)
                if job.keys:
                    environment["SLIMPS_SCHEDULER_KEY"] = job.keys.public["scheduler"]
                    what["key"] = job.keys.secret_file(node.name)
                nodes.append(what)
            what = {
                "folder": os.getcwd(),
                "share_cores": job.share_cores,
                "trace": job_trace.VARIABLE in job.environment,
                "snapshots": job.snapshots and vars(job.snapshots),
                "nodes": nodes,
            }
            carrier.tell(json.dumps(what))
