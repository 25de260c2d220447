# SPDX-License-Identifier: Apache-2.0
"""Daemons that die are started again, as often as the job allows."""

import unittest

from job_case import JobCase


class RestartTest(JobCase):
    def run_restarting(self, restarts, server, worker, scheduler=("wait",)):
        launcher = self.launcher(list(scheduler), server, worker, workers=1)
        launcher.job.restarts = restarts
        return launcher.run(), self.out.getvalue()

    def test_a_server_that_is_killed_is_started_again(self):
        done = self.path("done")
        status, out = self.run_restarting(
            1, ["once=" + self.path("died"), "touch=" + done, "wait"], ["until=" + done, "exit=3"]
        )
        self.assertEqual(3, status, out)
        self.assertIn("slimps: server0 was killed by SIGKILL\n", out)
        self.assertIn("slimps: server0 was started again", out)
        self.assertIn("0 more restarts are left", out)

    def test_when_no_restarts_are_left_its_death_ends_the_job(self):
        status, out = self.run_restarting(2, ["kill=SIGKILL"], ["wait"])
        self.assertEqual(137, status, out)
        self.assertEqual(2, out.count("was started again"), out)

    def test_a_scheduler_is_started_again_on_its_port(self):
        begun, done = self.path("begun"), self.path("done")
        status, out = self.run_restarting(
            1,
            ["wait"],
            ["touch=" + begun, "until=" + done, "exit=3"],
            ["until=" + begun, "once=" + self.path("died"), "arguments", "touch=" + done, "wait"],
        )
        self.assertEqual(3, status, out)
        self.assertIn("slimps: scheduler was killed by SIGKILL\n", out)
        self.assertIn("scheduler| --port 4711\n", out)

    def test_a_worker_that_is_killed_is_started_again(self):
        status, out = self.run_restarting(1, ["wait"], ["once=" + self.path("died"), "exit=4"])
        self.assertEqual(4, status, out)
        self.assertIn("slimps: worker0 was killed by SIGKILL\n", out)
        self.assertIn("slimps: worker0 was started again", out)

    def test_a_worker_that_ends_with_an_error_is_not_started_again(self):
        status, out = self.run_restarting(5, ["wait"], ["exit=4"])
        self.assertEqual(4, status, out)
        self.assertNotIn("started again", out)

    def test_a_server_that_ends_with_the_job_is_not_started_again(self):
        blamed = "say=slimps_server: worker 0 (host a, pid 7) failed: ABORTED"
        status, out = self.run_restarting(5, [blamed, "exit=1"], ["wait"])
        self.assertNotIn("started again", out)
        self.assertNotEqual(0, status)

    def test_a_killed_scheduler_is_started_again_whatever_it_said_before(self):
        begun, done = self.path("begun"), self.path("done")
        said = (
            "say=server 0 (host a, pid 7) is gone; a process that was started anew takes its place"
        )
        status, out = self.run_restarting(
            1,
            ["wait"],
            ["touch=" + begun, "until=" + done, "exit=3"],
            [said, "until=" + begun, "once=" + self.path("died"), "touch=" + done, "wait"],
        )
        self.assertEqual(3, status, out)
        self.assertIn("scheduler was started again", out)

    def test_a_server_is_not_started_again_once_the_workers_have_ended(self):
        over = self.path("over")
        launcher = self.launcher(["wait"], ["until=" + over, "exit=5"], ["exit=0"], workers=1)
        launcher.job.restarts = 5
        launcher.when_idle = lambda: "worker0" in launcher.ended and self.put(over, "")
        self.assertEqual(5, launcher.run())
        self.assertNotIn("started again", self.out.getvalue())


if __name__ == "__main__":
    unittest.main()
