# SPDX-License-Identifier: Apache-2.0
"""--rtt_ms: links on which a round trip between two nodes takes some milliseconds.

    round_trip.add_flag(parser)
    programs = common.find_programs(PROGRAMS | round_trip.program(options), ...)
    with net.Network(2, switch=round_trip.switch_of(options, programs)) as network:
        report = round_trip.measure(network, options)
        ...
        report.update(round_trip.losses(network, options))

A kernel without netem delays nothing, so a program does: bench_switch takes the bridge's place in
the hub and holds each packet for half a round trip. It reads and sends by packet sockets. So the
nodes keep their veths, tbf shapes both ends as without a delay, and a packet is copied twice; a TUN
or TAP device in the hub for each node would be shaped alike, but each packet would be copied four
times.
"""

import json
import os
import subprocess
import sys

from bench.cluster import net
from bench.common import number
from cli import setup
from slimps_launch import job_node
from slimps_launch import schema

PROGRAM = {"bench_switch": ("//tools/bench/link:bench_switch", "tools/bench/link/bench_switch")}
MOST_MS = 300.0
# TCP's windows must hold what is under way, and may count each byte twice: 300 ms of 1 Gbit/s are
# 37 MB. They grow to this only where a connection needs it.
TCP_BUFFERS = {
    "tcp_rmem": "4096 131072 %d" % (128 << 20),
    "tcp_wmem": "4096 16384 %d" % (128 << 20),
}
PROBE = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "link_probe.py")]
GROWTH_ROUND_TRIPS = 25  # in which TCP's windows have grown
SHAPE = {
    name: schema.Optional(schema.NUMBER)
    for name in ("rtt_ms", "measured_rtt_ms", "measured_mbit_per_s", "lost_packets")
}


def add_flag(parser):
    parser.add_argument(
        "--rtt_ms",
        type=number(0, MOST_MS, float),
        default=0.0,
        metavar="MS",
        help="what a round trip between two nodes takes beside the link's rate (0: no delay)",
    )


def program(options):
    """Returns the program that the links need beside the bench's own, as find_programs takes it."""
    return PROGRAM if options.rtt_ms else {}


def switch_of(options, programs):
    """Returns the Switch for net.Network; None: packets are not held."""
    return Switch(programs["bench_switch"], options.rtt_ms) if options.rtt_ms else None


class Switch:
    """bench_switch between the ports of a network's hub. It dies with this process, however that
    ends, since its stdin then does. Owned by the main thread."""

    def __init__(self, path, rtt_ms):
        self.path, self.rtt_ms = path, rtt_ms
        self.process = None

    def start(self, network, ports):
        """Connects the hub's ports. SetupError: the program cannot be run, or refuses."""
        for node in network.everywhere():
            for name, value in TCP_BUFFERS.items():
                write = "echo %s > /proc/sys/net/ipv4/%s" % (value, name)
                net.run(network.command(node, ["sh", "-c", write]))
        held_us = round(500 * self.rtt_ms)
        command = network.command(net.HUB, [self.path, "%d" % held_us, *ports])
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise setup.SetupError("cannot run %s: %s" % (command[0], error.strerror)) from error
        self.lost()  # it answers when it is at work

    def lost(self):
        """Returns how many packets it has lost, without those that tbf dropped.

        SetupError: it has ended.
        """
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline())
        except (BrokenPipeError, ValueError) as error:
            raise setup.SetupError("bench_switch has ended, see above") from error

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def measure(network, options):
    """Returns what a report says of a link: what was wanted and, if packets are held, what TCP gets
    between the first two nodes at this rate."""
    if not options.rtt_ms:
        return {"rtt_ms": 0.0}
    network.shape(options.link)
    address = network.address(1)
    growth_s = GROWTH_ROUND_TRIPS * options.rtt_ms / 1e3
    with subprocess.Popen(
        network.command(1, PROBE + ["listen", address]),
        stdout=subprocess.PIPE,
        preexec_fn=job_node.die_with_parent(),
    ) as listener:
        try:
            listener.stdout.readline()  # it listens, or has ended, which connecting shows
            found = net.run(network.command(0, PROBE + ["connect", address, "%r" % growth_s]))
        finally:
            listener.kill()
    return {"rtt_ms": options.rtt_ms, **json.loads(found)}


def losses(network, options):
    """Returns what a report says at the end: the packets that the links lost beside tbf's drops."""
    return {"lost_packets": network.switch.lost()} if options.rtt_ms else {}


def name_of(options):
    """Returns what a report's name says after the rate."""
    return " rtt %gms" % options.rtt_ms if options.rtt_ms else ""


def words(report):
    """Returns the round trip of a report for its table's first line, after the rate."""
    if not report.get("rtt_ms"):
        return ""
    return " with a round trip of %g ms (measured %.1f ms and %.0f Mbit/s, %d packets lost)" % (
        report["rtt_ms"],
        report["measured_rtt_ms"],
        report["measured_mbit_per_s"],
        report["lost_packets"],
    )
