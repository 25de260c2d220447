# SPDX-License-Identifier: Apache-2.0
"""Processes that died are started again, as a cluster manager would do it.

A server goes on from its snapshot, and the workers send what that lacks. A scheduler goes on by its
journal, on the port that it had. A worker takes its rank back and goes on with the next round; its
program asks the store which step that is (former_rounds).
"""

import argparse
import contextlib
import os
import tempfile

from slimps_launch import blame
from slimps_launch import errors
from slimps_launch import job_node

EVERY = 30  # seconds between two snapshots
USAGE = 2  # the status of a daemon that was called wrongly
# Seconds that the others wait for a daemon to come back. With the heartbeat's 10 s it is less than
# the minute that a push may take.
WAIT = 40


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
        help="start servers and the scheduler again if they die, and workers that a signal kills, "
        "N times in all: they go on where they were (--on local)",
    )
    parser.add_argument(
        "--snapshot_dir",
        metavar="DIR",
        help="where snapshots are kept while the job runs (with --restart; default: a temporary "
        "folder)",
    )
    parser.add_argument(
        "--snapshot_every",
        type=seconds,
        metavar="SECONDS",
        help="how often servers take a snapshot (with --restart; default: %d)" % EVERY,
    )


def check(parser, options, where):
    if options.restart and where != "local":
        parser.error("--restart goes with --on local")
    for flag in ("snapshot_dir", "snapshot_every"):
        if getattr(options, flag) and not options.restart:
            parser.error("--%s goes with --restart N" % flag)


@contextlib.contextmanager
def prepared(job, options):
    """Makes a job restart its daemons as the flags say. Keeps their folder until the job's end."""
    if not options.restart:
        yield
        return
    job.restarts = options.restart
    with contextlib.ExitStack() as kept:
        folder = options.snapshot_dir
        try:
            if folder is None:
                folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="slimps-snapshots-"))
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise errors.LaunchError(
                "--snapshot_dir %s: %s" % (folder or "", error.strerror)
            ) from error
        journal = os.path.join(folder, "scheduler.journal")
        if os.path.exists(journal):
            raise errors.LaunchError(
                "--snapshot_dir %s has the state of a job that did not end: remove it, or name "
                "another folder" % folder
            )
        job.scheduler = job.scheduler + ["--restart_timeout_s", str(WAIT), "--journal", journal]
        job.server = job.server + [
            "--snapshot_dir",
            folder,
            "--snapshot_every",
            str(options.snapshot_every or EVERY),
        ]
        yield


class Restarts:
    """Which processes of a launcher may still be started again. Owned by its main thread."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.left = launcher.job.restarts

    def _goes_on(self, node):
        """True if the job goes on with a new process in this node's place."""
        if node.role == "worker":
            over = any(one.role == "scheduler" and one.status == 0 for one in self.launcher.nodes)
            return node.status < 0 and not over  # one that ends with an error would meet it again
        works = any(one.role == "worker" and one.status is None for one in self.launcher.nodes)
        return works and node.role in ("server", "scheduler")

    def take(self, node):
        """Starts a node again that has ended. Returns the new one, or None: it is not to be."""
        launcher = self.launcher
        if self.left == 0 or node not in launcher.nodes or not self._goes_on(node):
            return None
        # A daemon that ends by itself and names another process ends because the job has ended.
        named = blame.blamed(launcher.all_nodes(), [node])[0] is not None
        if node.status > 0 and named or node.status == USAGE:
            return None
        self.left -= 1
        command = node.command
        if node.role == "scheduler":
            command = launcher.job.scheduler + ["--port", str(launcher.port)]
        again = job_node.Node(node.name, node.role, command, node.cores)
        launcher.nodes.remove(node)
        launcher.start_node(again, node.environment)
        launcher.say("slimps: %s %s" % (node.name, node.describe_end()))
        launcher.say(
            "slimps: %s was started again, to go on where it was; %d more restarts are left"
            % (node.name, self.left)
        )
        return again
