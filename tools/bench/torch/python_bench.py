# SPDX-License-Identifier: Apache-2.0
"""slimps bench python: compares push and pull of ResNet-50's tensors from Python with C++.

There are two jobs of one worker and one server, one with a C++ worker and one with a Python worker.
Both live at the same time and are measured in turn. Python makes one pushpull of all tensors, in
memory of the same kind as C++'s and in numpy's own memory, and pushes and pulls tensor by tensor.
The place of a process's memory, which is settled when it starts, has much influence on its speed,
so the processes are started several times.
"""

import os
import statistics

from bench import common
from bench import bench_processes
from cli import progress
from cli import python_package
from cli import setup
from bench.common import Parser, markdown_table, text_table, verdict
from slimps_launch import schema
from slimps_launch import out_files

PROGRAMS = {
    "slimps_scheduler": setup.PROGRAMS["slimps_scheduler"],
    "slimps_server": setup.PROGRAMS["slimps_server"],
    "bench_store": ("//tools/bench/transport:bench_store", "tools/bench/transport/bench_store"),
}
WORKER = os.path.join(setup.REPOSITORY, "tools", "bench", "torch", "bench_python_store.py")
WORKERS = ["C++", "Python", "Python, numpy's memory", "Python, tensor by tensor"]
MOST_MS = 2.0  # a round, and its pushes, may take so much longer from Python
SHAPE = {
    "bench": schema.TEXT,
    "same_host": schema.TEXT,
    "rounds": schema.COUNT,
    "repeats": schema.COUNT,
    "starts": schema.COUNT,
    "results": [
        {
            "worker": schema.one_of(WORKERS),
            "round_ms": schema.POSITIVE,
            "push_ms": schema.NUMBER_OR_NULL,
            "more_ms": schema.NUMBER_OR_NULL,
            "more_ms_of_starts": [schema.NUMBER],
            "more_push_ms": schema.NUMBER_OR_NULL,
        }
    ],
}


def make_parser():
    parser = Parser(
        prog="slimps bench python",
        allow_abbrev=False,
        description="How much longer a round of ResNet-50's 161 tensors takes from Python than "
        "from C++.",
    )
    parser.add_count("--rounds", 100000, 5, "rounds of one measurement")
    parser.add_count(
        "--repeats", 10000, 11, "measurements of each, in turn; a start's figures are the medians"
    )
    parser.add_count("--starts", 1000, 7, "starts of all processes; figures are the medians")
    parser.add_argument("--same_host", choices=("shm", "ipc", "tcp"), default="shm", help="(shm)")
    parser.add_files("daemons and package")
    return parser


class PythonCluster(bench_processes.Cluster):
    def __init__(self, processes, programs, package, same_host):
        super().__init__(
            processes,
            "python",
            programs,
            ["-u", WORKER],
            ["--same_host=" + same_host],
            1,
            1,
            worker_program="python",
        )
        self.package = package

    def environment(self):
        return {"PYTHONPATH": self.package}


def measure(options, programs, package, start, bar):
    """Returns {name: [round ms, push ms or None]}, medians of one start.

    C++ and Python take turns at being started first. `bar` counts the repeats.
    """
    measured = {name: [] for name in WORKERS}
    with bench_processes.Processes() as processes:
        cpp = bench_processes.Cluster(
            processes,
            "C++",
            programs,
            ["--same_host=" + options.same_host],
            ["--same_host=" + options.same_host],
            1,
            1,
        )
        python = PythonCluster(
            processes, dict(programs, python=python_package.PYTHON), package, options.same_host
        )
        first, second = (cpp, python) if start % 2 else (python, cpp)
        with first, second:
            commands = ["model name=resnet50 part_bytes=0", "list", "own", "model"]
            sides = list(zip(WORKERS, [cpp] + 3 * [python], commands))
            for repeat in range(options.repeats + 1):
                for name, cluster, command in sides if repeat % 2 else reversed(sides):
                    answer = cluster.ask("%s rounds=%d" % (command, options.rounds))[0]
                    if repeat:  # the first warms up
                        measured[name].append(
                            [
                                None if seconds is None else 1e3 * seconds / options.rounds
                                for seconds in (answer["seconds"], answer.get("push_seconds"))
                            ]
                        )
                bar.advance()
    return {name: median_of(rows) for name, rows in measured.items()}


def median_of(rows):
    """Returns each column's median; None for a column with a None."""
    return [None if None in column else statistics.median(column) for column in zip(*rows)]


def results_of(starts):
    def more(name, column):
        """Returns each start's difference to C++; empty for C++ itself or if not measured."""
        if name == "C++" or starts[0][name][column] is None:
            return []
        return [start[name][column] - start["C++"][column] for start in starts]

    results = []
    for name in WORKERS:
        round_ms, push_ms = median_of([start[name] for start in starts])
        rounds, pushes = more(name, 0), more(name, 1)
        results.append(
            {
                "worker": name,
                "round_ms": round_ms,
                "push_ms": push_ms,
                "more_ms": statistics.median(rounds) if rounds else None,
                "more_ms_of_starts": rounds,
                "more_push_ms": statistics.median(pushes) if pushes else None,
            }
        )
    return results


HEADINGS = [
    "worker",
    "round ms",
    "more than C++",
    "of starts",
    "bar",
    "of it pushing",
    "more than C++",
    "bar",
]


def cells(row):
    def more(value):
        if value is None:
            return ["", ""]
        return ["%.2f" % value, verdict(value <= MOST_MS, "at most %g ms" % MOST_MS)]

    rounds, of_starts, pushes = (
        more(row["more_ms"]),
        row["more_ms_of_starts"],
        more(row["more_push_ms"]),
    )
    return [
        row["worker"],
        "%.2f" % row["round_ms"],
        rounds[0],
        "%.2f to %.2f" % (min(of_starts), max(of_starts)) if of_starts else "",
        rounds[1],
        "" if row["push_ms"] is None else "%.2f" % row["push_ms"],
    ] + pushes


def about(report):
    return (
        "ResNet-50's 161 tensors, 1 worker, 1 server, %s, medians of %d starts of %d times %d "
        "rounds" % (report["same_host"], report["starts"], report["repeats"], report["rounds"])
    )


def text(report):
    return "\n".join(
        [about(report)] + text_table(HEADINGS, [cells(row) for row in report["results"]])
    )


def markdown(report):
    return "\n".join(
        [about(report) + ".", ""]
        + markdown_table(HEADINGS, [cells(row) for row in report["results"]])
    )


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--json", options.json)
    with common.ending_on_signals():
        programs = common.find_programs(PROGRAMS, options.programs)
        package = (
            os.path.join(options.programs, "python", "package")
            if options.programs
            else python_package.build_package()
        )
        with progress.Bar(options.starts * (options.repeats + 1), "repeats") as bar:
            starts = [
                measure(options, programs, package, start, bar) for start in range(options.starts)
            ]
        report = {
            "bench": "python",
            "same_host": options.same_host,
            "rounds": options.rounds,
            "repeats": options.repeats,
            "starts": options.starts,
            "results": results_of(starts),
        }
    print(text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
