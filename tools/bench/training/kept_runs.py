# SPDX-License-Identifier: Apache-2.0
"""Training runs that are made once: a finished run is kept in a file and never made again.

    kept = KeptRuns("runs.json")
    Trainer(programs, kept, data_flags).make(wanted)   # trained, saved
    figures = kept.find(training)

make_wanted does that for a bench. show prints and saves its report.

The file belongs to one build of the programs: delete it to measure another one. Owned by the main
thread.
"""

import os
import time

from bench import common
from bench.common import Parser
from cli import progress
from cli import setup
from cli import training_job
from slimps_launch import out_files
from slimps_launch import schema

KEPT = ("test_accuracy", "test_loss", "seconds", "bytes_pushed", "bytes_pulled")
EVALUATION = {"steps": schema.COUNT, "seconds": schema.NUMBER, "test_accuracy": schema.NUMBER}
SHAPE = {
    **dict.fromkeys(KEPT, schema.NUMBER),
    "wall_seconds": schema.NUMBER,
    "steps": schema.Optional(schema.COUNT),
    "evaluations": schema.Optional([EVALUATION]),  # of runs that evaluate every so many steps
}


class KeptRuns:
    """The finished runs of a file, by their flags."""

    def __init__(self, path):
        """SetupError: the file cannot be read, or holds something else."""
        self.path = path
        self.runs = {}
        if not os.path.exists(path) or out_files.is_special(path):
            return
        try:
            self.runs = out_files.load_json(path)
            schema.check(self.runs, {})
            for name, found in self.runs.items():
                schema.check(found, SHAPE, '"%s"' % name)
        except ValueError as error:
            raise setup.SetupError("--state: %s holds no runs: %s" % (path, error)) from error

    @staticmethod
    def name_of(training):
        return "%dx%d %s" % (training.workers, training.servers, " ".join(training.flags))

    def find(self, training):
        return self.runs.get(self.name_of(training))

    def keep(self, training, figures):
        self.runs[self.name_of(training)] = figures
        out_files.save_json(self.path, self.runs, indent=1, sort_keys=True)


def duration(seconds):
    if seconds < 90:
        return "%.0f s" % seconds
    if seconds < 5400:
        return "%.0f min" % (seconds / 60)
    return "%.1f h" % (seconds / 3600)


class Trainer:
    """Makes runs one after the other, says how long the others will take, and keeps each.

    data_flags: {data set: flags that say where it is}, which are no part of a run's name.
    """

    def __init__(self, programs, kept, data_flags, verbose=False):
        self.programs = programs
        self.kept = kept
        self.data_flags = data_flags
        self.verbose = verbose

    def check(self, wanted):
        """SetupError: slimps_worker refuses a run; the message is what it says.

        `wanted` is a list of (training, task), here and below.
        """
        for training, task in wanted:
            complaint = training_job.why_refused(
                self.programs["slimps_worker"],
                list(training.flags) + self.data_flags.get(task.dataset, []),
            )
            if complaint:
                raise setup.SetupError("%s: %s" % (training.name, complaint))

    def left(self, wanted):
        """Returns the runs that are still to be made, and their seconds by what is known."""
        todo = [pair for pair in wanted if self.kept.find(pair[0]) is None]
        return todo, sum(self.seconds_of(task, wanted) for _, task in todo)

    def seconds_of(self, task, wanted):
        known = [
            found["wall_seconds"]
            for training, other in wanted
            for found in [self.kept.find(training)]
            if other is task and found is not None
        ]
        return sum(known) / len(known) if known else task.seconds

    def make(self, wanted):
        """Makes all runs that are not kept, and keeps them."""
        todo, seconds = self.left(wanted)
        progress.note(
            "%d runs, %d of them kept from before; the others take about %s on two idle cores"
            % (len(wanted), len(wanted) - len(todo), duration(seconds))
        )
        with progress.Bar(len(todo), "runs") as bar:
            self.make_each(todo, wanted, bar)

    def make_each(self, todo, wanted, bar):
        for number, (training, task) in enumerate(todo):
            began = time.monotonic()
            summary = training_job.run(
                self.programs,
                training._replace(
                    flags=training.flags + tuple(self.data_flags.get(task.dataset, []))
                ),
                show=lambda node: self.verbose,
                verbose=self.verbose,
            )
            figures = {name: summary[name] for name in KEPT}
            figures["wall_seconds"] = time.monotonic() - began
            if "--evaluate_every" in training.flags:
                figures["steps"] = summary["steps"]
                figures["evaluations"] = [
                    {name: row[name] for name in EVALUATION} for row in summary["evaluations"]
                ]
            self.kept.keep(training, figures)
            progress.note(
                "%d of %d, %s: accuracy %.2f %%, loss %.4f, %s; about %s left"
                % (
                    number + 1,
                    len(todo),
                    training.name,
                    100 * figures["test_accuracy"],
                    figures["test_loss"],
                    duration(figures["wall_seconds"]),
                    duration(self.left(wanted)[1]),
                )
            )
            bar.advance()


def make_wanted(options, wanted):
    """Makes the runs of a bench whose flags are add_flags'. Returns the KeptRuns that have them."""
    kept = KeptRuns(options.state)
    programs = common.find_programs(setup.PROGRAMS, options.programs)
    trainer = Trainer(programs, kept, options.data_flags, options.verbose)
    trainer.check(wanted)
    trainer.make(wanted)
    return kept


def show(report, text, path):
    """Prints a report's text, and saves the report if a path is given."""
    print(text, flush=True)
    if path:
        out_files.save_json(path, report)


# ---- flags that the training benches share
# ------------------------------------------------------


def add_flags(parser: Parser, state):
    parser.add_argument(
        "--seeds", metavar="LIST", default="1,2,3", help="of weights and batches (1,2,3)"
    )
    for dataset in ("mnist", "cifar10", "text"):
        parser.add_argument(
            "--" + dataset, metavar="DIR", help="the folder of %s's files" % dataset
        )
    parser.add_argument(
        "--state",
        metavar="FILE",
        default=state,
        help="keep each finished run here and take those that are here already (%s)" % state,
    )
    parser.add_argument("--verbose", action="store_true", help="show every node's output")
    parser.add_files()


def settle(parser: Parser, options, tasks):
    """Checks what argparse cannot check, and sets options.seeds and options.data_flags."""
    seeds = options.seeds.split(",")
    for seed in seeds:
        if not (seed.isascii() and seed.isdigit() and int(seed) < 1 << 63):
            parser.error("--seeds: expected whole numbers with commas, got \"%s\"" % options.seeds)
        if seeds.count(seed) > 1:
            parser.error("--seeds: \"%s\" is there twice: %s" % (seed, options.seeds))
    options.seeds = [int(seed) for seed in seeds]
    options.data_flags = {}
    for task in tasks:
        if task.dataset == "digits":
            continue
        folder = getattr(options, task.dataset)
        if folder is None:
            parser.error(
                "--%s: expected the folder of %s's files, for %s"
                % (task.dataset, task.dataset, task.name)
            )
        options.data_flags[task.dataset] = ["--data_dir", folder]
    out_files.refuse_unwritable(parser, "--state", options.state)
    out_files.refuse_unwritable(parser, "--json", options.json)
