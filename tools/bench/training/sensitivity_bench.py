# SPDX-License-Identifier: Apache-2.0
"""slimps bench sensitivity: how accuracy depends on thresholds and on the scaling of the rate.

The sweeps are those of sections 4.3.1 and 4.3.2 of SlimGC: the compression threshold of 2bit, the
communication threshold, and the learning rate as workers are added. Runs are kept as they finish,
so that the bench goes on where it was stopped.
"""

import collections
import math
import statistics

from bench import common
from bench.common import Parser, name_list, number, size_name
from bench.training import kept_runs
from bench.training import training_tasks as tasks
from cli import training_job
from slimps_launch import schema

SERVERS = 2
USUAL_LEVEL = "0.5"  # of 2bit; SlimGC keeps to it
USUAL_BYTES = "4096"
RATE = {
    "mlp": 0.1,
    "lenet": 0.1,
    "lstm": 0.002,
    "char_transformer": 0.001,
    "resnet20": 0.1,
}  # of BATCH_WORKERS workers
BATCH_WORKERS = 2

# One column of a sweep: its name, and the flags of a run by the swept value.
Column = collections.namedtuple("Column", "name flags")
# label: what the values are. values: as text. best: True where the best value is looked for.
Sweep = collections.namedtuple("Sweep", "name label values columns usual")


def optimised(codec, threshold, backup=False):
    """Returns the flags of SlimGC's compression optimisation; with `backup` of all of SlimGC."""
    flags = ["--compression", codec]
    if codec != "none":
        flags += ["--threshold", threshold]
    return flags + (["--backup_model", "on"] if backup else [])


def two_bit(level):
    return "2bit:threshold=" + level


def level_sweep(values):
    """The compression threshold, figure 10 of SlimGC."""
    return Sweep(
        "compression_threshold",
        "threshold of 2bit",
        values,
        [
            Column("2bit", lambda value: optimised(two_bit(value), "0")),
            Column("2bit (CG Opt.)", lambda value: optimised(two_bit(value), USUAL_BYTES)),
            Column("2bit (SlimGC)", lambda value: optimised(two_bit(value), USUAL_BYTES, True)),
        ],
        USUAL_LEVEL,
    )


def bytes_sweep(values):
    """The communication threshold, figure 11 of SlimGC. 0 is the plain codec, none is fp32."""
    return Sweep(
        "communication_threshold",
        "tensors from",
        values,
        [
            Column("1bit (CG Opt.)", lambda value: optimised("1bit", value)),
            Column("2bit (CG Opt.)", lambda value: optimised(two_bit(USUAL_LEVEL), value)),
            Column("1bit (SlimGC)", lambda value: optimised("1bit", value, True)),
            Column("2bit (SlimGC)", lambda value: optimised(two_bit(USUAL_LEVEL), value, True)),
        ],
        USUAL_BYTES,
    )


def rate_sweep(values, rate):
    """The learning rate as workers are added: `rate` is that of BATCH_WORKERS workers."""

    def scaled(law, flags):
        return lambda value: flags + ["--lr", "%.6g" % (rate * law(int(value) / BATCH_WORKERS))]

    columns = []
    for name, flags in (
        ("fp32", ["--compression", "none"]),
        ("1bit", optimised("1bit", "0")),
        ("2bit", optimised(two_bit(USUAL_LEVEL), "0")),
        ("1bit (SlimGC)", optimised("1bit", USUAL_BYTES, True)),
        ("2bit (SlimGC)", optimised(two_bit(USUAL_LEVEL), USUAL_BYTES, True)),
    ):
        for law_name, law in (("linear", float), ("square root", math.sqrt)):
            columns.append(Column("%s, %s" % (name, law_name), scaled(law, flags)))
    return Sweep("learning_rate", "workers", values, columns, str(BATCH_WORKERS))


