# SPDX-License-Identifier: Apache-2.0
"""slimps bench convergence: how long training takes to a target accuracy on a slow link.

A run's target is a part of the way from a guess to the best accuracy that fp32 reached with the
same seed. Times leave evaluations out. Runs are kept as they finish, so that the bench goes on
where it was stopped.
"""

import argparse
import re
import statistics

from bench.common import Parser, markdown_table, number, text_table, verdict
from bench.training import kept_runs
from bench.training import training_tasks as tasks
from cli import training_job
from slimps_launch import schema

WAYS = "topk:ratio=0.1,gravac"
FASTER_BAR = 1.5  # a policy reaches the target so many times as soon as fp32 and each codec
LOST_BAR = 0.2  # points of accuracy that a policy may end below fp32
GUESS = 0.1  # the accuracy of a guess: all data sets of images here have ten classes
SHAPE = {
    "bench": schema.one_of(["convergence"]),
    "model": schema.one_of(list(tasks.TASKS)),
    "link": schema.TEXT,
    "part": schema.POSITIVE,
    "epochs": schema.COUNT,
    "batch": schema.COUNT,
    "workers": schema.COUNT,
    "servers": schema.COUNT,
    "seeds": [schema.SIZE],
    "results": [
        {
            "way": schema.TEXT,
            "seconds": [schema.NUMBER_OR_NULL],
            "steps": [schema.NUMBER_OR_NULL],
            "ms_per_step": schema.NUMBER,
            "accuracy": [schema.NUMBER],
            "bytes_pushed": schema.NUMBER,
        }
    ],
}


def part(text):
    """Parses a part of a way, over 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("expected a number over 0 and at most 1, got '%s'" % text)
    return value


def rate(text):
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(kbit|mbit|gbit)", text):
        raise argparse.ArgumentTypeError("expected a rate such as 100mbit, got '%s'" % text)
    return text


def make_parser():
    models = [task.name for task in tasks.TASKS.values() if tasks.higher_is_better(task)]
    parser = Parser(
        prog="slimps bench convergence",
        allow_abbrev=False,
        description="Trains a model by real jobs on this machine over an emulated link, in fp32, "
        "with codecs and with policies that adapt, and compares the times to a target accuracy. "
        "Pulls carry what pushes do. A run that has finished is kept in --state, so the same "
        "command goes on where it was stopped.",
    )
    parser.add_argument("--model", choices=models, default="lenet", help="(lenet)")
    parser.add_argument(
        "--ways",
        default=WAYS,
        metavar="LIST",
        help="codecs' and policies' specs, beside fp32 (%s)" % WAYS,
    )
    parser.add_argument(
        "--link", type=rate, default="100mbit", metavar="RATE", help="of each worker (100mbit)"
    )
    parser.add_argument(
        "--part",
        type=part,
        default=0.95,
        metavar="P",
        help="the target: so much of the way to fp32's best accuracy (0.95)",
    )
    parser.add_argument(
        "--every",
        type=number(1, 100000, int),
        default=10,
        metavar="N",
        help="steps between evaluations (10)",
    )
    parser.add_argument("--epochs", type=number(1, 1000, int), default=1, metavar="N", help="(1)")
    parser.add_argument(
        "--batch",
        type=number(1, 65536, int),
        metavar="N",
        help="samples of a worker's step (the model's in bench accuracy)",
    )
    parser.add_argument("--workers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    parser.add_argument("--servers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    kept_runs.add_flags(parser, "slimps-convergence.json")
    return parser


def settle(parser, options):
    """Checks what argparse cannot check."""
    try:
        ways = tasks.spec_list(options.ways)
    except ValueError as error:
        parser.error("--ways: %s" % error)
    options.ways = ["fp32"] + [name for name in ways if name != "fp32"]
    if options.batch is None:
        flags = tasks.flags_of_task(tasks.TASKS[options.model])
        options.batch = int(flags[flags.index("--batch") + 1])
    kept_runs.settle(parser, options, [tasks.TASKS[options.model]])


def training_of(options, way, seed):
    task = tasks.TASKS[options.model]
    flags = tasks.flags_of_task(task) + ["--epochs", str(options.epochs)]
    flags += ["--batch", str(options.batch)]
    flags += tasks.flags_of_way(way) + tasks.pull_flags_of_way(way)
    flags += ["--emulate_link", options.link, "--evaluate_every", str(options.every)]
    return training_job.Training(
        "%s, %s, seed %d" % (task.name, way, seed),
        tuple(flags + ["--seed", str(seed)]),
        options.workers,
        options.servers,
    )


def best_of(run):
    return max([run["test_accuracy"]] + [row["test_accuracy"] for row in run["evaluations"]])


def reached(run, target):
    """Returns (seconds, steps) of the first evaluation at the target; (None, None): none."""
    for row in run["evaluations"]:
        if row["test_accuracy"] >= target:
            return row["seconds"], row["steps"]
    return None, None


def results_of(options, kept):
    """Returns the report's rows. `kept` has every training."""
    results = []
    for way in options.ways:
        runs = [kept.find(training_of(options, way, seed)) for seed in options.seeds]
        full = [kept.find(training_of(options, "fp32", seed)) for seed in options.seeds]
        found = [
            reached(run, GUESS + options.part * (best_of(other) - GUESS))
            for run, other in zip(runs, full)
        ]
        results.append(
            {
                "way": way,
                "seconds": [seconds for seconds, _ in found],
                "steps": [steps for _, steps in found],
                "ms_per_step": 1e3
                * statistics.fmean(run["seconds"] / run["steps"] for run in runs),
                "accuracy": [run["test_accuracy"] for run in runs],
                "bytes_pushed": statistics.fmean(run["bytes_pushed"] for run in runs),
            }
        )
    return results


