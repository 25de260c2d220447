# SPDX-License-Identifier: Apache-2.0
"""slimps bench gpu: compression on the GPU and offloaded to the CPU, as in SlimGC's section 4.6.

Each job trains a model on random samples: one process by itself, which tells what a system takes of
the GPU, and then two processes, beside DistributedDataParallel. Jobs run one after the other. Where
no GPU is, the bench says so and ends well.
"""

import collections
import json
import os
import statistics
import subprocess
import tempfile

from bench import bench_processes
from bench import common
from bench.gpu import gpu_tables
from cli import progress
from cli import python_package
from cli import setup
from bench.common import Parser, name_list, number
from slimps_launch import job_node
from slimps_launch import out_files

PROGRAMS = {
    "slimps_scheduler": setup.PROGRAMS["slimps_scheduler"],
    "slimps_server": setup.PROGRAMS["slimps_server"],
    # It is no program, but Bazel marks all that it makes as executable.
    "kernels": ("//tools/bench/gpu:levels_kernels_ptx", "tools/bench/gpu/levels_kernels.ptx"),
}
WORKER = os.path.join(setup.REPOSITORY, "tools", "bench", "gpu", "gpu_worker.py")
MODELS = ["resnet50", "transformer", "small_resnet", "small_transformer"]  # of gpu_models.py
Job = collections.namedtuple("Job", "model system workers")


def make_parser():
    parser = Parser(
        prog="slimps bench gpu",
        allow_abbrev=False,
        description="What compression takes of a GPU, on it and offloaded, and the time of a step "
        "beside DDP. Needs a torch with CUDA and a GPU; says so where there is none. Systems: %s."
        % ", ".join(gpu_tables.SYSTEMS),
    )
    parser.add_argument(
        "--models",
        type=name_list,
        default=MODELS[:2],
        metavar="LIST",
        help="of %s (%s)" % (", ".join(MODELS), ",".join(MODELS[:2])),
    )
    parser.add_argument(
        "--systems", type=name_list, default=list(gpu_tables.SYSTEMS), metavar="LIST", help="(all)"
    )
    parser.add_count("--batch", 65536, 32, "samples of a step of each process")
    parser.add_count("--warmup", 100000, 10, "steps before the measured ones")
    parser.add_count("--steps", 100000, 20, "steps of a repeat")
    parser.add_count("--repeats", 999, 5, "repeats in each job; figures are the medians")
    parser.add_argument(
        "--threshold",
        type=number(0, 1 << 40, int),
        default=4096,
        metavar="BYTES",
        help="of slimps' compression (4096)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small models and few steps: to see that it works"
    )
    parser.add_argument(
        "--timeout",
        type=number(1, 86400, float),
        default=600.0,
        metavar="S",
        help="seconds that one job's steps may take (600)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        default=python_package.PYTHON,
        help="a Python whose torch has CUDA (default %(default)s, whose torch has not on Debian)",
    )
    parser.add_files("daemons, kernels and package")
    return parser


def settle(parser, options):
    """Checks what argparse cannot check."""
    for flag, given, known in (
        ("--models", options.models, MODELS),
        ("--systems", options.systems, list(gpu_tables.SYSTEMS)),
    ):
        for name in given:
            if name not in known:
                parser.error("%s: expected some of %s, got \"%s\"" % (flag, ",".join(known), name))
    if options.quick:
        options.models = MODELS[2:]
        options.batch, options.warmup, options.steps, options.repeats = 4, 1, 2, 2
    out_files.refuse_unwritable(parser, "--json", options.json)


