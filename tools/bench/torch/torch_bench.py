# SPDX-License-Identifier: Apache-2.0
"""slimps bench torch: compares PyTorch training through slimps with DDP over gloo, on shaped links.

Workers really train: torchvision's ResNet-18 on images of 32 x 32, with one compute thread each.
Each worker is in a network namespace with a link of its own, with a server beside it. All systems
run in turn, as in slimps bench cluster.
"""

import os
import statistics

from bench.cluster import cluster_job as jobs
from bench.cluster import net
from bench import common
from cli import progress
from cli import python_package
from cli import setup
from bench.common import Parser, markdown_table, name_list, number, text_table, verdict
from slimps_launch import schema
from slimps_launch import out_files

PROGRAMS = {name: setup.PROGRAMS[name] for name in ("slimps_scheduler", "slimps_server")}
WORKER = os.path.join(setup.REPOSITORY, "tools", "bench", "torch", "bench_torch_worker.py")
SYSTEMS = {
    "alone": "no exchange at all: what computing takes",
    "gloo": "DistributedDataParallel over gloo",
    "powersgd": "the same with torch's PowerSGD hook, rank 4, bucket_cap_mb=100",
    "slimps_fp32": "DistributedOptimizer, nothing compressed, waiting",
    "slimps_1bit": "DistributedOptimizer, SlimGC: 1bit, raw pulls, backup model",
    "slimps_1bit_2way": "DistributedOptimizer, SlimGC: 1bit both ways, backup model",
    "slimps_fp32_clipped": "slimps_fp32 with clip_norm: no step before all gradients are there",
    "slimps_1bit_2way_clipped": "slimps_1bit_2way with clip_norm",
}
GLOO_PORT = 7001  # always free: nothing else runs in these namespaces
BARS = {8: 2.0, 64: 0.95}  # batch -> least speed-up of slimps_1bit_2way over gloo
SHAPE = {
    "bench": schema.TEXT,
    "nodes": schema.COUNT,
    "link": schema.TEXT,
    "steps": schema.COUNT,
    "repeats": schema.COUNT,
    "cores": schema.COUNT,
    "threshold": schema.TEXT,
    "results": [
        {
            "system": schema.one_of(list(SYSTEMS)),
            "batch": schema.COUNT,
            "iteration_ms": schema.POSITIVE,
            "samples_per_s": schema.POSITIVE,
            "speedup_over_gloo": schema.NUMBER_OR_NULL,
            "of_alone": schema.NUMBER_OR_NULL,
            "bytes_pushed": schema.NUMBER_OR_NULL,
            "bytes_pulled": schema.NUMBER_OR_NULL,
        }
    ],
}


def make_parser():
    parser = Parser(
        prog="slimps bench torch",
        allow_abbrev=False,
        description="Trains ResNet-18 on nodes that are network namespaces with shaped links "
        "(root), through "
        "slimps and through gloo, one system after the other. Systems: %s." % ", ".join(SYSTEMS),
    )
    parser.add_argument(
        "--link", default="1gbit", metavar="RATE", help="1gbit, 100mbit, ... (1gbit)"
    )
    parser.add_count("--nodes", 64, 2, "number of workers, and of servers")
    parser.add_argument(
        "--batch", type=name_list, default=["8", "64"], metavar="LIST", help="per worker (8,64)"
    )
    parser.add_argument(
        "--systems", type=name_list, default=list(SYSTEMS), metavar="LIST", help="(all)"
    )
    parser.add_count("--steps", 100000, 12, "steps of each job that are measured")
    parser.add_count("--warmup", 100000, 4, "steps before the measured ones")
    parser.add_count("--repeats", 99, 3, "jobs of each system, in turn; figures are the medians")
    parser.add_argument(
        "--threshold",
        default="4096",
        metavar="BYTES",
        help="threshold of slimps' compressed pushes and pulls; auto: measured in the first steps, "
        "so give --warmup 24 (4096)",
    )
    parser.add_argument(
        "--timeout",
        type=number(1, 86400, float),
        default=600.0,
        metavar="S",
        help="seconds that one job may take (600)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        default=python_package.PYTHON,
        help="a Python with torch 2.4 or newer and torchvision (default %(default)s, whose torch "
        "is older on Debian 12)",
    )
    parser.add_files("daemons and package")
    return parser


def settle(parser, options):
    """Checks what argparse cannot check."""
    try:
        net.bits_per_second(options.link)
    except ValueError as error:
        parser.error("--link: %s" % error)
    for name in options.systems:
        if name not in SYSTEMS:
            parser.error("--systems: expected some of %s, got \"%s\"" % (",".join(SYSTEMS), name))
    for batch in options.batch:
        if not (batch.isascii() and batch.isdigit() and 1 <= int(batch) <= 65536):
            parser.error("--batch: expected numbers from 1 to 65536, got \"%s\"" % batch)
    options.batch = [int(batch) for batch in options.batch]
    if options.threshold != "auto" and not (
        options.threshold.isascii() and options.threshold.isdigit()
    ):
        parser.error("--threshold: expected bytes or auto, got \"%s\"" % options.threshold)
    out_files.refuse_unwritable(parser, "--json", options.json)


