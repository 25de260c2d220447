# SPDX-License-Identifier: Apache-2.0
"""slimps bench transport: compares push-pull through real processes with plain ZeroMQ, in one run.

For each transport and shape, there are two jobs, one with checksums and one without, and as many
raw ZeroMQ peers. They are measured in turn, several times, and medians count.

In flight: a job has KEYS tensors of BYTES each under way, each either as a gradient on its way out
or as weights on their way back. The raw peers have as many unacknowledged bytes in each direction,
in one message per tensor. Above 4 MiB they send parts of that size; the job cuts its tensors into
partitions of its default size, 1 MiB.
"""

import argparse
import os
import re

from bench import common
from bench import bench_processes
from bench.transport import curve_runs
from bench.transport import transport_runs as runs
from bench.transport import transport_tables as tables
from cli import progress
from cli import setup
from bench.common import name_list, number
from slimps_launch import out_files

TRANSPORTS = ("tcp", "ipc", "shm")
SIZES = "4Ki,16Ki,64Ki,256Ki,1Mi,4Mi,16Mi,64Mi"
QUICK_SIZES = "64Ki,1Mi"
MODELS = "resnet50,vgg16,bert_base"
LENT_SIZES, LENT_MODELS = "4Mi,16Mi,64Mi", "resnet50"
CURVE_SIZES, CURVE_MODELS = "4Mi", "resnet50"
PROGRAMS = {
    "slimps_scheduler": setup.PROGRAMS["slimps_scheduler"],
    "slimps_server": setup.PROGRAMS["slimps_server"],
    "bench_store": ("//tools/bench/transport:bench_store", "tools/bench/transport/bench_store"),
    "bench_raw_zmq": (
        "//tools/bench/transport:bench_raw_zmq",
        "tools/bench/transport/bench_raw_zmq",
    ),
}


# ---- flags
# ------------------------------------------------------------------------------------------


def size_list(text):
    sizes = []
    for word in text.split(","):
        match = re.fullmatch(r"([1-9][0-9]{0,9})(Ki|Mi)?(B?)", word)
        size = int(match[1]) << {"Ki": 10, "Mi": 20, None: 0}[match[2]] if match else 0
        if not 512 <= size <= 1 << 30 or size % 4 != 0:
            raise argparse.ArgumentTypeError(
                "expected sizes such as 4Ki,1Mi: whole fp32 numbers, 512 bytes to 1024Mi, got "
                "\"%s\"" % word
            )
        sizes.append(size)
    return sizes


def shape_list(text):
    shapes = []
    for word in text.split(","):
        match = re.fullmatch(r"([1-9]|1[0-6])x([1-9]|1[0-6])", word)
        if not match:
            raise argparse.ArgumentTypeError(
                "expected workers x servers such as 1x1,2x2, up to 16, got \"%s\"" % word
            )
        shapes.append((int(match[1]), int(match[2])))
    return shapes


def transport_list(text):
    for word in name_list(text):
        if word not in TRANSPORTS:
            raise argparse.ArgumentTypeError(
                "expected some of %s, got \"%s\"" % (",".join(TRANSPORTS), word)
            )
    return text.split(",")


def model_list(text):
    return [] if text == "none" else name_list(text)


