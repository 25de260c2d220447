# SPDX-License-Identifier: Apache-2.0
"""Whose failure ended a job, and what is said of it."""

import signal
import sys
import unittest
from unittest import mock

from job_case import JobCase
from slimps_launch import blame
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

    def test_a_mistake_that_all_complain_of_is_told_once_by_who_made_it(self):
        pid, late = self.path("pid"), self.path("late")
        error = "push of key w: expected 10, got 11"
        complain = [
            "until=" + pid,
            "blame=" + pid,
            "say=E20261122 13:33:48 x.cc:1] " + error,
            "exit=1",
        ]
        status, out = self.run_job(
            ["wait"],
            complain,
            ["pid=" + pid]
            + self.TRACEBACK
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
                "slimps: with it ended server0 (--verbose shows what they said)",
            ],
            out.splitlines(),
        )

    def test_workers_that_make_the_same_mistake_tell_it_once(self):
        status, out = self.run_job(
            ["wait"],
            ["wait"],
            self.TRACEBACK + ["say=ValueError: no such file", "exit=1"],
            workers=4,
        )
        self.assertEqual(1, status)
        self.assertEqual(1, out.count("no such file"), out)
        self.assertEqual(1, out.count("Traceback"), out)

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
                "slimps: with it ended worker1, worker2 (--verbose shows what they said)",
            ],
            self.out.getvalue().splitlines(),
        )

    def test_a_killed_node_is_named_with_its_signal(self):
        status, out = self.run_job(["wait"], ["wait"], ["say=so far", "kill=SIGKILL"], workers=1)
        self.assertEqual(128 + signal.SIGKILL, status)
        self.assertIn("worker0 was killed by SIGKILL", out)

    def test_who_is_said_to_be_there_is_not_blamed(self):
        nodes = [job_node.Node("server0", "server", ["s"]), job_node.Node("worker0", "worker", [])]
        scheduler = job_node.Node("scheduler", "scheduler", [])
        scheduler.last_lines += [
            "server 0 (host vm, pid 7) listens at tcp://127.0.0.1:1; missing: 1 worker",
            "worker 0 (host vm, pid 8) is there",
            "worker 0 (host vm, pid 8) has closed its connection, and is awaited for 10s",
        ]
        self.assertEqual((None, None), blame.blamed(nodes, [scheduler]))
        scheduler.last_lines.append("worker 0 (host vm, pid 8) failed: ABORTED: no data")
        self.assertIs(nodes[1], blame.blamed(nodes, [scheduler])[0])

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

    def test_a_worker_that_others_name_is_waited_for_and_comes_before_them(self):
        pid, late = self.path("pid"), self.path("late")
        status, out = self.run_job(
            ["wait"],
            ["until=" + pid, "blame=" + pid, "exit=1"],
            ["pid=" + pid, "until=" + late, "exit=3"],
            workers=1,
            patience_ends=late,
        )
        self.assertEqual(3, status, out)
        self.assertIn("the job failed: worker0 exited with status 3", out)
        self.assertIn("slimps: with it ended server0", out)

    def carried_nodes(self):
        """Returns worker0 on host a and worker1 on host b, and a scheduler that blames worker1."""
        nodes = [carried.CarriedNode("worker%d" % rank, "worker", "ab"[rank]) for rank in (0, 1)]
        for node in nodes:
            node.pid = 100
        scheduler = job_node.Node("scheduler", "scheduler", [])
        scheduler.status = 1
        scheduler.last_lines.append("slimps_scheduler: worker 1 (host b, pid 100) is silent")
        return (*nodes, scheduler)

    def test_a_node_is_known_by_its_name_for_hosts_may_have_equal_pids(self):
        first, second, scheduler = self.carried_nodes()
        found = blame.blamed([first, second, scheduler], [scheduler])
        self.assertEqual((second, scheduler.last_lines[0]), found)
        self.assertEqual((None, None), blame.blamed([first, second], [first]))

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
                "slimps: the job failed: worker1 on b is lost: %s\n" % scheduler.last_lines[0],
                self.out.getvalue(),
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
