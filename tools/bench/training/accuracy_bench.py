# SPDX-License-Identifier: Apache-2.0
"""slimps bench accuracy: trains models with several codecs and seeds, and compares with fp32.

Runs are kept as they finish, so that the bench goes on where it was stopped.
"""

import statistics

from bench import common
from bench.common import Parser, name_list, number, verdict
from bench.training import kept_runs
from bench.training import training_tasks as tasks
from cli import training_job
from slimps_launch import schema

CODECS = "drive,powersgd:rank=4,1bit,slimgc_1bit,qsgd"
# Most that a mean may be worse than fp32's: points of accuracy, or % of the loss.
BARS = {"lenet": 0.2, "resnet20": 0.5}
BARS_OF_CODEC = {
    ("lstm", "thc"): 2.0,
    ("lstm", "onebit_adam"): 1.0,
    ("char_transformer", "onebit_adam"): 1.0,
}
SHAPE = {
    "bench": schema.one_of(["accuracy"]),
    "workers": schema.COUNT,
    "servers": schema.COUNT,
    "seeds": [schema.SIZE],
    "results": [
        {
            "model": schema.one_of(list(tasks.TASKS)),
            "codec": schema.TEXT,
            "metric": schema.one_of([tasks.ACCURACY, tasks.LOSS]),
            "flags": schema.TEXT,
            "values": [schema.NUMBER],
            "mean": schema.NUMBER,
            "worse_than_fp32": schema.NUMBER,
            "bytes_pushed": schema.NUMBER,
            "bytes_pulled": schema.NUMBER,
            "times_fewer_pushed": schema.NUMBER,
        }
    ],
}


