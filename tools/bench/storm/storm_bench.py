# SPDX-License-Identifier: Apache-2.0
"""slimps bench storm: kills a job's processes again and again while it trains.

It trains twice by `slimps launch`, with the same seed: in calm, and with a random process killed
every so often and started again. All workers must end with the same weights, bit for bit. They are
those of the calm training, unless a worker that was killed took something along: the rest of its
pushes of a step, or what compression kept for later.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from bench import common
from bench.common import Parser, number
from bench.storm import storm_watch
from cli import progress
from cli import setup
from slimps_launch import out_files

TRAINING = "--model logistic --dataset digits --batch 16 --lr 0.2 --partition_bytes 1000"
PROBE_EPOCHS = 40  # how long the probe trains that finds the number of epochs
ROLES = ("worker", "server", "scheduler")


def roles(text):
    given = text.split(",")
    if not set(given) <= set(ROLES):
        raise argparse.ArgumentTypeError(
            'expected some of %s, with commas between, got "%s"' % (", ".join(ROLES), text)
        )
    return given


def make_parser():
    parser = Parser(
        prog="slimps bench storm",
        allow_abbrev=False,
        description="Trains on this machine in calm and in a storm, in which a random process "
        "of the job is killed every so often and started again by launch. Compares throughput "
        "and the bits of the weights. Exit status 1: the job failed, or the weights differ.",
    )
    parser.add_argument(
        "--minutes",
        type=number(0.1, 600, float),
        default=2.0,
        metavar="M",
        help="of each training (2)",
    )
    parser.add_argument(
        "--every",
        type=number(0.5, 3600, float),
        default=10.0,
        metavar="S",
        help="between two kills (10)",
    )
    parser.add_argument("--workers", type=number(1, 64, int), default=4, metavar="N", help="(4)")
    parser.add_argument("--servers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    parser.add_argument(
        "--roles",
        type=roles,
        default=list(ROLES),
        metavar="ROLE,...",
        help="which processes are killed (%s)" % ",".join(ROLES),
    )
    parser.add_argument("--seed", type=number(0, 10**9, int), default=1, metavar="N", help="(1)")
    parser.add_argument(
        "--snapshot_every", type=number(1, 3600, int), default=5, metavar="S", help="(5)"
    )
    parser.add_argument(
        "--training", default=TRAINING, metavar="FLAGS", help="of slimps_worker (%s)" % TRAINING
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    return parser


class Training:
    """One training by `slimps launch`."""

    def __init__(self, options, folder, name, epochs, flags=()):
        self.weights = os.path.join(folder, name)
        self.command = (
            [os.path.join(setup.REPOSITORY, "tools", "slimps"), "launch"]
            + ["--workers", str(options.workers), "--servers", str(options.servers)]
            + list(flags)
            + ["--", "slimps_worker"]
            + options.training.split()
            + ["--epochs", str(epochs), "--log_every", "20"]
            + ["--save_weights", self.weights + "{rank}"]
        )
        self.workers = options.workers

    def run(self, watch, storm=None):
        """Trains, and returns the seconds of the training. Stops with status 1 if it fails."""
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        watch.follow(process.stdout)
        try:
            with progress.Bar(None, "steps") as bar:
                while process.poll() is None:
                    if storm is not None:
                        storm.blow(process.pid)
                    bar.reach(watch.step, watch.steps, "%d kills" % len(watch.kills))
                    time.sleep(0.05)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
        watch.join()
        if process.returncode != 0:
            sys.exit("slimps: the training failed:\n%s" % "\n".join(watch.last_lines))
        return watch.seconds()

    def bits(self):
        """Returns each worker's weights: a set, of one if they are equal."""
        found = set()
        for rank in range(self.workers):
            with open(self.weights + str(rank), "rb") as content:
                found.add(content.read())
        return found


class Storm:
    """Kills a random process every `every` seconds, from the first step on."""

    def __init__(self, options, watch):
        self.every = options.every
        self.roles = options.roles
        self.watch = watch
        self.random = random.Random(options.seed)
        self.next = None

    def blow(self, launcher):
        """Kills a process if it is time. The one before has then come back, or is waited for."""
        now = time.monotonic()
        if self.watch.step and self.watch.step == self.watch.steps:
            return  # what is left to do is not training
        if self.next is None:
            self.next = now + self.every if self.watch.step > 0 else None
            return
        if now < self.next or self.watch.kills and self.watch.kills[-1].recovered is None:
            return
        found = [one for one in storm_watch.descendants(launcher) if one[0] in self.roles]
        if not found:
            return
        role = self.random.choice(sorted({role for role, _ in found}))
        pid = self.random.choice(sorted(pid for one, pid in found if one == role))
        self.next = now + self.every
        self.watch.note_kill(role, pid)
        os.kill(pid, signal.SIGKILL)


def median(values):
    return statistics.median(values) if values else None


def measure(options, folder):
    probe = storm_watch.Watch()
    Training(options, folder, "probe", PROBE_EPOCHS).run(probe)
    epochs = max(1, round(options.minutes * 60 / (probe.seconds() / PROBE_EPOCHS)))
    print("calm: %d epochs, about %.1f minutes" % (epochs, options.minutes), flush=True)
    calm_training = Training(options, folder, "calm", epochs)
    calm = storm_watch.Watch()
    calm_training.run(calm)
    print("storm: a process is killed every %g s" % options.every, flush=True)
    watch = storm_watch.Watch()
    snapshots = ["--restart", "1000", "--snapshot_every", str(options.snapshot_every)]
    storm_training = Training(options, folder, "storm", epochs, snapshots)
    storm_training.run(watch, Storm(options, watch))
    kills = watch.kills
    recover = {
        role: median([kill.recovered for kill in kills if kill.role == role and kill.recovered])
        for role in ROLES
    }
    bits = storm_training.bits()
    residuals = "--compression" in options.training and any(one.role == "worker" for one in kills)
    is_lost = watch.left_out > 0 or residuals
    return {
        "kills": len(kills),
        "recovered": sum(kill.recovered is not None for kill in kills),
        "throughput_of_calm": watch.steps_per_second() / calm.steps_per_second(),
        "participation": watch.step / watch.steps,
        "left_out": watch.left_out,
        "weights_equal": len(bits) == 1 and (is_lost or bits == calm_training.bits()),
        "detect_s": median([kill.detected for kill in kills if kill.detected is not None]),
        "recover_worker_s": recover["worker"],
        "recover_server_s": recover["server"],
        "recover_scheduler_s": recover["scheduler"],
    }


def shown(value):
    return "-" if value is None else "%.2f" % value if isinstance(value, float) else str(value)


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--json", options.json)
    with common.ending_on_signals(), tempfile.TemporaryDirectory(prefix="slimps-storm-") as folder:
        report = measure(options, folder)
    for name, value in report.items():
        print("%-20s %s" % (name, shown(value)))
    if options.json:
        out_files.save_json(options.json, report)
    return 0 if report["weights_equal"] else 1
