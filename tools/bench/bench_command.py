# SPDX-License-Identifier: Apache-2.0
"""slimps bench: measures codecs, jobs and whole systems. KINDS lists all benches."""

import collections
import difflib
import os
import subprocess
import sys
import tempfile

from bench.cluster import cluster_bench
from bench.codec import codec_tables
from bench import common
from bench.gpu import gpu_bench
from bench.low_rank import low_rank_bench
from bench.torch import python_bench
from bench.soak import soak_bench
from bench.storm import storm_bench
from bench import report_tables
from bench.training import accuracy_bench
from bench.training import convergence_bench
from bench.training import sensitivity_bench
from bench.torch import torch_bench
from bench.transport import transport_bench
from bench.watch import watch_bench
from cli import progress
from cli import setup
from bench.common import Parser
from slimps_launch import out_files
from slimps_launch import job_node


def codec_parser():
    parser = Parser(
        prog="slimps bench codec",
        allow_abbrev=False,
        description="Measures every codec: GB/s of fp32 gradient, and the same as a fraction of a "
        "plain loop that the same process runs in turn with it. Takes some minutes.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="64 Ki elements, short: to see that it works"
    )
    parser.add_argument(
        "--matrix",
        action="store_true",
        help="tensors are matrices, as codecs of low rank see them (vectors)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument(
        "--codecs",
        default="",
        metavar="LIST",
        help="names, or specs such as 1bit:scaling=none (all)",
    )
    parser.add_argument(
        "--ops",
        default="",
        metavar="LIST",
        help="of %s (all but phases)" % ", ".join(codec_tables.OPERATIONS),
    )
    parser.add_argument(
        "--elements", default="", metavar="LIST", help="sizes (64Ki,256Ki,1Mi,16Mi)"
    )
    parser.add_argument(
        "--threads",
        default="",
        metavar="LIST",
        help="numbers of threads (1); several take partitions of 256 Ki elements, one each",
    )
    parser.add_argument(
        "--isa",
        default="",
        metavar="LIST",
        help="of scalar, avx2, avx512 (avx2 and this CPU's best)",
    )
    parser.add_argument(
        "--workers", default="", metavar="LIST", help="payloads that aggregate sums (1,2,4,8,16)"
    )
    parser.add_argument(
        "--table",
        default="",
        metavar="MODEL",
        help="a model, such as resnet50 or vgg16: instead, how long its whole gradient takes, "
        "drawn and as recorded (with --codecs, --threads and --isa, the best one if not given)",
    )
    parser.add_argument("--program", metavar="FILE", help="a bench_codec that is built already")
    return parser


def run_codec(program, options, path):
    """Runs bench_codec, which writes the figures to `path`. Returns its exit status.

    SetupError: the program crashed or cannot be run.
    """
    command = [program, "--json=" + path] + (["--quick"] if options.quick else [])
    command += ["--matrix"] if options.matrix else []
    command += [
        "--%s=%s" % (name, getattr(options, name))
        for name in ("codecs", "ops", "elements", "threads", "isa", "workers", "table")
    ]
    try:
        with progress.Bar(None, "cases") as bar, subprocess.Popen(
            command,
            stderr=subprocess.PIPE if bar.is_shown else None,
            encoding="utf-8",
            errors="replace",
            preexec_fn=job_node.die_with_parent(),
        ) as process:
            for line in process.stderr or ():
                bar.show(line)
        status = process.returncode
    except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument
        raise setup.SetupError(
            "cannot run %s: %s" % (program, getattr(error, "strerror", None) or error)
        )
    if status < 0:
        raise setup.SetupError("%s was killed by %s" % (program, job_node.signal_name(-status)))
    return status


