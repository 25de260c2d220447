# SPDX-License-Identifier: Apache-2.0
"""slimps bench torch: compares PyTorch training through slimps with DDP over gloo, on shaped links.

Workers really train: torchvision's ResNet-18 on images of 32 x 32, with one compute thread each. Or
with --accelerator they have ResNet-50's tensors, and wait instead of computing. Each worker is in a
network namespace with a link of its own, with a server beside it. All systems run in turn, as in
slimps bench cluster.
"""

import os

from bench.cluster import cluster_job as jobs
from bench.cluster import cluster_options
from bench.cluster import net
from bench.link import round_trip
from bench import common
from bench.torch import torch_systems
from bench.torch import torch_tables as tables
from cli import progress
from cli import python_package
from cli import setup
from bench.common import Parser, name_list, number
from plan import models
from slimps_launch import out_files

PROGRAMS = {name: setup.PROGRAMS[name] for name in ("slimps_scheduler", "slimps_server")}
WORKER = os.path.join(setup.REPOSITORY, "tools", "bench", "torch", "bench_torch_worker.py")
GLOO_PORT = 7001  # always free: nothing else runs in these namespaces


def make_parser():
    parser = Parser(
        prog="slimps bench torch",
        allow_abbrev=False,
        description="Trains ResNet-18 on nodes that are network namespaces with shaped links "
        "(root), through slimps and through gloo, one system after the other. Systems: %s. With "
        "--accelerator: %s."
        % (", ".join(torch_systems.TRAINED), ", ".join(torch_systems.WAITED_FOR)),
    )
    parser.add_argument(
        "--accelerator",
        type=number(1, 3.6e6, float),
        metavar="MS",
        help="instead of training, exchange ResNet-50's tensors beside an accelerator that takes "
        "so long for a step and is waited for; figures are medians of steps",
    )
    parser.add_argument(
        "--link", default="1gbit", metavar="RATE", help="1gbit, 100mbit, ..., or unshaped (1gbit)"
    )
    round_trip.add_flag(parser)
    parser.add_count("--nodes", 64, 2, "number of workers, and of servers")
    parser.add_argument("--batch", type=name_list, metavar="LIST", help="per worker (8,64)")
    parser.add_argument("--systems", type=name_list, metavar="LIST", help="(all)")
    parser.add_argument(
        "--steps",
        type=number(1, 100000, int),
        metavar="N",
        help="steps of each job that are measured (12; with --accelerator 30)",
    )
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
        help="a Python with torch 2.4 or newer, and with torchvision unless --accelerator is given "
        "(default %(default)s, whose torch is older on Debian 12)",
    )
    parser.add_files("daemons and package")
    return parser


def settle(parser, options):
    """Checks what argparse cannot check, and sets what depends on --accelerator."""
    try:
        options.bits = cluster_options.bits(options.link)
    except ValueError as error:
        parser.error("--link: %s" % error)
    waits = options.accelerator is not None
    options.steps = options.steps or (30 if waits else 12)
    known = list(torch_systems.compared(options.accelerator))
    options.systems = options.systems or known
    for name in options.systems:
        if name not in known:
            parser.error("--systems: expected some of %s, got \"%s\"" % (",".join(known), name))
    if waits and options.batch:
        parser.error("--batch: expected none with --accelerator, which says how long a step takes")
    options.batch = options.batch or ["8", "64"]
    for batch in options.batch:
        if not (batch.isascii() and batch.isdigit() and 1 <= int(batch) <= 65536):
            parser.error("--batch: expected numbers from 1 to 65536, got \"%s\"" % batch)
    options.batch = [None] if waits else [int(batch) for batch in options.batch]
    if options.threshold != "auto" and not (
        options.threshold.isascii() and options.threshold.isdigit()
    ):
        parser.error("--threshold: expected bytes or auto, got \"%s\"" % options.threshold)
    out_files.refuse_unwritable(parser, "--json", options.json)


class TorchJob(jobs.Job):
    """A job whose workers are Python scripts. gloo's systems have no servers."""

    def __init__(self, network, programs, options, package, system):
        super().__init__(
            network, programs, options.nodes, "together", options.link, timeout=options.timeout
        )
        self.package = package
        self.python = options.python
        self.uses_servers = system.exchange == "slimps"
        if options.accelerator is not None:
            self.scheduler_node = 0

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
        # Its process does not change: what runs it in the namespace becomes it.
        daemons = [str(daemon.popen.pid) for daemon in self.daemons]
        return (
            ["env"]
            + ["%s=%s" % item for item in environment.items()]
            + [self.python, "-u", WORKER, "--report=" + report, "--interface=" + net.INTERFACE]
            + (["--daemons"] + daemons if rank == 0 else [])
        )


def measure(options, network, programs, package, cores):
    """Runs all jobs and returns {(system, batch): their figures}."""
    measured = {}
    cases = [
        (batch, repeat, system)
        for batch in options.batch
        for repeat in range(options.repeats)
        for system in options.systems
    ]
    with progress.Bar(len(cases), "jobs") as bar:
        for batch, repeat, name in cases:
            system = torch_systems.compared(options.accelerator)[name]
            job = TorchJob(network, programs, options, package, system)
            reports = job.run(worker_flags(options, programs, name, batch))
            figures = tables.figures_of(reports, options.accelerator, options.bits, cores)
            measured.setdefault((name, batch), []).append(figures)
            progress.note(
                "%s%s, %d of %d: %.1f ms a step"
                % (
                    "batch %d, " % batch if batch else "",
                    name,
                    repeat + 1,
                    options.repeats,
                    figures["iteration_ms"],
                )
            )
            bar.advance()
    return measured


def worker_flags(options, programs, system, batch):
    if options.accelerator is None:
        kind = ["--batch=%d" % batch]
    else:
        kind = [
            "--accelerator=%r" % options.accelerator,
            "--describe_model=" + programs["describe_model"],
        ]
    return kind + [
        "--system=" + system,
        "--warmup=%d" % options.warmup,
        "--steps=%d" % options.steps,
        "--threshold=" + options.threshold,
    ]


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    settle(parser, options)
    waits = options.accelerator is not None
    with common.ending_on_signals():
        reason = net.why_not("cubic")
        if reason:
            raise setup.SetupError(reason)
        programs = common.find_programs(
            PROGRAMS | (models.PROGRAM if waits else {}) | round_trip.program(options),
            options.programs,
        )
        package = (
            os.path.join(options.programs, "python", "package")
            if options.programs
            else python_package.build_package()
        )
        report = {
            "bench": "torch " + options.link + round_trip.name_of(options),
            "link": options.link,
            "nodes": options.nodes,
            "steps": options.steps,
            "repeats": options.repeats,
            "threshold": options.threshold,
            "cores": len(os.sched_getaffinity(0)),
        }
        if waits:
            report["bench"] += " accelerator %d nodes" % options.nodes
            report["accelerator_ms"] = options.accelerator
        with net.Network(options.nodes, switch=round_trip.switch_of(options, programs)) as network:
            report.update(round_trip.measure(network, options))
            measured = measure(options, network, programs, package, report["cores"])
            report.update(round_trip.losses(network, options))
        report["results"] = tables.results_of(options, measured)
    print(tables.text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
