# SPDX-License-Identifier: Apache-2.0
"""Nodes on one machine: network namespaces with a veth each to a bridge, shaped both ways by tc.

    with Network(2) as network:
        network.shape("1gbit")
        subprocess.Popen(network.command(0, ["slimps_server", "--bind", network.address(0)]))

The bridge is in a namespace of its own (the hub), so it is not visible outside and disappears with
the hub. If a run is killed, the next run removes its namespaces. For links with a round trip
(round_trip.py), a switch that is a process takes the bridge's place.
"""

import os
import re
import shutil
import signal
import subprocess

from cli import setup

PREFIX = "slimpsb"
# A larger burst would refill while the other direction sends, and would flatter the result.
TBF = ["burst", "64kb", "latency", "50ms"]
# By default TCP hands over 64 KiB at a time, which with headers is more than the burst. tbf then
# cuts it up and drops what does not fit, and cubic gets only 50 to 95 % of the rate.
MAX_PACKET = ["gso_max_size", "32768"]
SLOWEST, FASTEST = 8e3, 1e12
RATES = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
INTERFACE = "eth0"
HUB = -1  # the number of the node that has the bridge; it is unshaped


def bits_per_second(rate):
    """Returns the bits per second of a rate in tc's form: 100mbit, 2.5gbit.

    ValueError: the text is something else.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)", rate)
    if not match or float(match.group(1)) <= 0:
        raise ValueError("expected a rate such as 1gbit or 100mbit, got '%s'" % rate)
    bits = float(match.group(1)) * RATES[match.group(2)]
    if not SLOWEST <= bits <= FASTEST:
        raise ValueError("expected a rate from 8kbit to 1000gbit, got '%s'" % rate)
    return bits


def run(command, check=True):
    try:
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
        )
    except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument
        raise setup.SetupError("cannot run %s: %s" % (command[0], error)) from error
    if check and result.returncode != 0:
        raise setup.SetupError("%s: %s" % (" ".join(command), result.stderr.strip() or "failed"))
    return result.stdout


def why_not(congestion="default"):
    """Returns why namespaces with this congestion control cannot be made here; None: they can.

    Tries it: makes a namespace and removes it.
    """
    if os.geteuid() != 0:
        return "network namespaces with shaped links need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return "network namespaces need %s (Debian package iproute2)" % program
    try:
        with Network(1, congestion="default") as network:
            network.shape("1gbit")
    except setup.SetupError as error:
        return "cannot make network namespaces with shaped links here: %s" % error
    if congestion != "default":
        try:
            with Network(1, congestion):
                pass
        except setup.SetupError as error:
            return "cannot use TCP's congestion control %s here: %s" % (congestion, error)
    return None


def namespaces():
    return [line.split()[0] for line in run(["ip", "netns", "list"]).splitlines() if line.strip()]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def leftovers(names, alive=is_alive):
    """Returns the namespaces whose run has ended."""
    matches = [(name, re.match(PREFIX + r"(\d+)-", name)) for name in names]
    return [name for name, match in matches if match and not alive(int(match.group(1)))]


def remove_namespace(name):
    for pid in run(["ip", "netns", "pids", name], check=False).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    run(["ip", "netns", "del", name], check=False)


class Network:
    """The nodes of a run. A context manager. Owned by the main thread."""

    def __init__(self, nodes, congestion="cubic", switch=None):
        self.nodes = nodes
        self.congestion = congestion
        self.switch = switch
        self.prefix = "%s%d-" % (PREFIX, os.getpid())
        self.made = []

    def __enter__(self):
        for name in leftovers(namespaces()):
            remove_namespace(name)
        try:
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *unused):
        self.remove()

    def name(self, node):
        return self.prefix + ("hub" if node == HUB else "n%d" % node)

    def address(self, node):
        return "10.77.0.%d" % (254 if node == HUB else node + 1)

    def command(self, node, command):
        """Returns the command line that runs `command` in the node's namespace."""
        return ["ip", "netns", "exec", self.name(node)] + command

    def everywhere(self):
        """Returns all nodes, the hub first."""
        return [HUB] + list(range(self.nodes))

    def _make(self):
        for node in self.everywhere():
            self.made.append(self.name(node))
            run(["ip", "netns", "add", self.name(node)])
            run(["ip", "-n", self.name(node), "link", "set", "lo", "up"])
        hub = self.name(HUB)
        # With a switch, br0 is the hub's own cable to it, as eth0 is a node's. The ports speak no
        # ARP, or the hub itself would answer there when a node asks for the hub's address.
        kind = ["veth", "peer", "name", "ph"] if self.switch else ["bridge"]
        joined = ["arp", "off"] if self.switch else ["master", "br0"]
        run(["ip", "-n", hub, "link", "add", "br0", "type"] + kind)
        run(["ip", "-n", hub, "addr", "add", self.address(HUB) + "/24", "dev", "br0"])
        run(["ip", "-n", hub, "link", "set", "br0", "up"] + MAX_PACKET)
        for node in range(self.nodes):
            port, name = "p%d" % node, self.name(node)
            run(
                [
                    "ip",
                    "-n",
                    hub,
                    "link",
                    "add",
                    port,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    INTERFACE,
                    "netns",
                    name,
                ]
            )
            run(["ip", "-n", hub, "link", "set", port, "up"] + joined)
            run(["ip", "-n", name, "addr", "add", self.address(node) + "/24", "dev", INTERFACE])
            run(["ip", "-n", name, "link", "set", INTERFACE, "up"] + MAX_PACKET)
            if self.congestion != "default":
                self._choose_congestion_control(node)
        if self.switch:
            run(["ip", "-n", hub, "link", "set", "ph", "up"] + joined)
            self.switch.start(self, ["ph"] + ["p%d" % node for node in range(self.nodes)])

    def _choose_congestion_control(self, node):
        """Sets it per route: for the route to other nodes and the one to the node's own address."""
        address = self.address(node)
        route = ["ip", "-n", self.name(node), "route", "replace"]
        run(
            route
            + [
                "10.77.0.0/24",
                "dev",
                INTERFACE,
                "proto",
                "kernel",
                "scope",
                "link",
                "src",
                address,
                "congctl",
                self.congestion,
            ]
        )
        run(
            route
            + [
                "table",
                "local",
                "local",
                address,
                "dev",
                "lo",
                "proto",
                "kernel",
                "scope",
                "host",
                "src",
                address,
                "congctl",
                self.congestion,
            ]
        )

    def _ends(self):
        """Yields (namespace, device) of both ends of every link. Each end shapes what it sends."""
        for node in range(self.nodes):
            yield self.name(node), INTERFACE
            yield self.name(HUB), "p%d" % node

    def shape(self, rate):
        """Sets the rate of all links, in tc's form; "unshaped" removes it."""
        for name, device in self._ends():
            if rate == "unshaped":
                run(["tc", "-n", name, "qdisc", "del", "dev", device, "root"], check=False)
            else:
                run(
                    [
                        "tc",
                        "-n",
                        name,
                        "qdisc",
                        "replace",
                        "dev",
                        device,
                        "root",
                        "tbf",
                        "rate",
                        rate,
                    ]
                    + TBF
                )

    def set_link(self, node, state):
        """Pulls the cable between a node and the bridge ("down"), or puts it back ("up")."""
        run(["ip", "-n", self.name(HUB), "link", "set", "p%d" % node, state])

    def remove(self):
        if self.switch:
            self.switch.stop()
        while self.made:
            remove_namespace(self.made.pop())
