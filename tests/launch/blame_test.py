# SPDX-License-Identifier: Apache-2.0
"""Whose failure ended a job, and what is said of it."""

import json
import signal
import sys
import unittest
from unittest import mock

from job_case import JobCase
from slimps_launch import carried
from slimps_launch import job_node


class BlameTest(JobCase):
    TRACEBACK = [
        "say=Traceback (most recent call last):",
        'say=  File "train.py", line 7, in <module>',
    ]

    def test_a_failing_node_is_named_with_its_status_and_last_lines(self):
        status, out = self.run_job(["wait"], ["say=disk is full", "exit=7"], ["wait"])
        self.assertEqual(7, status)
        self.assertIn("slimps: the job failed: server0 exited with status 7: disk is full\n", out)

    def blames(self, error, name="worker0"):
        """Returns what a scheduler does that says that a node ended the job."""
        return "report=" + json.dumps({"job": "failed", "blames": name, "error": error})

    def test_a_mistake_that_all_complain_of_is_told_once_by_who_made_it(self):
        told, late = self.path("told"), self.path("late")
        error = "push of key w: expected 10, got 11"
        status, out = self.run_job(
            [self.blames("worker 0 (host a, pid 7) failed: " + error), "touch=" + told, "wait"],
            ["until=" + told, "err=slimps_server: worker 0 (host a, pid 7) failed: " + error]
            + ["exit=1"],
            self.TRACEBACK
            + ["say=slimps.errors.InvalidArgumentError: " + error, "until=" + late, "exit=3"],
            workers=1,
            patience_ends=late,
        )
        self.assertEqual(3, status, out)
        self.assertEqual(
            [
                "slimps: the job failed: worker0 exited with status 3: "
                "slimps.errors.InvalidArgumentError: " + error,
                "  worker0| Traceback (most recent call last):",
                '  worker0|   File "train.py", line 7, in <module>',
                "  worker0| slimps.errors.InvalidArgumentError: " + error,
                "slimps: with it ended server0",
            ],
            self.report(out),
        )

    def report(self, out):
        """Returns the lines from the launcher's report on."""
        lines = out.splitlines()
        [at] = [at for at, line in enumerate(lines) if line.startswith("slimps: the job failed: ")]
        return lines[at:]

    def test_a_worker_that_ends_too_late_is_blamed_all_the_same(self):
        told = self.path("told")
        error = "ABORTED: worker 0: ValueError: bad luck"
        launcher = self.launcher(
            [self.blames("worker 0 (host a, pid 7) failed: " + error), "touch=" + told, "wait"],
            ["until=" + told, "err=slimps_server: worker 0 (host a, pid 7) failed: " + error]
            + ["exit=1"],
            ["wait"],
            workers=1,
        )
        launcher.job.stop_grace = 0.2
        self.assertEqual(1, launcher.run())
        self.assertEqual(
            [
                "slimps: the job failed: worker0 failed: worker 0 (host a, pid 7) failed: " + error,
                "slimps: with it ended server0",
            ],
            self.report(self.out.getvalue()),
        )

    def test_lines_of_a_process_blame_nobody(self):
        said = "err=slimps_server: worker 0 (host a, pid 7) failed: ABORTED: no such file"
        status, out = self.run_job(["wait"], [said, "exit=4"], ["wait"], workers=1)
        self.assertEqual(4, status, out)
        self.assertIn("the job failed: server0 exited with status 4: slimps_server: worker 0", out)

    def test_a_worker_s_own_exception_comes_before_the_ends_of_daemons(self):
        raised = "report=" + json.dumps({"error": "ValueError: bad luck"})
        ended = "report=" + json.dumps({"error": "worker 9 failed", "code": "UNAVAILABLE"})
        late = self.path("late")
        status, out = self.run_job(
            ["wait"],
            [ended, "exit=1"],
            [raised, "until=" + late, "exit=3"],
            workers=1,
            patience_ends=late,
        )
        self.assertEqual(3, status, out)
        self.assertIn("the job failed: worker0 exited with status 3: ValueError: bad luck\n", out)

    def test_who_aborts_because_another_failed_is_not_blamed(self):
        launcher = self.launcher(
            [self.blames("worker 0 failed: ABORTED", "server0"), "wait"],
            ["wait"],
            ["kill=SIGABRT"],
            workers=1,
        )
        launcher.job.stop_grace = 0.2
        status, out = launcher.run(), self.out.getvalue()
        self.assertIn("the job failed: server0 failed: worker 0 failed: ABORTED\n", out)
        self.assertIn("slimps: worker0 then was killed by SIGABRT\n", out)
        self.assertEqual(128 + signal.SIGABRT, status)

    def test_a_scheduler_that_blames_nobody_ended_the_job(self):
        stopped = {"job": "failed", "code": "CANCELLED", "error": "the scheduler was stopped"}
        told = self.path("told")
        status, out = self.run_job(
            ["report=" + json.dumps(stopped), "touch=" + told, "exit=1"],
            ["until=" + told, "err=slimps_server: the scheduler was stopped", "exit=1"],
            ["wait"],
        )
        self.assertEqual(1, status)
        self.assertIn(
            "slimps: the job failed: scheduler exited with status 1: the scheduler was stopped\n",
            out,
        )

    def test_workers_that_make_the_same_mistake_tell_it_once_more(self):
        status, out = self.run_job(
            ["wait"],
            ["wait"],
            self.TRACEBACK + ["say=ValueError: no such file", "exit=1"],
            workers=4,
        )
        self.assertEqual(1, status)
        self.assertEqual(1, "\n".join(self.report(out)).count("Traceback"), out)

    def test_each_rank_s_traceback_is_told_as_a_whole(self):
        """Frames of libraries follow the script's own, which comes first."""
        launcher = self.launcher(["wait"], ["wait"], [])
        path = self.put(
            "train.py",
            "import os, sys\n"
            "sys.path[:0] = %r; from eventually import eventually\n"
            "def deep(left, error):\n"
            "    if left: (deep if left %% 2 else lambda *two: deep(*two))(left - 1, error)\n"
            "    raise error\n"
            "open(os.environ['DMLC_WORKER_ID'], 'w').close()\n"
            "eventually(lambda: os.path.exists('0') and os.path.exists('1'))\n"
            "try:\n"
            "    deep(100, KeyError('first'))\n"
            "except KeyError:\n"
            "    deep(100, ValueError('of rank ' + os.environ['DMLC_WORKER_ID']))\n" % sys.path,
        )
        launcher.job.worker = ["env", "-C", self.folder, sys.executable, path]
        launcher.job.settle = 3.0  # for the other one, which begins at the same time
        self.assertEqual(1, launcher.run())
        said = "\n".join(self.report(self.out.getvalue()))
        for rank in "01":
            for line in (9, 11):
                self.assertIn(
                    'worker%s|   File "%s", line %d, in <module>' % (rank, path, line), said
                )
            self.assertIn("worker%s| ValueError: of rank %s" % (rank, rank), said)
        self.assertRegex(
            said, "\nslimps: worker. then exited with status 1: ValueError: of rank .\n"
        )

    def test_a_second_failure_with_another_reason_is_told_too(self):
        launcher = self.launcher([], [], [])
        said = {
            "server0": "slimps_server: disk is full",
            "worker0": "slimps_worker: no such flag",
            "worker1": "slimps.Error: disk is full",
            "worker2": None,
        }
        failed = []
        for name, line in said.items():
            failed.append(job_node.Node(name, "any", ["x"]))
            failed[-1].status = 2
            failed[-1].last_lines.extend(filter(None, [line]))
        self.assertEqual(2, launcher._report_failure(failed))
        self.assertEqual(
            [
                "slimps: the job failed: server0 exited with status 2: slimps_server: disk is full",
                "slimps: worker0 then exited with status 2: slimps_worker: no such flag",
                "slimps: with it ended worker1, worker2",
            ],
            self.out.getvalue().splitlines(),
        )

    def test_a_killed_node_is_named_with_its_signal(self):
        status, out = self.run_job(["wait"], ["wait"], ["say=so far", "kill=SIGKILL"], workers=1)
        self.assertEqual(128 + signal.SIGKILL, status)
        self.assertIn("worker0 was killed by SIGKILL", out)

    def test_a_killed_node_comes_before_those_that_complain_of_it(self):
        launcher = self.launcher([], [], [])
        complainer = job_node.Node("worker0", "worker", ["w"])
        complainer.status = 1
        complainer.last_lines.append("slimps_worker: server 1 is gone")
        killed = job_node.Node("server1", "server", ["s"])
        killed.status = -signal.SIGSEGV
        self.assertEqual(128 + signal.SIGSEGV, launcher._report_failure([complainer, killed]))
        self.assertIn("the job failed: server1 was killed by SIGSEGV", self.out.getvalue())
        self.assertIn(
            "worker0 then exited with status 1: slimps_worker: server 1 is gone",
            self.out.getvalue(),
        )

    def carried_nodes(self):
        """Returns worker0 on host a and worker1 on host b, and a scheduler that blames worker1."""
        nodes = [carried.CarriedNode("worker%d" % rank, "worker", "ab"[rank]) for rank in (0, 1)]
        for node in nodes:
            node.pid = 100
        scheduler = job_node.Node("scheduler", "scheduler", [])
        scheduler.status = 1
        scheduler.said = {"job": "failed", "blames": "worker1", "error": "worker 1 is silent"}
        return (*nodes, scheduler)

    def test_a_lost_node_is_told_with_the_words_that_blame_it(self):
        first, second, scheduler = self.carried_nodes()
        first.status = -signal.SIGKILL
        for own in ([], ["step 7"]):
            first.last_lines.extend(own)
            launcher = self.launcher([], [], [])
            launcher.nodes = [first, second, scheduler]
            with mock.patch.object(launcher, "kill_all"):
                launcher._report_failure([first, scheduler])
            self.assertEqual(
                [
                    "slimps: the job failed: worker1 on b is lost: worker 1 is silent",
                    "slimps: worker0 then was killed by SIGKILL on a",
                    "slimps: with it ended scheduler",
                ],
                self.out.getvalue().splitlines(),
            )

    def test_a_server_that_ends_early_fails_the_job(self):
        launcher = self.launcher(["wait"], ["exit=0"], ["wait"])
        launcher.job.end_grace = 0.05
        self.assertEqual(1, launcher.run())
        self.assertIn(
            "server0 exited with status 0 while workers were running", self.out.getvalue()
        )

    def test_a_scheduler_that_cannot_start_is_named(self):
        launcher = self.launcher([], [], ["wait"])
        launcher.job.scheduler = [sys.executable, "-c", "import sys; sys.exit('no port is free')"]
        self.assertEqual(1, launcher.run())
        self.assertIn("scheduler exited with status 1: no port is free\n", self.out.getvalue())

    def test_a_program_that_is_not_there_is_named(self):
        launcher = self.launcher(["wait"], ["wait"], [])
        launcher.job.worker = ["/no/such/program"]
        self.assertEqual(127, launcher.run())
        self.assertIn("cannot run /no/such/program", self.out.getvalue())


if __name__ == "__main__":
    unittest.main()
