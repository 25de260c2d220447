# SPDX-License-Identifier: Apache-2.0
"""slimps bench storm: kills, stops and cuts off a job's processes again and again while it trains.

It trains twice by `slimps launch`, with the same seed: in calm, and with a random process in
trouble every so often. All workers must end with the same weights, bit for bit. They are those of
the calm training, unless a worker that was killed took something along: the rest of its pushes of a
step, or what compression kept for later.
"""

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from bench import common
from bench.cluster import net
from bench.common import Parser, number
from bench.storm import storm_network
from bench.storm import storm_watch
from cli import progress
from cli import setup
from slimps_launch import out_files
from slimps_launch import restarts

TRAINING = "--model logistic --dataset digits --batch 16 --lr 0.2 --partition_bytes 1000"
PROBE_EPOCHS = 40  # how long the probe trains that finds the number of epochs
ROLES = ("worker", "server", "scheduler")
TROUBLES = ("kill", "stop", "cut")


def some_of(names):
    """Returns an argparse type: a list with commas of some of `names`."""

    def parse(text):
        given = text.split(",")
        if not set(given) <= set(names):
            raise argparse.ArgumentTypeError(
                'expected some of %s, with commas between, got "%s"' % (", ".join(names), text)
            )
        return given

    return parse


def rate(text):
    try:
        net.bits_per_second(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def make_parser():
    parser = Parser(
        prog="slimps bench storm",
        allow_abbrev=False,
        description="Trains in calm and in a storm, in which a random process of the job is killed "
        "every so often and started again by launch, or stopped or cut off for a while. Compares "
        "throughput and the bits of the weights. Each server and each worker has a network "
        "namespace of its own; where these cannot be made (it needs root) all run on this "
        "machine's loopback. Exit status 1: the job failed, the weights differ, or a node counted "
        "as dead that was not.",
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
        help="between two troubles (10)",
    )
    parser.add_argument("--workers", type=number(1, 64, int), default=4, metavar="N", help="(4)")
    parser.add_argument("--servers", type=number(1, 64, int), default=2, metavar="N", help="(2)")
    parser.add_argument(
        "--troubles",
        type=some_of(TROUBLES),
        default=["kill"],
        metavar="TROUBLE,...",
        help="of %s: by SIGKILL, by SIGSTOP, by pulling the cable between its namespace and the "
        "others' (kill)" % ", ".join(TROUBLES),
    )
    parser.add_argument(
        "--roles",
        type=some_of(ROLES),
        default=list(ROLES),
        metavar="ROLE,...",
        help="which processes have troubles (%s); the scheduler's link is not cut"
        % ",".join(ROLES),
    )
    parser.add_argument(
        "--away",
        type=number(0.1, 40, float),
        nargs="+",
        default=[4.0, 15.0],
        metavar="S",
        help="how long a process is stopped or cut off, one of these at random; it counts as dead "
        "after %g s, and its place waits %d s more (4 15)" % (storm_watch.TIMEOUT_S, restarts.WAIT),
    )
    parser.add_argument(
        "--link", type=rate, metavar="RATE", help="of each namespace, such as 10mbit (unshaped)"
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
    """One training by `slimps launch`, in `network`, or on this machine if that is None."""

    def __init__(self, options, network, folder, name, epochs, flags=()):
        self.weights = os.path.join(folder, name)
        self.command = (
            [os.path.join(setup.REPOSITORY, "tools", "slimps"), "launch"]
            + ["--workers", str(options.workers), "--servers", str(options.servers)]
            + (network.flags() if network else [])
            + list(flags)
            + ["--", setup.program_path("slimps_worker")]
            + options.training.split()
            + ["--epochs", str(epochs), "--log_every", "20"]
            + ["--save_weights", self.weights + "{rank}"]
        )
        self.environment = None
        if network:
            self.command = network.command(self.command)
            self.environment = network.environment()
        self.workers = options.workers

    def run(self, watch, storm=None):
        """Trains, and returns the seconds of the training. Stops with status 1 if it fails."""
        process = subprocess.Popen(
            self.command,
            env=self.environment,
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
                    bar.reach(watch.step, watch.steps, "%d troubles" % len(watch.troubles))
                    time.sleep(0.05)
        finally:
            if process.poll() is None:
                try:
                    if storm is not None:
                        storm.calm_down()
                finally:
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
    """Brings a random process into trouble every `every` seconds, from the first step on."""

    def __init__(self, options, watch, network=None):
        self.options = options
        self.watch = watch
        self.network = network
        self.random = random.Random(options.seed)
        self.next = None
        self.cut_off = None  # the node whose link is cut

    def blow(self, launcher):
        """Makes or ends a trouble if it is time. The one before is then over, or is waited for."""
        now = time.monotonic()
        last = self.watch.troubles[-1] if self.watch.troubles else None
        if last is not None and last.is_due(now):
            self.calm_down()
        if self.watch.step and self.watch.step == self.watch.steps:
            return  # what is left to do is not training
        if self.next is None:
            self.next = now + self.options.every if self.watch.step > 0 else None
            return
        if now < self.next or last is not None and last.recovered is None:
            return
        kind = self.random.choice(self.options.troubles)
        found = [
            one
            for one in storm_watch.descendants(launcher)
            if one[0] in self.options.roles and not (kind == "cut" and one[0] == "scheduler")
        ]
        if not found:
            return
        role = self.random.choice(sorted({role for role, _ in found}))
        pid = self.random.choice(sorted(pid for one, pid in found if one == role))
        self.next = now + self.options.every
        self._make(kind, role, pid)

    def _make(self, kind, role, pid):
        away = None if kind == "kill" else self.random.choice(self.options.away)
        if kind == "cut":
            self.cut_off = self.network.node_of(pid)
            if self.cut_off is None:
                return  # the process has ended
        self.watch.note(kind, role, pid, away)
        if kind == "cut":
            self.network.cut(self.cut_off)
        else:
            os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)

    def calm_down(self):
        """Lets the last process run again that is stopped or cut off, if there is one."""
        last = self.watch.troubles[-1] if self.watch.troubles else None
        if last is None or last.kind == "kill" or last.mended:
            return
        if last.kind == "cut":
            self.network.mend(self.cut_off)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(last.pid, signal.SIGCONT)
        self.watch.note_mended(last)


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def report_of(options, calm, watch, weights_equal):
    def of(kind):
        return [one for one in watch.troubles if one.kind == kind]

    def recovery(role):
        return median([kill.recovered for kill in of("kill") if kill.role == role])

    def detection(kind):
        return median([one.detected for one in of(kind)])

    return {
        "kills": len(watch.troubles),
        "recovered": sum(one.recovered is not None for one in watch.troubles),
        "stops": len(of("stop")),
        "cuts": len(of("cut")),
        "throughput_of_calm": watch.steps_per_second() / calm.steps_per_second(),
        # At least: a push that is left out counts as a worker's whole step.
        "participation": 1 - watch.left_out / (watch.steps * options.workers),
        "left_out": watch.left_out,
        "weights_equal": weights_equal,
        "false_deaths": calm.false_deaths + watch.false_deaths,
        "detect_s": detection("kill"),
        "detect_stop_s": detection("stop"),
        "detect_cut_s": detection("cut"),
        "recover_worker_s": recovery("worker"),
        "recover_server_s": recovery("server"),
        "recover_scheduler_s": recovery("scheduler"),
        # Of training, while no scheduler is there.
        "scheduler_pause_s": median(
            [kill.longest_pause for kill in of("kill") if kill.role == "scheduler"]
        ),
    }


def measure(options, network, folder):
    probe = storm_watch.Watch()
    Training(options, network, folder, "probe", PROBE_EPOCHS).run(probe)
    epochs = max(1, round(options.minutes * 60 / (probe.seconds() / PROBE_EPOCHS)))
    progress.note("calm: %d epochs, about %.1f minutes" % (epochs, options.minutes))
    calm_training = Training(options, network, folder, "calm", epochs)
    calm = storm_watch.Watch()
    calm_training.run(calm)
    progress.note("storm: %s every %g s" % (" or ".join(options.troubles), options.every))
    watch = storm_watch.Watch()
    snapshots = ["--restart", "1000", "--snapshot_every", str(options.snapshot_every)]
    storm_training = Training(options, network, folder, "storm", epochs, snapshots)
    storm_training.run(watch, Storm(options, watch, network))
    bits = storm_training.bits()
    killed_worker = any(one.kind == "kill" and one.role == "worker" for one in watch.troubles)
    residuals = "--compression" in options.training and killed_worker
    is_lost = watch.left_out > 0 or residuals
    weights_equal = len(bits) == 1 and (is_lost or bits == calm_training.bits())
    return report_of(options, calm, watch, weights_equal)


def shown(value):
    return "-" if value is None else "%.2f" % value if isinstance(value, float) else str(value)


def check(parser, options):
    """Returns True if the jobs run in namespaces. Ends with an error if they must, and cannot."""
    out_files.refuse_unwritable(parser, "--json", options.json)
    if set(options.troubles) == {"cut"} and set(options.roles) == {"scheduler"}:
        parser.error("--troubles cut: expected --roles with worker or server, got scheduler alone")
    why_not = net.why_not()
    if why_not is None:
        return True
    if "cut" in options.troubles or options.link:
        parser.error("--troubles cut, --link: " + why_not)
    progress.note("all on this machine's loopback: " + why_not)
    return False


def main(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    in_namespaces = check(parser, options)
    common.find_programs(setup.PROGRAMS)
    with contextlib.ExitStack() as until_the_end:
        until_the_end.enter_context(common.ending_on_signals())
        folder = until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="slimps-storm-"))
        network = None
        if in_namespaces:
            network = until_the_end.enter_context(
                storm_network.StormNetwork(options.workers + options.servers, options.link, folder)
            )
        report = measure(options, network, folder)
    for name, value in report.items():
        print("%-20s %s" % (name, shown(value)))
    if options.json:
        out_files.save_json(options.json, report)
    return 0 if report["weights_equal"] and not report["false_deaths"] else 1
