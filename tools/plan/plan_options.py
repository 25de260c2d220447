# SPDX-License-Identifier: Apache-2.0
"""The flags of slimps plan, which are checked before anything is started."""

from __future__ import annotations

import argparse
from typing import Optional, Sequence

from bench.cluster import net
from bench.common import Parser, name_list, number
from slimps_launch import out_files

SWEEPS = ("bandwidth", "batch", "compute", "ratio")
MOST_NODES = 64
UNSHAPED = "unshaped"
MEASURED = "measured"
ROUND_TRIP = "RATE[:RTT_MS]"
LOCAL = "local"


def make_parser() -> Parser:
    parser = Parser(
        prog="slimps plan",
        allow_abbrev=False,
        description="Predicts whether gradient compression pays for a job, against bf16 both ways: "
        "simulates every partition of a few iterations for each codec, with and without the backup "
        "model. The first line is the answer. docs/planning.md says how to decide with it.",
    )
    parser.add_argument(
        "--model",
        default="resnet50",
        metavar="NAME|TRACE",
        help="a model of slimps bench cluster, or a trace of your job by slimps launch --trace "
        "(resnet50)",
    )
    parser.add_argument(
        "--link",
        default="1gbit",
        metavar=ROUND_TRIP,
        help="each node's link, both ways: 1gbit, 100mbit:0.5 with a round trip of 0.5 ms, "
        "unshaped, or measured, as the calibration has it (1gbit)",
    )
    parser.add_argument("--workers", type=number(1, MOST_NODES, int), default=2, metavar="N")
    parser.add_argument(
        "--servers", type=number(1, MOST_NODES, int), metavar="S", help="(as many as workers)"
    )
    parser.add_placement()
    parser.add_argument(
        "--batch",
        type=number(1, 1e9, float),
        default=64.0,
        metavar="N",
        help="samples of a worker's iteration, to which --compute_ms belongs (64)",
    )
    parser.add_argument(
        "--compute_ms",
        type=number(0.001, 3.6e6, float),
        metavar="MS",
        help="forward and backward pass of one iteration (a model: its published ratio of "
        "communication to compute at 1 Gbit/s; a trace: as it was)",
    )
    parser.add_argument(
        "--cores", type=number(1, 4096, int), metavar="N", help="of each node (the calibration's)"
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="what --calibrate left (without one: a server's figures, which the answer says)",
    )
    parser.add_argument(
        "--other_machine",
        action="store_true",
        help="the plan is for the calibration's machines, not for this one",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure the machines and write --calibration FILE: minutes, best on idle machines",
    )
    parser.add_argument(
        "--on", default=LOCAL, metavar="WHERE", help="where --calibrate runs, as slimps launch --on"
    )
    parser.add_argument(
        "--quick", action="store_true", help="--calibrate only none, bf16, 1bit and thc"
    )
    parser.add_argument(
        "--systems",
        type=name_list,
        metavar="LIST",
        help="only these, such as 1bit,1bit+backup; bf16 comes along (all that were calibrated)",
    )
    parser.add_argument(
        "--what_if",
        choices=SWEEPS,
        metavar="WHAT",
        help="how the answer changes with one of %s: a table, and --svg" % ", ".join(SWEEPS),
    )
    parser.add_argument("--svg", metavar="FILE", help="the sweep of --what_if as a picture")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the same set-up in slimps bench cluster, where it has the system (root; minutes)",
    )
    parser.add_argument(
        "--validate",
        metavar="FILE",
        help="instead: run many small set-ups in slimps bench cluster, and keep predicted and "
        "measured times in FILE; goes on where it was stopped (root; half an hour)",
    )
    parser.add_argument(
        "--most",
        type=number(0, 100000, int),
        metavar="N",
        help="run at most so many more jobs of --validate; 0: only predict anew what was measured",
    )
    parser.add_files(json="write the plan here")
    return parser


def parse_link(text: str) -> tuple[Optional[str], float]:
    """Returns a link's rate, None for unshaped, and its round trip in ms.

    ValueError: the text is something else.
    """
    rate, colon, delay = text.partition(":")
    try:
        milliseconds = float(delay) if colon else 0.0
    except ValueError:
        milliseconds = -1.0
    if not 0 <= milliseconds <= 1e6:
        raise ValueError("expected RATE:MS with 0 to 1e6 ms, got '%s'" % text)
    if rate == UNSHAPED:
        return None, milliseconds
    net.bits_per_second(rate)
    return rate, milliseconds


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options. SystemExit: they are wrong; stderr says which one."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.servers = options.servers or options.workers
    if options.link == MEASURED:
        if options.calibration is None:
            parser.error("--link measured: expected --calibration FILE, which has the link")
    else:
        try:
            options.rate, options.round_trip_ms = parse_link(options.link)
        except ValueError as error:
            parser.error("--link: %s" % error)
    if options.calibrate and options.calibration is None:
        parser.error("--calibrate: expected --calibration FILE to write")
    if options.svg is not None and options.what_if is None:
        parser.error("--svg goes with --what_if")
    if options.most is not None and options.validate is None:
        parser.error("--most goes with --validate")
    if options.calibrate and options.validate:
        parser.error("--calibrate and --validate are two runs: give one of them")
    if options.calibrate or options.validate:
        for flag in ("json", "what_if", "check"):
            if getattr(options, flag):
                parser.error("--%s goes with a plan, not with --calibrate or --validate" % flag)
    if not options.calibrate and (options.quick or options.on != LOCAL):
        parser.error("--on and --quick go with --calibrate")
    if options.check:
        refuse_unlike_bench(parser, options)
    if options.calibrate:
        out_files.refuse_unwritable(parser, "--calibration", options.calibration)
    out_files.refuse_unwritable(parser, "--json", options.json)
    out_files.refuse_unwritable(parser, "--svg", options.svg)
    out_files.refuse_unwritable(parser, "--validate", options.validate)
    return options


def refuse_unlike_bench(parser: Parser, options: argparse.Namespace) -> None:
    """SystemExit: bench cluster cannot run this set-up."""
    if options.servers != options.workers:
        parser.error("--check: bench cluster has as many servers as workers")
    if options.link == MEASURED or options.round_trip_ms > 0:
        parser.error("--check: the links of a check have a rate and no round trip of their own")
    if options.cores is not None:
        parser.error("--check: bench cluster's nodes share this machine's cores; leave out --cores")