def make_parser():
    parser = Parser(
        prog="slimps bench accuracy",
        allow_abbrev=False,
        description="Trains models by real jobs on this machine, in fp32 and with each codec, and "
        "compares the means over the seeds. A run that has finished is kept in --state, so the "
        "same command goes on where it was stopped. Says first how long it will take. Models: %s. "
        "Beside a codec's spec, which then compresses every tensor, --codecs takes %s."
        % (
            "; ".join("%s (%s)" % (task.name, task.says) for task in tasks.TASKS.values()),
            ", ".join("%s (%s)" % way for way in tasks.WAYS.items()),
        ),
    )
    parser.add_argument(
        "--models", type=name_list, default=["lenet"], metavar="LIST", help="models (lenet)"
    )
    parser.add_argument(
        "--codecs", default=CODECS, metavar="LIST", help="beside fp32 (%s)" % CODECS
    )
    parser.add_argument("--workers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    parser.add_argument("--servers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    kept_runs.add_flags(parser, "slimps-accuracy.json")
    return parser


def settle(parser, options):
    """Checks what argparse cannot check."""
    for name in options.models:
        if name not in tasks.TASKS:
            parser.error(
                "--models: expected some of %s, got \"%s\"" % (",".join(tasks.TASKS), name)
            )
    try:
        codecs = tasks.spec_list(options.codecs)
    except ValueError as error:
        parser.error("--codecs: %s" % error)
    options.codecs = ["fp32"] + [name for name in codecs if name != "fp32"]
    for name in options.models:
        if "onebit_adam" in codecs and "adam" not in tasks.TASKS[name].flags:
            parser.error("--codecs: onebit_adam: expected models that Adam trains, got %s" % name)
    kept_runs.settle(parser, options, [tasks.TASKS[name] for name in options.models])


def training_of(options, task, codec, seed):
    return training_job.Training(
        "%s, %s, seed %d" % (task.name, codec, seed),
        tuple(tasks.flags_of_task(task) + tasks.flags_of_way(codec) + ["--seed", str(seed)]),
        options.workers,
        options.servers,
    )


def worse_by(task, mean, full):
    """Returns by how much a mean is worse than fp32's: points of accuracy, or % of the loss."""
    if tasks.higher_is_better(task):
        return 100 * (full - mean)
    return 100 * (mean / full - 1)


def results_of(options, kept):
    """Returns the report's rows. `kept` has every training."""
    results = []
    for name in options.models:
        task = tasks.TASKS[name]
        means = {}
        for codec in options.codecs:
            runs = [kept.find(training_of(options, task, codec, seed)) for seed in options.seeds]
            values = [run[task.metric] for run in runs]
            pushed = statistics.fmean(run["bytes_pushed"] for run in runs)
            means[codec] = (statistics.fmean(values), pushed)
            full, full_bytes = means["fp32"]
            results.append(
                {
                    "model": name,
                    "codec": codec,
                    "metric": task.metric,
                    "flags": " ".join(tasks.flags_of_task(task) + tasks.flags_of_way(codec)),
                    "values": values,
                    "mean": means[codec][0],
                    "worse_than_fp32": worse_by(task, means[codec][0], full),
                    "bytes_pushed": pushed,
                    "bytes_pulled": statistics.fmean(run["bytes_pulled"] for run in runs),
                    "times_fewer_pushed": full_bytes / max(pushed, 1),
                }
            )
    return results


# ---- tables
# -----------------------------------------------------------------------------------------


def headings(report):
    return (
        ["codec"]
        + ["seed %d" % seed for seed in report["seeds"]]
        + ["mean", "to fp32", "bar", "MB pushed", "MB pulled", "fewer pushed"]
    )


def bar_of(row):
    """Returns the verdict on a row, or nothing where no bar was set."""
    codec = row["codec"].partition(":")[0]
    bar = BARS_OF_CODEC.get((row["model"], codec), BARS.get(row["model"]))
    if bar is None or codec == "fp32":
        return ""
    return verdict(row["worse_than_fp32"] <= bar, "%g" % bar)


def cells(row):
    accuracy = row["metric"] == tasks.ACCURACY

    def shown(value):
        return "%.2f" % (100 * value) if accuracy else "%.4f" % value

    # Negative is worse for accuracy, positive for loss, as in docs/results.md.
    change = -row["worse_than_fp32"] if accuracy else row["worse_than_fp32"]
    return (
        [row["codec"]]
        + [shown(value) for value in row["values"]]
        + [
            shown(row["mean"]),
            "" if row["codec"] == "fp32" else ("%+.2f" if accuracy else "%+.1f %%") % change,
            bar_of(row),
            "%.1f" % (row["bytes_pushed"] / 1e6),
            "%.1f" % (row["bytes_pulled"] / 1e6),
            "%.1f x" % row["times_fewer_pushed"],
        ]
    )


def tables(report):
    """Yields (title, headings, rows) for each model."""
    for model in dict.fromkeys(row["model"] for row in report["results"]):
        rows = [row for row in report["results"] if row["model"] == model]
        accuracy = rows[0]["metric"] == tasks.ACCURACY
        yield "%s: %s (%s)" % (
            model,
            "test accuracy in %" if accuracy else "test loss",
            tasks.TASKS[model].says,
        ), headings(report), [cells(row) for row in rows]


def about(report):
    return "%d workers, %d servers; bar: points or %% that the mean may be worse than fp32's" % (
        report["workers"],
        report["servers"],
    )


def text(report):
    return common.text_report(about(report), tables(report))


def markdown(report):
    return common.markdown_report(about(report), tables(report))


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    settle(parser, options)
    wanted = [
        (training_of(options, tasks.TASKS[name], codec, seed), tasks.TASKS[name])
        for name in options.models
        for seed in options.seeds
        for codec in options.codecs
    ]
    report = {
        "bench": "accuracy",
        "workers": options.workers,
        "servers": options.servers,
        "seeds": options.seeds,
        "results": results_of(options, kept_runs.make_wanted(options, wanted)),
    }
    kept_runs.show(report, text(report), options.json)
    return 0
