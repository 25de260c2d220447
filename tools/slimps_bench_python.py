"""slimps bench python: a round of ResNet-50's tensors pushed and pulled from Python, beside the same from C++.

Two jobs of one worker and one server, one worker in C++ and one in Python, alive together and asked in turn. From Python
once as one pushpull of all tensors, once as pushes and pulls tensor by tensor.
"""

import os
import statistics

import slimps_bench_common
import slimps_bench_processes
import slimps_bench_schema as schema
import slimps_files
import slimps_python
import slimps_setup
from slimps_bench_common import Parser, markdown_table, number, text_table, verdict

PROGRAMS = {
    "slimps_scheduler": slimps_setup.PROGRAMS["slimps_scheduler"],
    "slimps_server": slimps_setup.PROGRAMS["slimps_server"],
    "bench_store": ("//tools/bench/transport:bench_store", "tools/bench/transport/bench_store"),
}
WORKER = os.path.join(slimps_setup.REPOSITORY, "tools", "bench", "torch", "bench_python_store.py")
WORKERS = ["C++", "Python", "Python, tensor by tensor"]
MOST_MS = 2.0  # that a round may take longer from Python
SHAPE = {"bench": schema.TEXT, "same_host": schema.TEXT, "rounds": schema.COUNT, "repeats": schema.COUNT, "results": [{
    "worker": schema.one_of(WORKERS), "round_ms": schema.POSITIVE, "push_ms": schema.NUMBER_OR_NULL,
    "more_ms": schema.NUMBER_OR_NULL}]}


def make_parser():
    parser = Parser(prog="slimps bench python", allow_abbrev=False,
                    description="How much longer a round of ResNet-50's 161 tensors takes from Python than from C++.")
    parser.add_argument("--rounds", type=number(1, 100000, int), default=5, metavar="N", help="of one measurement (5)")
    parser.add_argument("--repeats", type=number(1, 10000, int), default=21, metavar="N",
                        help="measurements of each, in turn; figures are the medians (21)")
    parser.add_argument("--same_host", choices=("shm", "ipc", "tcp"), default="shm", help="(shm)")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--programs", metavar="FOLDER", help="where daemons and package are built already (bazel-bin)")
    return parser


class PythonCluster(slimps_bench_processes.Cluster):
    def __init__(self, processes, programs, package, same_host):
        super().__init__(processes, "python", programs, ["-u", WORKER], ["--same_host=" + same_host], 1, 1,
                         worker_program="python")
        self.package = package

    def environment(self):
        return {"PYTHONPATH": self.package}


def measure(options, programs, package):
    """name -> [(round ms, push ms or None)]"""
    measured = {name: [] for name in WORKERS}
    with slimps_bench_processes.Processes() as processes:
        cpp = slimps_bench_processes.Cluster(
            processes, "C++", programs, ["--same_host=" + options.same_host], ["--same_host=" + options.same_host], 1, 1)
        python = PythonCluster(processes, dict(programs, python=slimps_python.PYTHON), package, options.same_host)
        with cpp, python:
            sides = [("C++", cpp, "model name=resnet50 part_bytes=0 rounds=%d" % options.rounds),
                     ("Python", python, "list rounds=%d" % options.rounds),
                     ("Python, tensor by tensor", python, "model rounds=%d" % options.rounds)]
            for repeat in range(options.repeats + 1):
                for name, cluster, command in sides if repeat % 2 else reversed(sides):
                    answer = cluster.ask(command)[0]
                    if repeat:  # the first warms up
                        pushing = answer.get("push_seconds")
                        measured[name].append((1e3 * answer["seconds"] / options.rounds,
                                               None if pushing is None else 1e3 * pushing / options.rounds))
    return measured


def results_of(measured):
    def median(name, place):
        values = [row[place] for row in measured[name]]
        return None if None in values else statistics.median(values)
    return [{"worker": name, "round_ms": median(name, 0), "push_ms": median(name, 1),
             "more_ms": median(name, 0) - median("C++", 0) if name != "C++" else None} for name in measured]


HEADINGS = ["worker", "round ms", "of it pushing", "more than C++", "bar"]


def cells(row):
    more = row["more_ms"]
    return [row["worker"], "%.2f" % row["round_ms"], "" if row["push_ms"] is None else "%.2f" % row["push_ms"],
            "" if more is None else "%.2f" % more,
            "" if more is None else verdict(more <= MOST_MS, "at most %g ms" % MOST_MS)]


def about(report):
    return "ResNet-50's 161 tensors, 1 worker, 1 server, %s, medians of %d times %d rounds" % (
        report["same_host"], report["repeats"], report["rounds"])


def text(report):
    return "\n".join([about(report)] + text_table(HEADINGS, [cells(row) for row in report["results"]]))


def markdown(report):
    return "\n".join([about(report) + ".", ""] + markdown_table(HEADINGS, [cells(row) for row in report["results"]]))


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    slimps_files.refuse_unwritable(parser, "--json", options.json)
    with slimps_bench_common.ending_on_signals():
        programs = slimps_bench_common.find_programs(PROGRAMS, options.programs)
        package = (os.path.join(options.programs, "python", "package") if options.programs
                   else slimps_python.ensure_package())
        report = {"bench": "python", "same_host": options.same_host, "rounds": options.rounds, "repeats": options.repeats,
                  "results": results_of(measure(options, programs, package))}
    print(text(report), flush=True)
    if options.json:
        slimps_files.save_json(options.json, report)
    return 0
