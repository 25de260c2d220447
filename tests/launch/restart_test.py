# SPDX-License-Identifier: Apache-2.0
"""Processes that die are started again, or else the whole job, as often as the job allows."""

import argparse
import json
import os
import signal
import unittest
import zlib
from unittest import mock

from job_case import JobCase
from slimps_launch import checkpoint
from slimps_launch import errors
from slimps_launch import restarts


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
        self.assertEqual(2, out.count(" started again"), out)

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

    def test_what_a_dead_worker_has_started_is_gone_before_the_next_starts(self):
        pid = self.path("pid")
        worker = ["gone=" + pid, "child=" + pid, "once=" + self.path("died"), "exit=4"]
        status, out = self.run_restarting(1, ["wait"], worker)
        self.assertEqual(4, status, out)

    def test_a_worker_that_ends_with_an_error_is_not_started_again(self):
        status, out = self.run_restarting(5, ["wait"], ["exit=4"])
        self.assertEqual(4, status, out)
        self.assertNotIn("started again", out)

    def test_a_worker_that_was_taken_for_dead_is_started_again(self):
        words = "scheduler x does not know this process any more: it was silent for too long"
        fenced = "report=" + json.dumps({"error": words})
        fails = "fail=" + self.path("died")
        status, out = self.run_restarting(1, ["wait"], [fenced, fails, "exit=4"])
        self.assertEqual(4, status, out)
        self.assertIn("slimps: worker0 was started again", out)

    def test_the_job_goes_on_without_a_worker_that_is_killed(self):
        done = self.path("done")
        launcher = self.launcher(
            ["until=" + done], ["until=" + done], ["once=" + self.path("died"), "until=" + done]
        )
        launcher.job.worker_timeout = 7
        launcher.when_idle = lambda: "goes on without" in self.out.getvalue() and self.put(done, "")
        self.assertEqual(0, launcher.run(), self.out.getvalue())
        self.assertRegex(
            self.out.getvalue(),
            "slimps: worker(.) was killed by SIGKILL\n"
            r"slimps: the job goes on without worker\1 once it has been missed for 7 s",
        )

    def test_the_last_worker_is_not_left_behind(self):
        launcher = self.launcher(["wait"], ["wait"], ["kill=SIGKILL"], workers=1)
        launcher.job.worker_timeout = 7
        self.assertEqual(137, launcher.run())

    def test_a_server_that_ends_with_the_job_is_not_started_again(self):
        told = self.path("told")
        failed = "report=" + json.dumps({"job": "failed", "blames": "worker0", "error": "ABORTED"})
        status, out = self.run_restarting(
            5, ["until=" + told, "exit=1"], ["until=" + told, "exit=3"], [failed, "touch=" + told]
        )
        self.assertNotIn("started again", out)
        self.assertNotEqual(0, status)

    def test_lines_decide_nothing(self):
        """A server that only says that another failed is started again, a worker is not."""
        said = "say=slimps_server: worker 0 (host a, pid 7) failed: the job is over"
        done = self.path("done")
        fenced = "say=scheduler x does not know this process any more"
        status, out = self.run_restarting(
            5,
            [said, "fail=" + self.path("died"), "touch=" + done, "wait"],
            [fenced, "until=" + done, "exit=4"],
        )
        self.assertEqual(4, status, out)
        self.assertEqual(1, out.count("started again"), out)
        self.assertIn("slimps: server0 was started again", out)

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

    def test_what_fails_at_its_start_is_tried_later_each_time(self):
        with mock.patch.object(restarts, "FIRST_DELAY", 0.1):
            status, out = self.run_restarting(4, ["exit=3"], ["wait"])
        self.assertEqual(3, status, out)
        self.assertIn("server0 was started again, to go on", out)
        for left, seconds in ((2, "0"), (1, "0"), (0, "0")):
            self.assertIn(
                "server0 is started again in %s s, to go on where it was; %d more"
                % (seconds, left),
                out,
            )

    def test_delays_grow_to_a_limit_and_end_after_a_while(self):
        clock = mock.Mock()
        launcher = self.launcher([], [], [])
        again = restarts.Restarts(launcher)
        with mock.patch.object(restarts, "time", clock):
            clock.monotonic.return_value = 100.0
            delays = []
            for _ in range(7):
                delays.append(again._delay("server0"))
                again.begun["server0"] = clock.monotonic()
            self.assertEqual([0, 1, 2, 4, 8, 16, 16], delays)
            clock.monotonic.return_value += restarts.AT_ITS_START
            self.assertEqual(0, again._delay("server0"))
        self.assertLess(sum(delays[:6]), restarts.WAIT)

    def test_snapshots_lie_in_a_folder_of_each_start(self):
        with restarts.Snapshots(self.path("new"), 7).folder() as folder:
            self.assertEqual(self.path("new"), os.path.dirname(folder))
        self.assertEqual([], os.listdir(self.path("new")))
        self.put("file", "")
        with self.assertRaisesRegex(errors.LaunchError, "--snapshot_dir .*file: File exists"):
            with restarts.Snapshots(self.path("file"), 7).folder():
                pass


def manifest(rounds):
    """Returns the content of the manifest of a checkpoint."""
    text = json.dumps({"format": checkpoint.FORMAT, "rounds": rounds}).encode()[:-1]
    return text + checkpoint.SEAL + b'%08x"\n}\n' % zlib.crc32(text)