def make_parser():
    parser = common.Parser(
        prog="slimps bench transport",
        allow_abbrev=False,
        description="Push-pull goodput (GB/s of fp32 gradient per worker, both directions moving) "
        "and latency of real jobs on this machine, beside raw ZeroMQ in the same run. Takes some "
        "ten minutes.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few sizes, short, no models: to see that it works"
    )
    parser.add_argument(
        "--transports",
        type=transport_list,
        metavar="LIST",
        help="of tcp, ipc, shm (all; --curve: tcp alone)",
    )
    parser.add_argument(
        "--sizes",
        type=size_list,
        metavar="LIST",
        help="bytes of a tensor, such as 4Ki,1Mi (%s; --quick: %s)" % (SIZES, QUICK_SIZES),
    )
    parser.add_argument(
        "--shapes", type=shape_list, metavar="LIST", help="workers x servers (1x1,2x2)"
    )
    parser.add_argument(
        "--model",
        type=model_list,
        metavar="LIST",
        help="models whose tensors are pushed and pulled, or none (%s; --quick: none)" % MODELS,
    )
    parser.add_argument(
        "--seconds",
        type=number(0.001, 60.0, float),
        metavar="S",
        help="of each measurement (0.5; --quick: 0.02)",
    )
    parser.add_argument(
        "--repeats",
        type=number(1, 99, int),
        metavar="N",
        help="measurements of each figure (5; --quick: 1)",
    )
    parser.add_argument(
        "--lend",
        action="store_true",
        help="measure gradients that are lent, raw and in 1bit, beside gradients that are copied,"
        " and nothing else (1x1, 4Mi,16Mi,64Mi, resnet50)",
    )
    parser.add_argument(
        "--curve",
        action="store_true",
        help="measure a job with keys beside one without, with processor time per byte, and "
        "nothing else (tcp, 1x1, 4Mi; resnet50 by 1bit both ways at 1 Gbit/s)",
    )
    parser.add_files()
    return parser


def settle(options):
    """Sets the options that were not given; returns the options."""
    quick = options.quick
    sizes, models = SIZES, MODELS
    if options.lend:
        sizes, models = LENT_SIZES, LENT_MODELS
    if options.curve:
        sizes, models = CURVE_SIZES, CURVE_MODELS
    if options.transports is None:
        options.transports = ["tcp"] if options.curve else list(TRANSPORTS)
    if options.shapes is None:
        options.shapes = [(1, 1)] if options.lend or options.curve else [(1, 1), (2, 2)]
    if options.sizes is None:
        options.sizes = size_list(QUICK_SIZES if quick else sizes)
    if options.model is None:
        options.model = [] if quick else model_list(models)
    options.seconds = options.seconds or (0.02 if quick else 0.5)
    options.repeats = options.repeats or (1 if quick else 5)
    return options


def check_models(models, program):
    """Raises ValueError if `program`, a bench_store, does not know one of the models."""
    if not models:
        return
    with bench_processes.Processes() as processes:
        listing = processes.start("bench_store", [program, "--list_models"])
        known = processes.answers([listing], "list of models")[0]["models"]
    for model in models:
        if model not in known:
            raise ValueError("expected none or some of %s, got \"%s\"" % (",".join(known), model))


def measure(options, programs):
    results = []

    def say(row):
        results.append(row)
        progress.note("slimps bench: " + tables.line(results, row))

    stages = [(transport, shape) for transport in options.transports for shape in options.shapes]
    with bench_processes.Processes() as processes, progress.Bar(len(stages), "stages") as bar:
        for transport, shape in stages:
            with runs.Stage(processes, programs, transport, shape) as stage:
                measured = curve_runs if options.curve else runs
                measured.measure_stage(stage, options, say)
            bar.advance()
    return results


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as text:
        cpu = re.search(r"model name\s*: (.*)", text.read())
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as text:
        congestion_control = text.read().strip()
    return {
        "cpu": cpu[1] if cpu else "unknown",
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "congestion_control": congestion_control,
    }


def main(arguments):
    parser = make_parser()
    options = settle(parser.parse_args(arguments))
    if options.curve and (options.lend or options.transports != ["tcp"]):
        parser.error("--curve: only tcp is encrypted, and --lend is another measurement")
    out_files.refuse_unwritable(parser, "--json", options.json)
    with common.ending_on_signals():
        programs = common.find_programs(PROGRAMS, options.programs)
        try:
            check_models(options.model, programs["bench_store"])
        except ValueError as error:
            parser.error("--model: %s" % error)
        described = machine()
        results = measure(options, programs)
    for row in results:
        row["congestion_control"] = described["congestion_control"]
    report = {"bench": "transport", "machine": described, "results": results}
    print(tables.text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
