# SPDX-License-Identifier: Apache-2.0
"""Processes that died are started again, as a cluster manager would do it.

A server goes on from its snapshot, and the workers send what that lacks. A scheduler goes on by its
journal, on the port that it had. A worker takes its rank back and goes on with the next round; its
program asks the store which step that is (former_rounds). Where that does not help, the whole job
goes back to its last checkpoint (checkpoint.py).
"""

import argparse
import os
import time

from slimps_launch import blame
from slimps_launch import job_folders

EVERY = 30  # seconds between two snapshots
USAGE = 2  # the status of a daemon that was called wrongly
# Seconds that the others wait for a daemon to come back. Their calls wait longer, whatever their
# timeout_s (Welcome.least_timeout_ms).
WAIT = 40
SILENCE = 10  # seconds after which the scheduler misses a node
# A process that ends so soon after it was started again has failed at its start. It then waits
# FIRST_DELAY, twice as long each further time, and LONGEST_DELAY at most: five tries within WAIT.
AT_ITS_START = 5.0
FIRST_DELAY = 1.0
LONGEST_DELAY = 16.0
MOST_IN_A_ROW = 3  # so often it is tried where the whole job can go back to a checkpoint instead
# What the report of a process says that counts as dead (proto/net/membership/node_name.h).
FENCED = "does not know this process any more"
# How other places start a job again.
OWN_MEANS = {
    "mpi": "mpirun starts no process again: start the job again with --checkpoint DIR --resume",
    "slurm": "Slurm starts a whole job again (sbatch --requeue): give --checkpoint DIR --resume",
    "k8s": "Kubernetes starts a whole job again (a Job that is applied again, a TrainJob's "
    "maxRestarts): give --checkpoint DIR --resume",
}


def seconds(text):
    if not text.isdigit() or not 1 <= int(text) <= 86400:
        raise argparse.ArgumentTypeError('expected 1 to 86400 seconds, got "%s"' % text)
    return int(text)


def times(text):
    if not text.isdigit() or int(text) > 1000:
        raise argparse.ArgumentTypeError('expected 0 to 1000, got "%s"' % text)
    return int(text)


def add_flags(parser):
    parser.add_argument(
        "--restart",
        type=times,
        metavar="N",
        default=0,
        help="start servers and the scheduler again if they die, and workers that a signal kills "
        "or that were stopped or cut off for too long, N times in all: they go on where they were, "
        "or, with --checkpoint, the whole job from its last checkpoint (--on local, --on ssh)",
    )
    parser.add_argument(
        "--snapshot_dir",
        metavar="DIR",
        help="where each machine keeps snapshots while the job runs, in a temporary folder (with "
        "--restart; default: /tmp or $TMPDIR)",
    )
    parser.add_argument(
        "--snapshot_every",
        type=seconds,
        metavar="SECONDS",
        help="how often servers take a snapshot (with --restart; default: %d)" % EVERY,
    )

    parser.add_argument(
        "--worker_timeout_s",
        "--worker_timeout",
        dest="worker_timeout",
        type=seconds,
        metavar="SECONDS",
        help="go on without a worker that a signal killed or stopped and that has been missed for "
        "so long (default: the job ends) (--on local, --on ssh)",
    )


def check(parser, options, where):
    if options.restart and where in OWN_MEANS:
        parser.error("--restart goes with --on local and ssh. " + OWN_MEANS[where])
    if options.worker_timeout and where in OWN_MEANS:
        parser.error(
            "--worker_timeout_s goes with --on local and ssh: %s ends a job itself" % where
        )
    for flag in ("snapshot_dir", "snapshot_every"):
        if getattr(options, flag) and not options.restart:
            parser.error("--%s goes with --restart N" % flag)


def has_died(node):
    """True if a signal ended the process, or if it ended because it counted as dead: it was stopped
    or cut off for too long."""
    if node.status is None or node.status == 0:
        return False
    return node.status < 0 or any(FENCED in node.report.get(key, "") for key in ("error", "cause"))


class Snapshots:
    """Where the daemons keep what they need to be started again."""

    def __init__(self, parent, every):
        self.parent = parent  # on each machine; None: where temporary files are
        self.every = every  # seconds

    def folder(self):
        """Makes a folder, which goes with the block. LaunchError: it cannot be made."""
        return job_folders.folder("snapshots", self.parent, "--snapshot_dir ")

    @staticmethod
    def of_scheduler(folder):
        """Returns the flags of a scheduler that can be started again."""
        journal = os.path.join(folder, "scheduler.journal")
        return ["--restart_timeout_s", str(WAIT), "--journal", journal]

    def of_server(self, folder):
        return ["--snapshot_dir", folder, "--snapshot_every", str(self.every)]


def prepare(job, options):
    """Makes a job restart what dies, or go on without it, as the flags say."""
    job.worker_timeout = options.worker_timeout
    if options.restart:
        job.restarts = options.restart
        parent = options.snapshot_dir and os.path.abspath(options.snapshot_dir)
        job.snapshots = Snapshots(parent, options.snapshot_every or EVERY)