class TorchJob(jobs.Job):
    """A job whose workers are Python scripts. gloo's systems have no servers."""

    def __init__(self, network, programs, options, package, uses_servers):
        super().__init__(
            network, programs, options.nodes, "together", options.link, timeout=options.timeout
        )
        self.package = package
        self.python = options.python
        self.uses_servers = uses_servers

    def start_daemons(self, root, sizes, folder):
        if self.uses_servers:
            super().start_daemons(root, sizes, folder)

    def worker_command(self, root, rank, report, sizes):
        count = str(self.workers)
        environment = {
            "PYTHONPATH": self.package,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "DMLC_ROLE": "worker",
            "DMLC_PS_ROOT_URI": root,
            "DMLC_PS_ROOT_PORT": str(jobs.PORT),
            "DMLC_NUM_WORKER": count,
            "DMLC_NUM_SERVER": count,
            "RANK": str(rank),
            "WORLD_SIZE": count,
            "MASTER_ADDR": self.network.address(0),
            "MASTER_PORT": str(GLOO_PORT),
            "GLOO_SOCKET_IFNAME": net.INTERFACE,
        }
        return (
            ["env"]
            + ["%s=%s" % item for item in environment.items()]
            + [self.python, "-u", WORKER, "--report=" + report]
        )


def measure(options, network, programs, package):
    """Runs all jobs and returns {(system, batch): one row per job}."""
    jobs = len(options.batch) * options.repeats * len(options.systems)
    with progress.Bar(jobs, "jobs") as bar:
        return measure_all(options, network, programs, package, bar)


def measure_all(options, network, programs, package, bar):
    measured = {}
    for batch in options.batch:
        for repeat in range(options.repeats):
            for system in options.systems:
                job = TorchJob(network, programs, options, package, system.startswith("slimps"))
                reports = job.run(
                    [
                        "--system=" + system,
                        "--batch=%d" % batch,
                        "--warmup=%d" % options.warmup,
                        "--steps=%d" % options.steps,
                        "--threshold=" + options.threshold,
                    ]
                )
                row = {
                    name: statistics.fmean(report[name] for report in reports)
                    for name in reports[0]
                }
                row["iteration_ms"] = max(report["iteration_ms"] for report in reports)
                measured.setdefault((system, batch), []).append(row)
                progress.note(
                    "batch %d, %s, %d of %d: %.1f ms a step"
                    % (batch, system, repeat + 1, options.repeats, row["iteration_ms"])
                )
                bar.advance()
    return measured


def results_of(options, measured):
    medians = {
        key: sorted(rows, key=lambda row: row["iteration_ms"])[(len(rows) - 1) // 2]
        for key, rows in measured.items()
    }
    results = []
    for (system, batch), row in medians.items():
        gloo, alone = medians.get(("gloo", batch)), medians.get(("alone", batch))
        results.append(
            {
                "system": system,
                "batch": batch,
                "link": options.link,
                "iteration_ms": row["iteration_ms"],
                "samples_per_s": 1e3 * batch * options.nodes / row["iteration_ms"],
                "speedup_over_gloo": gloo["iteration_ms"] / row["iteration_ms"] if gloo else None,
                "of_alone": row["iteration_ms"] / alone["iteration_ms"] if alone else None,
                "bytes_pushed": row.get("bytes_pushed"),
                "bytes_pulled": row.get("bytes_pulled"),
                "wait_ms": row.get("wait_ms"),
                "iteration_ms_of_repeats": [
                    job["iteration_ms"] for job in measured[(system, batch)]
                ],
                "says": SYSTEMS[system],
            }
        )
    return results


# ---- tables
# -----------------------------------------------------------------------------------------

HEADINGS = [
    "system",
    "batch",
    "samples/s",
    "step ms",
    "of alone",
    "x gloo",
    "MB pushed",
    "MB pulled",
    "bar",
]


def megabytes(size):
    return "" if size is None else "%.2f" % (size / 1e6)


def cells(row):
    bar = BARS.get(row["batch"]) if row["system"] == "slimps_1bit_2way" else None
    speedup = row["speedup_over_gloo"]
    return [
        row["system"],
        str(row["batch"]),
        "%.1f" % row["samples_per_s"],
        "%.1f" % row["iteration_ms"],
        common.ratio(row["of_alone"]),
        common.ratio(speedup),
        megabytes(row["bytes_pushed"]),
        megabytes(row["bytes_pulled"]),
        verdict(speedup >= bar, "%.2f x" % bar) if bar and speedup else "",
    ]


def about(report):
    return "%d nodes, %s, ResNet-18 on 32 x 32, %d steps, medians of %d, threshold %s, %d cores" % (
        report["nodes"],
        report["link"],
        report["steps"],
        report["repeats"],
        report["threshold"],
        report["cores"],
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
    settle(parser, options)
    with common.ending_on_signals():
        reason = net.why_not("cubic")
        if reason:
            raise setup.SetupError(reason)
        programs = common.find_programs(PROGRAMS, options.programs)
        package = (
            os.path.join(options.programs, "python", "package")
            if options.programs
            else python_package.ensure_package()
        )
        report = {
            "bench": "torch " + options.link,
            "link": options.link,
            "nodes": options.nodes,
            "steps": options.steps,
            "repeats": options.repeats,
            "threshold": options.threshold,
            "cores": len(os.sched_getaffinity(0)),
        }
        with net.Network(options.nodes) as network:
            report["results"] = results_of(options, measure(options, network, programs, package))
    print(text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
