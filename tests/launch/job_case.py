# SPDX-License-Identifier: Apache-2.0
"""JobCase: a test case with jobs of fake nodes."""

import io
import os
import sys

import folder_case
import proc_files
from slimps_launch import job_launch
from slimps_launch import job_node

HERE = os.path.dirname(os.path.abspath(__file__))

FAKE = [sys.executable, os.path.join(HERE, "fake_node.py")]


class WatchedLauncher(job_launch.Launcher):
    """Calls `when_idle`, if it is set, whenever it has waited for nodes and none has ended."""

    def __init__(self, job, out):
        super().__init__(job, out=out)
        self.ended = set()  # names of the nodes that it has seen end
        self.when_idle = None

    def next_event(self, seconds):
        event = super().next_event(seconds)
        if isinstance(event, job_node.Node):
            self.ended.add(event.name)
        if event is None and self.when_idle is not None:
            self.when_idle()
        return event


class JobCase(folder_case.FolderCase):
    def launcher(self, scheduler, server, worker, workers=2, servers=1):
        job = job_launch.Job(FAKE + scheduler, FAKE + server, FAKE + worker, workers, servers)
        job.settle = 0.1
        self.out = io.StringIO()
        return WatchedLauncher(job, self.out)

    def run_job(self, *arguments, patience_ends=None, **counts):
        """Runs a job. Makes the file `patience_ends` when the launcher has waited for further
        failures after that of server0, and none has come."""
        launcher = self.launcher(*arguments, **counts)
        if patience_ends is not None:
            launcher.when_idle = lambda: "server0" in launcher.ended and self.put(patience_ends, "")
        status = launcher.run()
        for node in launcher.nodes:
            if node.process is not None:
                self.assertFalse(proc_files.alive(node.process.pid), node.name)
        return status, self.out.getvalue()
