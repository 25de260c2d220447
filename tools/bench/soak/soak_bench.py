# SPDX-License-Identifier: Apache-2.0
"""slimps bench soak: trains for very many rounds and measures how each process's memory grows.

It runs a job of real processes on this machine: a scheduler, servers and workers. Pushes and pulls
are compressed, thresholds are measured again and again, and workers use the backup model. Every so
many rounds it reads each process's resident memory from /proc. The result is the growth after a
tenth of the rounds, when everything that is made only once is there, and what a round takes. With
snapshots that shows what they cost, and what workers keep for servers that are started again.
"""

import sys
import tempfile
import time

from bench import common
from bench import bench_processes
from cli import progress
from cli import setup
from bench.common import Parser, number
from slimps_launch import out_files

PROGRAMS = {
    "slimps_scheduler": setup.PROGRAMS["slimps_scheduler"],
    "slimps_server": setup.PROGRAMS["slimps_server"],
    "bench_soak_worker": (
        "//tools/bench/soak:bench_soak_worker",
        "tools/bench/soak/bench_soak_worker",
    ),
}
MARKS = 20  # each process's memory is read at least so many times
ROUND_SECONDS = 2.0  # a round that takes longer counts as stuck
# Flags that are passed on to the workers.
TRAINING = ("tensors", "compression", "threshold", "remeasure_every", "backup_model", "same_host")


# ---- flags
# ------------------------------------------------------------------------------------------