SWEEPS = ("compression_threshold", "communication_threshold", "learning_rate")
SHAPE = {
    "bench": schema.one_of(["sensitivity"]),
    "model": schema.one_of(list(tasks.TASKS)),
    "metric": schema.one_of([tasks.ACCURACY, tasks.LOSS]),
    "workers": schema.COUNT,
    "seeds": [schema.SIZE],
    "fp32": schema.NUMBER,
    "sweeps": [
        {
            "name": schema.one_of(list(SWEEPS)),
            "label": schema.TEXT,
            "usual": schema.TEXT,
            "values": [schema.TEXT],
            "columns": [{"name": schema.TEXT, "means": [schema.NUMBER]}],
        }
    ],
}


def make_parser():
    parser = Parser(
        prog="slimps bench sensitivity",
        allow_abbrev=False,
        description="Trains a model by real jobs on this machine, with 1bit, 2bit, both with "
        "SlimGC's compression optimisation (small tensors raw) and with all of SlimGC (the backup "
        "model too), over thresholds and learning rates. A run that has finished is kept in "
        "--state, so the same command goes on where it was stopped. Says first how long it will "
        "take. Models: %s."
        % "; ".join("%s (%s)" % (task.name, task.says) for task in tasks.TASKS.values()),
    )
    parser.add_argument("--model", default="mlp", metavar="NAME", help="(mlp)")
    parser.add_argument(
        "--sweeps",
        type=name_list,
        default=list(SWEEPS),
        metavar="LIST",
        help="of %s (all)" % ", ".join(SWEEPS),
    )
    parser.add_argument(
        "--levels",
        type=name_list,
        default=["0.1", "0.3", "0.5", "0.7", "0.9"],
        metavar="LIST",
        help="compression thresholds of 2bit (0.1,0.3,0.5,0.7,0.9)",
    )
    parser.add_argument(
        "--bytes",
        type=name_list,
        default=["0", "1500", "15000", "80000", "none"],
        metavar="LIST",
        help="communication thresholds; none: nothing is compressed (0,1500,15000,80000,none)",
    )
    parser.add_argument(
        "--scale_workers",
        type=name_list,
        default=["1", "2", "4"],
        metavar="LIST",
        help="numbers of workers; the task's learning rate is that of %d, and each worker's batch "
        "stays (1,2,4)" % BATCH_WORKERS,
    )
    parser.add_argument(
        "--workers", type=number(1, 64, int), default=2, metavar="N", help="of both thresholds (2)"
    )
    kept_runs.add_flags(parser, "slimps-sensitivity.json")
    return parser


def settle(parser, options):
    """Checks what argparse cannot check, and sets options.task."""
    if options.model not in tasks.TASKS:
        parser.error(
            "--model: expected one of %s, got \"%s\"" % (", ".join(tasks.TASKS), options.model)
        )
    options.task = tasks.TASKS[options.model]
    for name in options.sweeps:
        if name not in SWEEPS:
            parser.error("--sweeps: expected some of %s, got \"%s\"" % (",".join(SWEEPS), name))
    for value in options.bytes:
        if value != "none" and not (value.isascii() and value.isdigit() and len(value) < 19):
            parser.error("--bytes: expected bytes or none, got \"%s\"" % value)
    for value in options.scale_workers:
        if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 64):
            parser.error("--scale_workers: expected 1 to 64, got \"%s\"" % value)
    kept_runs.settle(parser, options, [options.task])


def sweeps_of(options):
    makers = {
        "compression_threshold": lambda: level_sweep(options.levels),
        "communication_threshold": lambda: bytes_sweep(options.bytes),
        "learning_rate": lambda: rate_sweep(options.scale_workers, RATE[options.model]),
    }
    return [makers[name]() for name in options.sweeps]


def training_of(options, sweep, column, value, seed):
    flags = column.flags(value)
    if value == "none":  # nothing is compressed: the codec has no say
        flags = ["--compression", "none"] + flags[4:]
    return training_job.Training(
        "%s, %s, %s %s, seed %d" % (options.model, column.name, sweep.label, value, seed),
        tuple(tasks.flags_of_task(options.task) + flags + ["--seed", str(seed)]),
        int(value) if sweep.name == "learning_rate" else options.workers,
        SERVERS,
    )