class GoBackTest(JobCase):
    def save(self, name, content):
        os.makedirs(self.path("saved/" + name))
        with open(self.path("saved/" + name + "/manifest.json"), "wb") as file:
            file.write(content)

    def run_going_back(self, restarts_, server, worker, saved=(8, 10, 9)):
        """Runs a job of one worker with checkpoints of so many rounds."""
        launcher = self.launcher(["until=" + self.path("done")], server, worker, workers=1)
        launcher.job.restarts = restarts_
        launcher.job.checkpoints = checkpoint.Folder(self.path("saved"))
        launcher.job.environment = {"SLIMPS_RESUME": ""}
        for rounds in saved:
            self.save("of-%d" % rounds, manifest(rounds))
        return launcher.run(), self.out.getvalue()

    def once_in_vain(self):
        """Returns the script of a worker that dies, fails when it is back, and works at last."""
        done = self.path("done")
        return [
            "once=" + self.path("a"),
            "fail=" + self.path("b"),
            "env=SLIMPS_RESUME",
            "touch=" + done,
        ]

    def test_after_a_death_it_goes_back_to_the_newest_checkpoint(self):
        self.save("damaged", b"{")
        os.mkdir(self.path("saved/unfinished"))
        status, out = self.run_going_back(3, ["until=" + self.path("done")], self.once_in_vain())
        self.assertEqual(0, status, out)
        newest = self.path("saved/of-10")
        self.assertIn(
            "slimps: the job cannot go on: worker0 exited with status 1: slimps_fake", out
        )
        self.assertIn(
            "slimps: all of it goes back to its last checkpoint, %s (round 10); 1 more restarts "
            "are left\n" % newest,
            out,
        )
        self.assertIn("worker0| SLIMPS_RESUME=%s\n" % newest, out)

    def test_it_goes_back_where_a_process_fails_at_each_start(self):
        works, done = self.path("works"), self.path("done")
        failures = ["fail=" + self.path(name) for name in "bcde"]
        server = ["once=" + self.path("a"), *failures, "touch=" + works, "until=" + done]
        with mock.patch.object(restarts, "FIRST_DELAY", 0.01):
            status, out = self.run_going_back(9, server, ["until=" + works, "touch=" + done])
        self.assertEqual(0, status, out)
        self.assertEqual(4, out.count("server0 is started again") + out.count("server0 was start"))
        self.assertIn("cannot go on: server0 exited with status 1: slimps_fake: cannot go on", out)
        self.assertIn("4 more restarts are left", out)

    def test_it_ends_when_no_restarts_are_left(self):
        status, out = self.run_going_back(1, ["wait"], self.once_in_vain())
        self.assertEqual(1, status, out)
        self.assertNotIn("goes back", out)

    def test_it_ends_where_there_is_no_whole_checkpoint(self):
        self.save("damaged", b"{")
        status, out = self.run_going_back(3, ["wait"], self.once_in_vain(), saved=())
        self.assertEqual(1, status, out)
        self.assertIn("cannot go back to a checkpoint: %s has no whole" % self.path("saved"), out)
        self.assertIn("slimps: the job failed: worker0 exited with status 1", out)

    def test_a_job_in_which_nobody_died_does_not_go_back(self):
        status, out = self.run_going_back(3, ["wait"], ["fail=" + self.path("b"), "exit=0"])
        self.assertEqual(1, status, out)
        self.assertNotIn("goes back", out)

    def test_deaths_before_it_went_back_do_not_count(self):
        worker = self.once_in_vain()[:2] + ["exit=5"]
        status, out = self.run_going_back(9, ["wait"], worker)
        self.assertEqual(5, status, out)
        self.assertEqual(1, out.count("goes back"), out)

    def test_a_folder_with_checkpoints_needs_a_word(self):
        job = self.launcher([], [], []).job
        options = argparse.Namespace(checkpoint=self.path("saved"), resume=False)
        checkpoint.prepare(job, options)
        self.assertEqual("", job.environment["SLIMPS_RESUME"])
        self.save("of-7", manifest(7))
        with self.assertRaisesRegex(errors.LaunchError, r"got of-7 \(round 7\): give --resume"):
            checkpoint.prepare(job, options)
        options.resume = True
        checkpoint.prepare(job, options)
        self.assertEqual(
            {"SLIMPS_CHECKPOINT": self.path("saved"), "SLIMPS_RESUME": self.path("saved/of-7")},
            job.environment,
        )

    def test_a_signal_while_it_is_stopped_ends_it(self):
        launcher = self.launcher(["wait"], ["wait"], self.once_in_vain(), workers=1)
        launcher.job.restarts = 3
        launcher.job.checkpoints = checkpoint.Folder(self.path("saved"))
        self.save("one", manifest(1))
        kill_all = launcher.kill_all

        def interrupted():
            os.kill(os.getpid(), signal.SIGINT)
            kill_all()

        launcher.kill_all = interrupted
        with mock.patch.object(launcher, "put_back"):
            status = launcher.run()
        del launcher.kill_all
        launcher.put_back()
        self.assertNotEqual(0, status)
        self.assertNotIn("goes back", self.out.getvalue())


if __name__ == "__main__":
    unittest.main()