# ---- tables
# -----------------------------------------------------------------------------------------


def mean_time(row):
    """Returns the mean of the seeds' times to the target; None: a seed did not reach it."""
    return None if None in row["seconds"] else statistics.fmean(row["seconds"])


def times_as_soon(report, row):
    """Yields (way, how many times as soon as that way `row` is at the target)."""
    mine = mean_time(row)
    for other in report["results"]:
        theirs = mean_time(other)
        if not tasks.is_policy(other["way"]) and other is not row and mine and theirs:
            yield other["way"], theirs / mine


def lost_points(report, row):
    full = statistics.fmean(report["results"][0]["accuracy"])
    return 100 * (full - statistics.fmean(row["accuracy"]))


def bar_of(report, row):
    """Returns the verdicts on a policy, or nothing for what is compared with it."""
    if not tasks.is_policy(row["way"]):
        return ""
    ratios = [ratio for _, ratio in times_as_soon(report, row)]
    soon = len(ratios) == sum(not tasks.is_policy(one["way"]) for one in report["results"])
    soon = soon and min(ratios) >= FASTER_BAR
    return "%s; %s" % (
        verdict(soon, "%g x" % FASTER_BAR),
        verdict(lost_points(report, row) <= LOST_BAR, "%g points" % LOST_BAR),
    )


def headings(report):
    return (
        ["way"]
        + ["seed %d, s" % seed for seed in report["seeds"]]
        + ["mean, s", "steps", "ms a step", "as soon as", "accuracy", "MB pushed", "bar"]
    )


def cells(report, row):
    mean = mean_time(row)
    steps = "" if mean is None else "%.0f" % statistics.fmean(row["steps"])
    return (
        [row["way"]]
        + ["not" if seconds is None else "%.1f" % seconds for seconds in row["seconds"]]
        + [
            "not" if mean is None else "%.1f" % mean,
            steps,
            "%.1f" % row["ms_per_step"],
            ", ".join("%.2f x %s" % (ratio, way) for way, ratio in times_as_soon(report, row)),
            "%.2f" % (100 * statistics.fmean(row["accuracy"])),
            "%.1f" % (row["bytes_pushed"] / 1e6),
            bar_of(report, row),
        ]
    )


def about(report):
    return (
        "%s, %d workers, %d servers, %s, epochs: %d, batches of %d; the time to %g %% of the way "
        "from a guess to fp32's best test accuracy of the same seed; accuracy: at the end, mean"
        % (
            tasks.TASKS[report["model"]].name,
            report["workers"],
            report["servers"],
            report["link"],
            report["epochs"],
            report["batch"],
            100 * report["part"],
        )
    )


def text(report):
    rows = [cells(report, row) for row in report["results"]]
    return "\n".join([about(report), ""] + text_table(headings(report), rows))


def markdown(report):
    rows = [cells(report, row) for row in report["results"]]
    return "\n".join([about(report) + ".", ""] + markdown_table(headings(report), rows))


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    settle(parser, options)
    task = tasks.TASKS[options.model]
    wanted = [
        (training_of(options, way, seed), task) for seed in options.seeds for way in options.ways
    ]
    report = {
        "bench": "convergence",
        "model": options.model,
        "link": options.link,
        "part": options.part,
        "epochs": options.epochs,
        "batch": options.batch,
        "workers": options.workers,
        "servers": options.servers,
        "seeds": options.seeds,
        "results": results_of(options, kept_runs.make_wanted(options, wanted)),
    }
    kept_runs.show(report, text(report), options.json)
    return 0