def full_precision(options, seed):
    return training_job.Training(
        "%s, fp32, seed %d" % (options.model, seed),
        tuple(tasks.flags_of_task(options.task) + ["--compression", "none", "--seed", str(seed)]),
        options.workers,
        SERVERS,
    )


def wanted_of(options, sweeps):
    trainings = [full_precision(options, seed) for seed in options.seeds]
    for sweep in sweeps:
        trainings += [
            training_of(options, sweep, column, value, seed)
            for value in sweep.values
            for column in sweep.columns
            for seed in options.seeds
        ]
    # Two columns may ask for the same run, by names of their own.
    unique = {kept_runs.KeptRuns.name_of(training): training for training in trainings}
    return [(training, options.task) for training in unique.values()]


def report_of(options, sweeps, kept):
    def mean(trainings):
        return statistics.fmean(kept.find(one)[options.task.metric] for one in trainings)

    return {
        "bench": "sensitivity",
        "model": options.model,
        "metric": options.task.metric,
        "workers": options.workers,
        "seeds": options.seeds,
        "fp32": mean([full_precision(options, seed) for seed in options.seeds]),
        "sweeps": [
            {
                "name": sweep.name,
                "label": sweep.label,
                "usual": sweep.usual,
                "values": sweep.values,
                "columns": [
                    {
                        "name": column.name,
                        "means": [
                            mean(
                                training_of(options, sweep, column, value, seed)
                                for seed in options.seeds
                            )
                            for value in sweep.values
                        ],
                    }
                    for column in sweep.columns
                ],
            }
            for sweep in sweeps
        ],
    }


# ---- tables
# -----------------------------------------------------------------------------------------


def shown(report, value):
    return "%.2f" % (100 * value) if report["metric"] == tasks.ACCURACY else "%.4f" % value


def value_name(sweep, value):
    return size_name(int(value)) if sweep["name"] == SWEEPS[1] and value != "none" else value


def cells(report, sweep):
    """Returns a row per value, then a row of what the usual value loses to a column's best."""
    columns = sweep["columns"]
    rows = [
        [value_name(sweep, value)] + [shown(report, column["means"][i]) for column in columns]
        for i, value in enumerate(sweep["values"])
    ]
    accuracy = report["metric"] == tasks.ACCURACY
    spread = [max(column["means"]) - min(column["means"]) for column in columns]
    rows.append(["largest - smallest"] + [shown(report, value) for value in spread])
    if sweep["usual"] in sweep["values"] and sweep["name"] == SWEEPS[0]:
        at = sweep["values"].index(sweep["usual"])
        best = max if accuracy else min
        lost = [abs(best(column["means"]) - column["means"][at]) for column in columns]
        rows.append(
            ["%s loses to the best" % sweep["usual"]] + [shown(report, value) for value in lost]
        )
    return rows


def tables(report):
    """Yields (title, headings, rows) for each sweep."""
    for sweep in report["sweeps"]:
        yield sweep["name"].replace("_", " ").capitalize(), [sweep["label"]] + [
            column["name"] for column in sweep["columns"]
        ], cells(report, sweep)


def about(report):
    return "%s, %s; %d workers, %d servers; %s, means of %d; fp32: %s" % (
        report["model"],
        tasks.TASKS[report["model"]].says,
        report["workers"],
        SERVERS,
        "test accuracy in %" if report["metric"] == tasks.ACCURACY else "test loss",
        len(report["seeds"]),
        shown(report, report["fp32"]),
    )


def text(report):
    return common.text_report(about(report), tables(report))


def markdown(report):
    return common.markdown_report(about(report), tables(report))


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    settle(parser, options)
    sweeps = sweeps_of(options)
    wanted = wanted_of(options, sweeps)
    report = report_of(options, sweeps, kept_runs.make_wanted(options, wanted))
    kept_runs.show(report, text(report), options.json)
    return 0
