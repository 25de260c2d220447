# SPDX-License-Identifier: Apache-2.0
"""Five runs on real data over a slow link: fp32, bf16, a plain codec, SlimGC, SlimGC both ways."""

import argparse
import os
import re
import sys

from cli import curves_svg
from cli import setup
from cli import training_job
from slimps_launch import out_files
from slimps_launch import job_trace
from slimps_launch import watched

LINK = "100mbit"
WORKERS = 2
SERVERS = 2
TRAINING = [
    "--model",
    "mlp",
    "--dataset",
    "digits",
    "--epochs",
    "9",
    "--batch",
    "32",
    "--optimizer",
    "sgd",
    "--emulate_link",
    LINK,
    "--evaluate_epochs",
]
USUAL_LR = 0.2
# Codecs that need another rate: with signsgd, the majority of signs moves each weight by the whole
# rate.
LR_OF_CODEC = {"signsgd": 0.001}
# The codecs that cannot compress pulls, and the codec used instead for pulls:
# docs/decisions/compression-and-the-rest.md.
ONLY_FOR_PUSHES = re.compile(r"(signsgd|dgc)\b|.*\bmomentum=")
INSTEAD_FOR_PULLS = "1bit"
BOTH_WAYS = "slimgc_2way"
ROW_FIELDS = ("bytes", "t_c_ms", "t_cq_ms", "t_pq_ms", "t_q_ms", "gain")
EPOCH_FIELDS = ("steps", "seconds", "bytes_pushed", "bytes_pulled", "test_accuracy")


def codec_name(compression):
    return compression.split(":")[0]


def plan_runs(compression, lr=None):
    """Returns [(name, meaning, flags)] of the runs."""
    name = codec_name(compression)
    lr = str(LR_OF_CODEC.get(name, USUAL_LR) if lr is None else lr)
    if compression == "1bit":
        plain = "every gradient compressed to 1 bit per element"
        under = "1 bit from the measured threshold on"
    else:
        plain = "every gradient compressed by " + compression
        under = compression + " from the measured threshold on"
    pulls = INSTEAD_FOR_PULLS if ONLY_FOR_PUSHES.match(compression) else compression
    slimgc = [
        "--compression",
        compression,
        "--threshold",
        "auto",
        "--backup_model",
        "on",
        "--lr",
        lr,
    ]
    runs = [
        (
            "fp32",
            "everything in full precision",
            ["--compression", "none", "--backup_model", "off", "--lr", str(USUAL_LR)],
        ),
        (
            "bf16",
            "gradients and weights in half precision, which costs no accuracy: what compression is "
            "to beat",
            [
                "--compression",
                "bf16",
                "--threshold",
                "0",
                "--pull_compression",
                "bf16",
                "--pull_threshold",
                "0",
                "--backup_model",
                "off",
                "--lr",
                str(USUAL_LR),
            ],
        ),
        (
            name,
            plain,
            ["--compression", compression, "--threshold", "0", "--backup_model", "off", "--lr", lr],
        ),
        ("slimgc", under + ", training goes on while gradients travel", slimgc),
        (
            BOTH_WAYS,
            "the same, and the way back compressed too, by " + pulls,
            slimgc + ["--pull_compression", pulls],
        ),
    ]
    # If the compression asked for is bf16, it replaces the usual bf16 run.
    return [run for number, run in enumerate(runs) if number != 1 or name != "bf16"]


def check_runs(worker, runs, seed):
    """Raises SetupError for flags that a worker would refuse, before anything is started."""
    for _, _, flags in runs:
        complaint = training_job.why_refused(worker, TRAINING + flags + ["--seed", str(seed)])
        if complaint:
            raise setup.SetupError("demo: " + complaint)


def human_bytes(count):
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return "%.4g %s" % (count, unit)
        count /= 1000.0
    return "%.4g GB" % count


def run_one(programs, name, flags, options, environment=None):
    """Trains once and returns the summary that worker rank 0 wrote."""
    page = [] if options.page_port is None else ["--page_port", str(options.page_port)]
    shown = (
        ["worker0", "scheduler"] if page else ["worker0"]
    )  # the scheduler says where the page is
    with watched.file_of_job(options, os.environ) as file_flags:
        return training_job.run(
            programs,
            training_job.Training(
                name, tuple(TRAINING + flags + ["--seed", str(options.seed)]), WORKERS, SERVERS
            ),
            show=lambda node: options.verbose or node.name in shown,
            verbose=options.verbose,
            environment=environment,
            scheduler_flags=page + file_flags,
        )


def as_run(name, summary):
    """Returns what --json holds for one run."""
    table = summary.get("threshold_table") or []
    rows = summary.get("after_epoch") or []
    return {
        "name": name,
        "test_accuracy": summary["test_accuracy"],
        "seconds": summary["seconds"],
        "bytes_pushed": summary["bytes_pushed"],
        "bytes_pulled": summary["bytes_pulled"],
        "threshold_bytes": summary.get("threshold_bytes"),
        "threshold_table": [{field: row[field] for field in ROW_FIELDS} for row in table],
        "after_epoch": [{field: row[field] for field in EPOCH_FIELDS} for row in rows],
    }