def codec(arguments):
    parser = codec_parser()
    options = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--json", options.json)
    program = options.program or common.find_programs(codec_tables.PROGRAM)["bench_codec"]
    with common.ending_on_signals(), tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        path = os.path.join(folder, "bench.json")
        status = run_codec(program, options, path)
        if status not in (0, 1):
            return 2  # the program has said why
        try:
            report = out_files.load_json(path)
            report_tables.check(report)
        except ValueError as error:
            raise setup.SetupError("%s left no figures: %s" % (program, error))
    print(report_tables.text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return status


def render(arguments):
    parser = Parser(
        prog="slimps bench render",
        allow_abbrev=False,
        description="What slimps bench --json wrote, as markdown.",
    )
    parser.add_argument("file")
    parser.add_argument(
        "--into",
        metavar="PAGE",
        help="replace what is between <!-- bench codec --> and <!-- end codec --> there (for a "
        "model's table its name instead of codec, for the transport's transport, for a cluster's "
        "\"cluster 1gbit\" or its other link, and \"cluster 1gbit thresholds\" where "
        "--fixed_thresholds were compared)",
    )
    options = parser.parse_args(arguments)
    if options.into is not None:
        out_files.refuse_unwritable(parser, "--into", options.into)
    try:
        report = out_files.load_json(options.file)
        report_tables.check(report)
        if options.into is None:
            print(report_tables.markdown(report))
            return 0
    except ValueError as error:
        raise setup.SetupError("cannot render %s: %s" % (options.file, error))
    try:
        with open(options.into, encoding="utf-8") as page:
            document = report_tables.put_into(page.read(), report)
    except OSError as error:
        raise setup.SetupError("cannot read %s: %s" % (options.into, error.strerror))
    except ValueError as error:
        raise setup.SetupError("cannot render %s into %s: %s" % (options.file, options.into, error))
    out_files.save_text(options.into, document)
    return 0


Kind = collections.namedtuple("Kind", "name arguments what run")
KINDS = [
    Kind("codec", "[OPTION ...]", "measure every codec, print tables, write JSON", codec),
    Kind(
        "low_rank",
        "[OPTION ...]",
        "a step of powersgd beside the same step in torch",
        low_rank_bench.main,
    ),
    Kind(
        "transport",
        "[OPTION ...]",
        "push-pull of real jobs beside raw ZeroMQ",
        transport_bench.main,
    ),
    Kind(
        "cluster",
        "[OPTION ...]",
        "whole systems on nodes with shaped links (root)",
        cluster_bench.main,
    ),
    Kind("torch", "[OPTION ...]", "PyTorch training beside DDP over gloo (root)", torch_bench.main),
    Kind(
        "gpu",
        "[OPTION ...]",
        "compression on a GPU and offloaded, and steps beside DDP",
        gpu_bench.main,
    ),
    Kind("python", "[OPTION ...]", "pushing and pulling from Python beside C++", python_bench.main),
    Kind(
        "accuracy", "[OPTION ...]", "training with several codecs beside fp32", accuracy_bench.main
    ),
    Kind(
        "convergence",
        "[OPTION ...]",
        "times to a target accuracy on a slow link",
        convergence_bench.main,
    ),
    Kind(
        "sensitivity",
        "[OPTION ...]",
        "accuracy over thresholds and learning rates",
        sensitivity_bench.main,
    ),
    Kind("soak", "[OPTION ...]", "what memory does over very many rounds", soak_bench.main),
    Kind("storm", "[OPTION ...]", "daemons killed while a job trains", storm_bench.main),
    Kind("watch", "[OPTION ...]", "what it costs that a job is watched", watch_bench.main),
    Kind(
        "render",
        "FILE [--into PAGE]",
        "what one (not low_rank, soak, storm, watch) wrote by --json, as markdown",
        render,
    ),
]


def usage():
    lines = [
        "%s slimps bench %-11s %-19s %s"
        % ("      " if number else "usage:", kind.name, kind.arguments, kind.what)
        for number, kind in enumerate(KINDS)
    ]
    return "\n".join(lines + ["", "slimps bench %s --help says more." % KINDS[0].name])


def main(arguments):
    commands = {kind.name: kind.run for kind in KINDS}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] not in commands:
        near = difflib.get_close_matches(arguments[0], commands, 1)
        print(
            "slimps bench: unknown bench \"%s\"%s\n\n%s"
            % (arguments[0], ": did you mean %s?" % near[0] if near else "", usage()),
            file=sys.stderr,
        )
        return 2
    return commands[arguments[0]](arguments[1:])