def make_parser():
    parser = Parser(
        prog="slimps bench soak",
        allow_abbrev=False,
        description="Trains for many rounds on this machine and tells by how much the memory of "
        "scheduler, servers and workers grows. Exit status 1: one grew by more than --most_growth, "
        "or the workers' weights differ.",
    )
    parser.add_argument(
        "--rounds", type=number(1, 1000000000, int), default=10000, metavar="N", help="(10000)"
    )
    parser.add_argument("--workers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    parser.add_argument("--servers", type=number(1, 64, int), default=1, metavar="N", help="(1)")
    parser.add_argument(
        "--tensors",
        default="2x262144,4x65536,48x256",
        metavar="LIST",
        help="COUNTxELEMENTS,... (2x262144,4x65536,48x256)",
    )
    parser.add_argument(
        "--compression", default="1bit", metavar="SPEC", help="of pushes and pulls (1bit)"
    )
    parser.add_argument(
        "--threshold",
        default="auto",
        metavar="BYTES",
        help="tensors of at least so many bytes are compressed, or auto: as measured (auto)",
    )
    parser.add_argument(
        "--remeasure_every",
        type=int,
        default=50,
        metavar="N",
        help="rounds after which a measured threshold is measured again (50)",
    )
    parser.add_argument("--backup_model", choices=("true", "false"), default="true", help="(true)")
    parser.add_argument("--same_host", choices=("shm", "ipc", "tcp"), default="shm", help="(shm)")
    parser.add_argument(
        "--snapshot_every",
        type=number(0, 1000000, int),
        default=0,
        metavar="S",
        help="seconds between two snapshots of a server, which then may be started again (0: none)",
    )
    parser.add_argument(
        "--most_growth",
        type=number(0, 1e9, float),
        default=8.0,
        metavar="MIB",
        help="how much a process's memory may grow after a tenth of the rounds (8)",
    )
    parser.add_files()
    return parser


def settle(parser, options):
    """Checks what argparse cannot check."""
    if options.remeasure_every != 0 and not 8 <= options.remeasure_every <= 10**6:
        parser.error(
            "--remeasure_every: expected 0 or 8 to 1000000, got %d" % options.remeasure_every
        )
    if options.threshold != "auto" and not (
        options.threshold.isascii() and options.threshold.isdigit()
    ):
        parser.error("--threshold: expected bytes or auto, got '%s'" % options.threshold)
    out_files.refuse_unwritable(parser, "--json", options.json)


# ---- the job
# ----------------------------------------------------------------------------------------


def worker_flags(options, say_every):
    values = {name: getattr(options, name) for name in TRAINING}
    values["threshold"] = -1 if options.threshold == "auto" else options.threshold
    return ["--%s=%s" % item for item in values.items()] + [
        "--rounds=%d" % options.rounds,
        "--say_every=%d" % say_every,
    ]


def resident_bytes(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as text:
        return next((int(line.split()[1]) << 10 for line in text if line.startswith("VmRSS:")), 0)


def run(options, programs, bar):
    """Runs the job, and shows in `bar` how many rounds are done.

    Returns ({name: [(round, resident bytes)]}, [(round, seconds)], the workers' last answers).
    """
    say_every = max(1, options.rounds // MARKS)
    samples, times = {}, []
    with tempfile.TemporaryDirectory(
        prefix="slimps-soak-"
    ) as folder, bench_processes.Processes() as processes:
        scheduler, server = bench_processes.snapshot_flags(folder, options.snapshot_every)
        cluster = bench_processes.Cluster(
            processes,
            "soak",
            programs,
            worker_flags(options, say_every),
            ["--same_host=" + options.same_host] + server,
            options.workers,
            options.servers,
            worker_program="bench_soak_worker",
            scheduler_flags=scheduler,
        )
        with cluster:
            nodes = [(node.name.split()[0], node) for node in cluster.daemons + cluster.workers]
            seconds = 60 + ROUND_SECONDS * say_every
            reached = 0
            while reached < options.rounds:
                answers = processes.ask(cluster.workers, "go", seconds)
                reached = answers[0]["round"]
                times.append((reached, time.monotonic()))
                for name, node in nodes:
                    samples.setdefault(name, []).append((reached, resident_bytes(node.process.pid)))
                progress.note(
                    "round %d: %s MiB"
                    % (
                        reached,
                        ", ".join(
                            "%s %.1f" % (name, points[-1][1] / 2**20)
                            for name, points in samples.items()
                        ),
                    )
                )
                bar.reach(reached, options.rounds)
    return samples, times, answers


# ---- the figures
# ------------------------------------------------------------------------------------


def slope(points):
    """Returns the slope of the least-squares line, in bytes per round."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def steady_of(points, rounds):
    """Returns the (round, value) from a tenth of the rounds on, or the last one."""
    return [point for point in points if point[0] >= rounds / 10] or points[-1:]


def round_ms(times, rounds):
    """Returns what a round takes from a tenth of the rounds on; None if that was not measured."""
    (first, began), (last, ended) = (steady_of(times, rounds)[i] for i in (0, -1))
    return round(1000 * (ended - began) / (last - first), 3) if last > first else None


def growth_of(name, points, rounds):
    """Returns a row of the report. Growth counts from a tenth of the rounds on."""
    steady = steady_of(points, rounds)
    return {
        "process": name,
        "from_round": steady[0][0],
        "start_bytes": steady[0][1],
        "to_round": steady[-1][0],
        "end_bytes": steady[-1][1],
        "growth_bytes": steady[-1][1] - steady[0][1],
        "bytes_per_1000_rounds": round(1000 * slope(steady)),
        "most_bytes": max(size for _, size in points),
        "samples": [{"round": at, "resident_bytes": size} for at, size in points],
    }


def report_of(options, samples, times, last_words):
    return {
        "bench": "soak",
        "rounds": options.rounds,
        "workers": options.workers,
        "servers": options.servers,
        **{name: getattr(options, name) for name in TRAINING},
        "snapshot_every": options.snapshot_every,
        "round_ms": round_ms(times, options.rounds),
        "workers_are_identical": len({words["weights_hash"] for words in last_words}) == 1,
        "worker0": {name: value for name, value in last_words[0].items() if name != "round"},
        "results": [growth_of(name, points, options.rounds) for name, points in samples.items()],
    }


def table(report):
    lines = [
        "%d rounds, %d workers, %d servers, %s, threshold %s, %s%s%s"
        % (
            report["rounds"],
            report["workers"],
            report["servers"],
            report["compression"],
            report["threshold"],
            report["same_host"],
            ", a snapshot every %d s" % report["snapshot_every"]
            if report["snapshot_every"]
            else "",
            "" if report["round_ms"] is None else "; %.3f ms a round" % report["round_ms"],
        ),
        "  process     MiB at round  MiB at round   grew KiB  KiB in 1000 rounds",
    ]
    for row in report["results"]:
        lines.append(
            "  %-10s %6.1f %6d %6.1f %6d %9.0f %18.1f"
            % (
                row["process"],
                row["start_bytes"] / 2**20,
                row["from_round"],
                row["end_bytes"] / 2**20,
                row["to_round"],
                row["growth_bytes"] / 1024,
                row["bytes_per_1000_rounds"] / 1024,
            )
        )
    return "\n".join(lines)


def judge(report, most_growth):
    """Returns a line for each thing that is wrong."""
    wrong = [
        "%s grew by %.1f MiB from round %d to round %d, expected at most %g"
        % (
            row["process"],
            row["growth_bytes"] / 2**20,
            row["from_round"],
            row["to_round"],
            most_growth,
        )
        for row in report["results"]
        if row["growth_bytes"] > most_growth * 2**20
    ]
    if not report["workers_are_identical"]:
        wrong.append("the workers' weights differ")
    return wrong


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    settle(parser, options)
    with common.ending_on_signals():
        programs = common.find_programs(PROGRAMS, options.programs)
        with progress.Bar(options.rounds, "rounds") as bar:
            measured = run(options, programs, bar)
    report = report_of(options, *measured)
    print(table(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    wrong = judge(report, options.most_growth)
    for line in wrong:
        print("slimps bench: " + line, file=sys.stderr)
    return 1 if wrong else 0
