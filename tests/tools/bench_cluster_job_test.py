# SPDX-License-Identifier: Apache-2.0
"""One job of slimps bench cluster, with scripts for daemons and workers and without a network.

It tests how the job ends when one of them ends.
"""

import os
import sys
import tempfile
import threading
import unittest

from bench.cluster import cluster_job as jobs

DAEMON = "while [ ! -e \"$0.over\" ]; do sleep 0.01; done"
# A worker that does what it is told. With END it ends the daemons.
REPORT = """for word in "$@"; do
  case $word in --report=*) report=${word#--report=};; --rank=*) rank=${word#--rank=};; esac
done
"""
GOOD = REPORT + "echo ready; read go; echo decision; echo '{\"rank\": '$rank'}' > $report; %s"
END = "touch $(dirname $0)/scheduler.over $(dirname $0)/server.over"


class FakeNetwork:
    """Calls `before_go` when the link is shaped. That is right before the workers are told to
    go."""

    def __init__(self, before_go=lambda: None):
        self.before_go = before_go
        self.rates = []

    def command(self, node, command):
        return command

    def address(self, node):
        return "node%d" % node

    def shape(self, rate):
        self.rates.append(rate)
        if len(self.rates) == 2:
            self.before_go()


class JobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.programs = {
            "slimps_scheduler": self.script("scheduler", DAEMON),
            "slimps_server": self.script("server", DAEMON),
        }

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o755)
        return path

    def job(self, worker, before_go=None, timeout=60.0, **changes):
        self.programs["bench_cluster_worker"] = self.script("worker", worker)
        self.network = FakeNetwork()
        job = jobs.Job(
            self.network, dict(self.programs, **changes), 2, "together", "1gbit", timeout=timeout
        )
        if before_go:
            self.network.before_go = lambda: before_go(job)
        return job

    def failure(self, job):
        uncaught = []
        hook, sys.unraisablehook = sys.unraisablehook, uncaught.append
        try:
            with self.assertRaises(jobs.JobError) as error:
                job.run([])
            for process in job.processes:
                self.assertIsNotNone(process.popen.poll(), process.name)
            del job.processes[:]  # an untidied process complains now
        finally:
            sys.unraisablehook = hook
        self.assertEqual([], uncaught)
        self.assertEqual([threading.current_thread()], threading.enumerate())
        return str(error.exception)

    def test_reports_come_by_rank_and_the_link_is_shaped_before_the_first_iteration(self):
        self.assertEqual([{"rank": 0}, {"rank": 1}], self.job(GOOD % END).run([]))
        self.assertEqual(["unshaped", "1gbit"], self.network.rates)

    def test_a_worker_that_dies_before_it_is_told_to_go_is_named_with_how_it_ended(self):
        def wait_for_its_end(job):
            next(process for process in job.processes if process.name == "worker1").popen.wait()

        said = self.failure(
            self.job(
                REPORT + "echo ready; [ $rank = 0 ] || { echo out of memory; exit 3; }; read go; "
                "sleep 1000",
                wait_for_its_end,
            )
        )
        self.assertIn("the job failed: worker1 exited with status 3\n", said)
        self.assertIn("  worker1| out of memory", said)
        said = self.failure(
            self.job(
                REPORT + "echo ready; [ $rank = 0 ] || kill -SEGV $$; read go; sleep 1000",
                wait_for_its_end,
            )
        )
        self.assertIn("the job failed: worker1 was killed by SIGSEGV\n", said)

    def test_one_that_a_signal_ended_is_named_before_those_that_complain_of_it(self):
        self.programs["slimps_server"] = self.script(
            "server", "while [ ! -e $(dirname $0)/complained ]; do sleep 0.01; done; kill -KILL $$"
        )
        said = self.failure(
            self.job(
                REPORT + "echo ready; read go; echo lost; touch $(dirname $0)/complained; exit 1"
            )
        )
        self.assertRegex(said, "^the job failed: server[01] was killed by SIGKILL\n")

    def test_a_worker_that_leaves_early_or_without_a_report_is_named(self):
        self.assertIn(
            "before it had begun, worker0 exited with status 0",
            self.failure(
                self.job(REPORT + "[ $rank = 1 ] || exit 0; echo ready; read go; sleep 1000")
            ),
        )
        said = self.failure(
            self.job(REPORT + "echo ready; read go; [ $rank = 0 ] && echo '{}' > $report; " + END)
        )
        self.assertIn(
            "no report: cannot read it: No such file or directory: worker1 exited with status 0",
            said,
        )
        for name in ("scheduler.over", "server.over"):
            os.unlink(os.path.join(self.folder, name))
        said = self.failure(self.job(REPORT + "echo ready; read go; echo '{' > $report; " + END))
        self.assertIn("no report: not JSON: ", said)

    def test_silence_has_a_deadline_and_names_who_still_runs(self):
        said = self.failure(self.job(REPORT + "echo waiting; sleep 1000", timeout=3.0))
        self.assertIn("the job did not end within 3 s; still running: scheduler", said)
        self.assertIn("worker1\nwaiting", said)

    def test_a_program_that_cannot_be_run_is_named(self):
        self.assertIn(
            "cannot run /no/such/server: No such file",
            self.failure(self.job("", slimps_server="/no/such/server")),
        )


if __name__ == "__main__":
    unittest.main()
