# SPDX-License-Identifier: Apache-2.0
"""slimps bench low_rank: compares one worker's step of powersgd with the same step in torch.

Both run in turn, one thread each, several times, and medians count. A step adds the residual,
computes both factors with an orthogonalisation after the first, and leaves the new residual.
"""

import os
import statistics
import subprocess

from bench import common
from cli import progress
from cli import python_package
from cli import setup
from slimps_launch import job_node
from slimps_launch import out_files

PROGRAMS = {
    "bench_low_rank": (
        "//tools/bench/low_rank:bench_low_rank",
        "tools/bench/low_rank/bench_low_rank",
    )
}
TORCH_STEP = os.path.join(setup.REPOSITORY, "tools", "bench", "low_rank", "torch_step.py")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BAR = 0.5  # of torch's time


def make_parser():
    parser = common.Parser(
        prog="slimps bench low_rank",
        allow_abbrev=False,
        description="Milliseconds of one worker's step of powersgd on one matrix, beside the same "
        "step in torch, in turn on one thread each. Takes a minute.",
    )
    parser.add_count("--rows", 1 << 16, 4096, "rows of the matrix")
    parser.add_count("--columns", 1 << 16, 4096, "columns of the matrix")
    parser.add_count("--rank", 64, 4, "of powersgd")
    parser.add_count("--runs", 1000, 5, "steps in a turn")
    parser.add_count("--turns", 100, 5, "turns of each")
    parser.add_argument(
        "--python",
        metavar="PATH",
        default=python_package.PYTHON,
        help="a Python that has torch (default %(default)s, whose torch uses OpenBLAS)",
    )
    parser.add_files()
    return parser


def words_of(command):
    """Returns what a command prints, in words.

    SetupError: it cannot be run or fails.
    """
    try:
        run = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=dict(os.environ, **ONE_THREAD),
            preexec_fn=job_node.die_with_parent(),
        )
    except OSError as error:
        raise setup.SetupError("cannot run %s: %s" % (command[0], error.strerror)) from error
    if run.returncode != 0:
        reason = run.stderr.strip().splitlines()[-1:] or ["status %d" % run.returncode]
        raise setup.SetupError("%s failed: %s" % (command[0], reason[0]))
    return run.stdout.split()


def measure(program, options):
    sizes = [options.rows, options.columns, options.rank, options.runs]
    flags = ["--%s=%d" % pair for pair in zip(("rows", "columns", "rank", "runs"), sizes)]
    ours, theirs, library = [], [], "unknown"
    with progress.Bar(options.turns, "turns") as bar:
        for _ in range(options.turns):
            (ms,) = words_of([program] + flags)
            ours.append(float(ms))
            ms, library = words_of([options.python, TORCH_STEP] + [str(size) for size in sizes])
            theirs.append(float(ms))
            bar.advance()
    slimps_ms, torch_ms = statistics.median(ours), statistics.median(theirs)
    return {
        "rows": options.rows,
        "columns": options.columns,
        "rank": options.rank,
        "library": library,
        "slimps_ms": slimps_ms,
        "torch_ms": torch_ms,
        "of_torch": slimps_ms / torch_ms,
        "slimps_range_ms": [min(ours), max(ours)],
        "torch_range_ms": [min(theirs), max(theirs)],
    }


def text(report):
    def row(name, key):
        low, high = report[key + "_range_ms"]
        return (name, "%.1f" % report[key + "_ms"], "%.1f" % low, "%.1f" % high)

    about = "powersgd rank %d, %d x %d, one thread: %.2f of torch's time (%s)" % (
        report["rank"],
        report["rows"],
        report["columns"],
        report["of_torch"],
        common.verdict(report["of_torch"] <= BAR, "bar %.2f" % BAR),
    )
    rows = [row("slimps", "slimps"), row("torch, " + report["library"], "torch")]
    table = ("One step, in ms", ("", "median", "least", "most"), rows)
    return common.text_report(about, [table])


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--json", options.json)
    program = common.find_programs(PROGRAMS, options.programs)["bench_low_rank"]
    with common.ending_on_signals():
        report = measure(program, options)
    print(text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
