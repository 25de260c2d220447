# SPDX-License-Identifier: Apache-2.0
"""Nodes on other machines, carried by a process here: ssh, srun or mpirun.

What the nodes print comes as lines "worker1| text" through the carrier, or "worker1! text" from
stderr. Their agents (agent.py) report between those lines what became of them, as `MARK NAME
{json}`. All of it goes through one pipe, so it stays in order.
"""

import base64
import contextlib
import json
import re
import signal

from slimps_launch import job_node
from slimps_launch import job_trace
from slimps_launch import pieces
from slimps_launch import processes

MARK = b"slimps-report:"
BARS = {b"|": 1, b"!": 2}  # stdout and stderr
OF_NODE = re.compile(rb"(\w+)([|!]) (.*)", re.DOTALL)
AGENT = "agent"  # the name under which an agent tells of its machine


def report(name, **fields):
    """Returns the line that tells the launcher something of the node `name`."""
    return b"%s %s %s\n" % (MARK, name.encode(), json.dumps(fields).encode())


def line_of(name, stream, text, end):
    """Returns the line that tells the launcher a piece of the node `name`."""
    bar = next(bar for bar, number in BARS.items() if number == stream)
    return b"%s%s %s%s\n" % (name.encode(), bar, text, end.strip(b"\n"))


class CarriedNode(job_node.Node):
    """A process of the job that another process carries. Signals go to the carrier."""

    def __init__(self, name, role, where=None):
        super().__init__(name, role, [])
        self.where = where
        self.carrier = None

    def successor(self, launcher):
        return self.carrier.successor_of(self)

    def start_again(self, launcher):
        self.carrier.tell("start %s" % self.name)

    def end_if_stopped(self):
        self.carrier.tell("end_if_stopped %s" % self.name)

    def describe_end(self):
        return super().describe_end() + (" on %s" % self.where if self.where else "")


# OpenMPI's mpirun kills its processes one second after SIGTERM; MPICH's and OpenMPI's pass this on.
STOP = signal.SIGALRM  # to an agent: SIGTERM for its workers


class Carrier(job_node.Node):
    """A process that carries nodes."""

    cut = pieces.CarriedPieces

    def __init__(self, name, command, nodes):
        super().__init__(name, "carrier", command)
        self.carried = {node.name: node for node in nodes}
        for node in nodes:
            node.carrier = self
        self.about = None  # what the agent said of its machine, if it did

    def inner(self):
        return list(self.carried.values())

    def pass_on(self, number):
        # Before they have begun, a signal that is for their programs would end what starts them.
        if number in processes.ENDING or all(node.pid is not None for node in self.inner()):
            self.convey(number)

    def convey(self, number):
        """Passes a signal to the agents."""
        self.signal(STOP if number in processes.ENDING else number)

    def hear(self, stream, text, end, launcher):
        if text.startswith(MARK):
            try:
                _, name, said = text.split(b" ", 2)
                self._learn(name.decode(), json.loads(said), launcher)
                return
            except (ValueError, KeyError):  # engines may mix the lines of two processes
                pass
        found = OF_NODE.fullmatch(text)
        node = self.carried.get(found[1].decode()) if found else None
        if node is None:
            launcher.output.add(self, stream, text, end)
        else:
            launcher.output.add(node, BARS[found[2]], found[3], end)

    def _learn(self, name, said, launcher):
        if name == AGENT:
            self.about = said
            launcher.events.put(None)
            return
        node = self.carried[name]
        if "part" in said:
            path = job_trace.part_path(launcher.job.environment[job_trace.VARIABLE], name)
            chunk = base64.b64decode(said["part"])
            # What cannot be written is missing in the part, so the merge leaves it out and says so.
            with contextlib.suppress(OSError), open(path, "ab" if said["at"] else "wb") as part:
                part.write(chunk)
            return
        node.pid = said.get("pid", node.pid)
        node.where = node.where or said.get("host")
        if "status" in said:
            node.stopped = said["stopped"]
            node.said = said["report"]
            node.status = said["status"]
            launcher.events.put(node)

    def successor_of(self, node):
        """Returns the node that takes the place of a carried one; None: the engine starts none."""
        return None

    def lost(self):
        """Returns the nodes whose end was not reported. They get the carrier's status."""
        nodes = [node for node in self.carried.values() if node.status is None]
        for node in nodes:
            node.status = self.status
        return nodes


class ToldCarrier(Carrier):
    """Its agents take signals through its stdin, as lines, and end when that closes."""

    def signal(self, number):
        self.tell("signal %d" % number)

    convey = signal

    def keep(self):
        self.tell("signal 0")


class SshCarrier(ToldCarrier):
    """Its agent starts nodes again, at the line "start NAME".

    Until the agent has spoken, lines say why the host does not answer. They are kept.
    """

    def successor_of(self, node):
        if self.status is not None:
            return None
        self.carried[node.name] = CarriedNode(node.name, node.role, node.where)
        self.carried[node.name].carrier = self
        return self.carried[node.name]

    def hear(self, stream, text, end, launcher):
        if self.about is None and not text.startswith(MARK):
            self.remember(stream, text)
        else:
            super().hear(stream, text, end, launcher)