def table_text(runs):
    """Returns a table of the runs. The ratio is fp32's pushed bytes to the run's."""
    width = max([8] + [len(run["name"]) for run in runs])
    lines = [
        "%-*s %14s %9s %12s %12s %18s"
        % (width, "run", "test accuracy", "seconds", "pushed", "pulled", "compression ratio")
    ]
    full = next((run["bytes_pushed"] for run in runs if run["name"] == "fp32"), 0)
    for run in runs:
        ratio = full / run["bytes_pushed"] if run["bytes_pushed"] else float("nan")
        lines.append(
            "%-*s %12.2f %% %9.1f %12s %12s %16.1f x"
            % (
                width,
                run["name"],
                100 * run["test_accuracy"],
                run["seconds"],
                human_bytes(run["bytes_pushed"]),
                human_bytes(run["bytes_pulled"]),
                ratio,
            )
        )
    return "\n".join(lines)


def gain_text(runs):
    """Returns a line that says what compression both ways gained."""
    by_name = {run["name"]: run for run in runs}
    best, full, half = by_name[BOTH_WAYS], by_name["fp32"], by_name.get("bf16")
    fastest = min(runs, key=lambda run: run["seconds"])
    place = (
        "the fastest run"
        if fastest is best
        else "slower than %s (%.1f s)" % (fastest["name"], fastest["seconds"])
    )
    speeds = " and ".join(
        "%.1f times as fast as %s" % (run["seconds"] / best["seconds"], run["name"])
        for run in (full, half)
        if run is not None
    )
    fewer = (full["bytes_pushed"] + full["bytes_pulled"]) / (
        best["bytes_pushed"] + best["bytes_pulled"]
    )
    return (
        "Gained: %s is %s: %.1f s, %s, with %.1f times fewer bytes than fp32, at %.2f %% accuracy "
        "(fp32 %.2f %%)"
        % (
            BOTH_WAYS,
            place,
            best["seconds"],
            speeds,
            fewer,
            100 * best["test_accuracy"],
            100 * full["test_accuracy"],
        )
    )


def picture_of(runs):
    """Returns the SVG. ValueError: the runs' accuracy is not known."""
    curves = [
        curves_svg.Curve(
            run["name"],
            [
                curves_svg.Point(
                    row["test_accuracy"], row["seconds"], row["bytes_pushed"] + row["bytes_pulled"]
                )
                for row in run["after_epoch"]
            ],
        )
        for run in runs
    ]
    return curves_svg.render(
        "UCI handwritten digits, %d workers, %d servers, each worker's link held to %s"
        % (WORKERS, SERVERS, LINK),
        curves,
    )


def main(arguments):
    parser = argparse.ArgumentParser(prog="slimps demo", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures of the runs here")
    parser.add_argument(
        "--svg",
        metavar="FILE",
        default="slimps-demo.svg",
        help="draw accuracy over time and over bytes here (default %(default)s)",
    )
    parser.add_argument(
        "--compression",
        metavar="NAME[:option=value,...]",
        default="1bit",
        help="what fp32 and bf16 are compared with (default 1bit; slimps worker --help)",
    )
    parser.add_argument(
        "--lr",
        type=float,
        help="learning rate of all runs but fp32 and bf16 (default %g; %s)"
        % (USUAL_LR, ", ".join("%s %g" % item for item in LR_OF_CODEC.items())),
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default 1)")
    parser.add_argument("--verbose", action="store_true", help="show every node's output")
    parser.add_argument("--trace", metavar="FILE", help=job_trace.FLAG_HELP)
    watched.add_page_flag(parser)
    options = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--json", options.json)
    out_files.refuse_unwritable(parser, "--svg", options.svg)
    out_files.refuse_unwritable(parser, "--trace", options.trace)
    if codec_name(options.compression) == "none":
        parser.error(
            "--compression none: that is the first run; expected a codec to compare it with"
        )

    setup.install_packages()
    setup.build([target for target, _ in setup.PROGRAMS.values()])
    programs = {name: setup.program_path(name) for name in setup.PROGRAMS}
    planned = plan_runs(options.compression, options.lr)
    check_runs(programs["slimps_worker"], planned, options.seed)
    if options.trace is None:
        return compare(programs, planned, options, None)
    with job_trace.Gathering(options.trace) as trace:
        try:
            status = compare(programs, planned, options, trace)
        finally:
            merged = trace.merge(lambda line: print(line, flush=True))
    return status or (0 if merged else 1)


def compare(programs, planned, options, trace):
    """Makes the runs one after the other and prints the results. Returns the exit status."""
    runs = []
    explanation = ""
    for name, meaning, flags in planned:
        print("%s: %s" % (name, meaning), flush=True)
        environment = trace and trace.of_job(WORKERS, SERVERS, name)
        summary = run_one(programs, name, flags, options, environment)
        runs.append(as_run(name, summary))
        if name == BOTH_WAYS:
            explanation = (
                summary.get("threshold_explanation") or "(no threshold table was measured)"
            )

    print()
    print(
        "UCI handwritten digits, 1 scheduler, %d servers, %d workers on this machine."
        % (SERVERS, WORKERS)
    )
    print("The link is emulated: each worker's traffic is held to %s." % LINK)
    print()
    print(table_text(runs))
    print()
    print(BOTH_WAYS + "'s threshold tables (which tensor sizes go raw, which compressed, and why):")
    print(explanation)
    sys.stdout.flush()
    out_files.save_text(options.svg, picture_of(runs))
    print("accuracy over time and over bytes: " + options.svg, flush=True)
    if options.json:
        out_files.save_json(
            options.json, {"compression": options.compression, "runs": runs}, indent=2
        )
    print(gain_text(runs))
    return 0