class Restarts:
    """Which processes of a launcher may still be started again. Owned by its main thread."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.left = launcher.job.restarts
        self.begin()

    def begin(self):
        """Begins the job, for the first time or anew."""
        self.death = False  # True: a process has died, so the job may fail through no fault of its
        self.begun = {}  # when a process was last started again, by its name
        self.in_a_row = {}  # how often a process has failed at its start, by its name
        self.due = []  # (when, the process that has ended, the one to start)

    # ---- one process -----------------------------------------------------------------------------

    def take(self, node):
        """Notes that a node has failed, and starts it again, perhaps later.

        Returns the new node, or None: there is none.
        """
        self.death = self.death or self._is_death(node)
        if self.left == 0 or node.stopped or not self._goes_on(node):
            return None
        if node.role != "worker" and not self._is_death(node):
            return None
        delay = self._delay(node.name)
        if self.in_a_row[node.name] > MOST_IN_A_ROW and self._has_checkpoint():
            return None
        again = node.successor(self.launcher)
        if again is None:
            return None
        self.left -= 1
        if node.role == "scheduler":
            port = ["--port", str(self.launcher.port)]
            again.command = self.launcher.job.scheduler_command() + port
        self.launcher.say("slimps: %s %s" % (node.name, node.describe_end()))
        self.launcher.say(
            "slimps: %s %s started again%s, to go on where it was; %d more restarts are left"
            % (
                node.name,
                "is" if delay else "was",
                " in %.0f s" % delay if delay else "",
                self.left,
            )
        )
        self.due.append((time.monotonic() + delay, node, again))
        self.start_due()
        return again

    def start_due(self):
        """Starts the processes whose time has come."""
        now = time.monotonic()
        ready = [one for one in self.due if one[0] <= now]
        self.due = [one for one in self.due if one[0] > now]
        for _, former, again in ready:
            if self._goes_on(former):
                self.begun[again.name] = time.monotonic()
                again.start_again(self.launcher)
            else:  # the job has ended without it
                again.end_as(former)
                self.launcher.events.put(again)

    def seconds_left(self):
        """Returns the seconds until the next process is to be started."""
        return min((one[0] for one in self.due), default=float("inf")) - time.monotonic()

    def _delay(self, name):
        """Returns the seconds until a process that has ended is started again."""
        early = time.monotonic() - self.begun.get(name, -AT_ITS_START) < AT_ITS_START
        self.in_a_row[name] = self.in_a_row.get(name, 0) + 1 if early else 0
        return min(FIRST_DELAY * 2 ** (self.in_a_row[name] - 1), LONGEST_DELAY) if early else 0.0

    def _goes_on(self, node):
        """True if the job goes on with a new process in this node's place."""
        nodes = self.launcher.all_nodes()
        if node.role == "worker":
            over = any(one.role == "scheduler" and one.status == 0 for one in nodes)
            return has_died(node) and not over  # one that ends with an error would meet it again
        nodes += [again for _, _, again in self.due]
        works = any(one.role == "worker" and one.status is None for one in nodes)
        return works and node.role in ("server", "scheduler")

    def _is_death(self, node):
        """True if a process died, and did not end because it was told to, or with the job."""
        if node.stopped or node.status is None or node.status == 0 or node.role == "carrier":
            return False
        if has_died(node):
            return True
        if node.role == "worker" or node.status == USAGE:
            return False
        return not blame.failure(self.launcher.all_nodes())  # or else it ends with the job

    def goes_on_without(self, node):
        """True if the job goes on without a worker that a signal killed. Says so."""
        after = self.launcher.job.worker_timeout
        others = [
            one
            for one in self.launcher.all_nodes()
            if one.role == "worker" and one is not node and one.status is None
        ]
        died = node.role == "worker" and has_died(node) and not node.stopped
        if not after or not died or not others:
            return False
        self.launcher.job.end_grace += after + SILENCE
        self.launcher.say("slimps: %s %s" % (node.name, node.describe_end()))
        self.launcher.say(
            "slimps: the job goes on without %s once it has been missed for %d s"
            % (node.name, after)
        )
        return True

    # ---- the whole job ---------------------------------------------------------------------------

    def _has_checkpoint(self):
        checkpoints = self.launcher.job.checkpoints
        return checkpoints is not None and checkpoints.newest() is not None

    def may_go_back(self, failed):
        """True if the whole job may begin anew at a checkpoint.

        A job in which no process died has failed by itself, and would meet that again. Ask before
        the processes are ended: that makes them say other things.
        """
        nodes = self.launcher.all_nodes()
        if self.left == 0 or self.launcher.job.checkpoints is None or blame.was_stopped(nodes):
            return False
        workers = [node for node in nodes if node.role == "worker"]
        if workers and all(node.status == 0 for node in workers):
            return False  # its work is done
        name = blame.accused(nodes)
        is_silent = any(  # its machine is lost
            node.name == name and node.status is None and not node.report for node in nodes
        )
        return self.death or is_silent or any(self._is_death(node) for node in failed)

    def way_back(self):
        """Returns the checkpoint from which the whole job goes on (checkpoint.Found), or None."""
        job = self.launcher.job
        found = job.checkpoints.newest()
        if found is None:
            self.launcher.say(
                "slimps: the job cannot go back to a checkpoint: %s has no whole one"
                % job.checkpoints.folder
            )
            return None
        self.left -= 1
        return found