def look(python):
    """Returns what gpu_worker.py --about says.

    SetupError: the Python cannot be run.
    """
    try:
        asked = subprocess.run(
            [python, WORKER, "--about"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=job_node.die_with_parent(),
        )
    except OSError as error:
        raise setup.SetupError("cannot run %s: %s" % (python, error.strerror)) from error
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines()[-1:] or ["status %d" % asked.returncode]
        return {"why_not": "%s: %s" % (python, said[0])}
    return json.loads(asked.stdout)


# ---- jobs
# -------------------------------------------------------------------------------------------


class GpuCluster(bench_processes.Cluster):
    def environment(self):
        return {"PYTHONPATH": self.programs["package"]}


class Jobs:
    """Runs jobs on the GPU that `about` describes."""

    def __init__(self, options, programs, package, about):
        self.options = options
        self.programs = dict(programs, python=options.python, package=package)
        self.gpus = about["gpus"]

    def backend(self):
        """Returns what DDP goes over: NCCL needs a GPU for each process."""
        return "nccl" if self.gpus >= gpu_tables.TOGETHER else "gloo"

    def run(self, job):
        """Returns the answers of the job's workers."""
        with bench_processes.Processes() as processes:
            start = self._in_cluster if job.system.startswith("slimps") else self._by_themselves
            return start(processes, job)

    def _worker(self, job):
        options = self.options
        return [
            "-u",
            WORKER,
            "--system=" + job.system,
            "--model=" + job.model,
            "--batch=%d" % options.batch,
            "--warmup=%d" % options.warmup,
            "--steps=%d" % options.steps,
            "--repeats=%d" % options.repeats,
            "--threshold=%d" % options.threshold,
            "--gpus=%d" % self.gpus,
            "--kernels=" + self.programs["kernels"],
        ]

    def _in_cluster(self, processes, job):
        name, workers, servers = job.system, job.workers, 1
        with GpuCluster(
            processes, name, self.programs, self._worker(job), [], workers, servers, "python"
        ) as cluster:
            return processes.ask(cluster.workers, "run", self.options.timeout)

    def _by_themselves(self, processes, job):
        with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
            group = [
                "--world=%d" % job.workers,
                "--backend=" + self.backend(),
                "--meeting=" + os.path.join(folder, "meeting"),
            ]
            workers = [
                processes.start(
                    "worker%d of the job %s" % (rank, job.system),
                    [self.options.python] + self._worker(job) + group + ["--rank=%d" % rank],
                )
                for rank in range(job.workers)
            ]
            processes.answers(workers, "word that it is ready")
            answers = processes.ask(workers, "run", self.options.timeout)
            processes.finish(workers, [])
            return answers


def row_of(job, answers):
    """Returns a row of the report: of several workers' figures the largest."""
    row = {"model": job.model, "system": job.system, "workers": job.workers}
    reasons = [answer["why_not"] for answer in answers if "why_not" in answer]
    if reasons:
        return dict(row, why_not=reasons[0])
    slowest = max(answers, key=lambda answer: statistics.median(answer["step_ms_of_repeats"]))
    row["step_ms"] = statistics.median(slowest["step_ms_of_repeats"])
    row["step_ms_of_repeats"] = slowest["step_ms_of_repeats"]
    for figure in gpu_tables.FIGURES:
        values = [answer[figure] for answer in answers if figure in answer]
        row[figure] = max(values) if values else None
    return row


def jobs_of(options):
    return [
        Job(model, system, workers)
        for model in options.models
        for workers in (1, gpu_tables.TOGETHER)
        for system in options.systems
        if workers in gpu_tables.SYSTEMS[system].workers
    ]


def measure(options, about):
    """Runs all jobs and returns the report."""
    programs = common.find_programs(PROGRAMS, options.programs)
    package = (
        os.path.join(options.programs, "python", "package")
        if options.programs
        else python_package.build_package()
    )
    jobs = Jobs(options, programs, package, about)
    results = []
    wanted = jobs_of(options)
    with progress.Bar(len(wanted), "jobs") as bar:
        for job in wanted:
            results.append(row_of(job, jobs.run(job)))
            ended = results[-1].get("why_not") or "%.1f ms a step" % results[-1]["step_ms"]
            progress.note("%s, %s, %d workers: %s" % (job + (ended,)))
            bar.advance()
    settings = {name: getattr(options, name) for name in gpu_tables.SETTINGS}
    return dict(about, bench="gpu", backend=jobs.backend(), **settings, results=results)


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    settle(parser, options)
    with common.ending_on_signals():
        about = look(options.python)
        if "why_not" in about:
            report = {"bench": "gpu", "gpu": None, "why_not": about["why_not"], "results": []}
        else:
            report = measure(options, about)
    print(gpu_tables.text(report), flush=True)
    if options.json:
        out_files.save_json(options.json, report)
    return 0
