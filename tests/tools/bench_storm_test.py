# SPDX-License-Identifier: Apache-2.0
"""slimps bench storm: what it sees of a job, and what it kills."""

import os
import signal
import subprocess
import types
import unittest

from bench.storm import storm_bench, storm_watch
from eventually import eventually

LINE = "worker0| epoch 1/9 step %d/900 loss 0.5 100 samples/s pushed 1 MB (ratio 1.0) waited 0 s"
BACK = (
    "scheduler| I0 server 1 (host a, pid 7) is gone; "
    "a process that was started anew takes its place"
)


class FakeClock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class WatchTest(unittest.TestCase):
    def setUp(self):
        self.clock = FakeClock()
        self.watch = storm_watch.Watch(self.clock)

    def see(self, line, seconds=1.0):
        self.clock.now += seconds
        self.watch.see(line)

    def test_a_kill_is_detected_and_then_recovered_when_training_goes_on(self):
        self.see(LINE % 40)
        self.watch.note_kill("server", 7)
        self.see(LINE % 60, 0.5)
        self.assertIsNone(self.watch.kills[0].detected)
        self.see(BACK, 0.5)
        self.assertEqual(1.0, self.watch.kills[0].detected)
        self.see(LINE % 80)
        self.assertIsNone(self.watch.kills[0].recovered, "that step may have been on its way")
        self.see(LINE % 100)
        self.assertEqual(3.0, self.watch.kills[0].recovered)
        self.assertEqual((100, 900), (self.watch.step, self.watch.steps))

    def test_another_roles_return_is_not_its_own(self):
        for role in ("scheduler", "worker"):
            self.watch.note_kill(role, 7)
            self.see(BACK)
            self.assertIsNone(self.watch.kills[-1].detected)
        self.see(BACK.replace("server 1", "worker 1"))
        self.assertIsNotNone(self.watch.kills[-1].detected)

    def test_the_speed_counts_the_time_in_which_nobody_trained(self):
        self.see(LINE % 20)
        self.see(LINE % 40, 1.0)
        self.see(LINE % 60, 9.0)
        self.assertEqual(4.0, self.watch.steps_per_second())

    def test_pushes_that_were_left_out_are_counted(self):
        for count in (2, 0, 3):
            self.see(
                "worker1| I0 worker 1 took its rank back and goes on with round 7; its former "
                "process left %d pushes out, whose rounds are complete without them" % count
            )
        self.assertEqual(5, self.watch.left_out)

    def test_the_last_step_ends_the_wait(self):
        self.see(LINE % 890)
        self.watch.note_kill("server", 7)
        self.see(BACK)
        self.see(LINE % 900)
        self.assertIsNotNone(self.watch.kills[0].recovered)

    def test_the_training_says_how_long_it_took(self):
        with self.assertRaises(ValueError):
            self.watch.seconds()
        self.see(
            "worker0| test accuracy 97.78 %, test loss 0.0839, 94.4 s, pushed 140.4 MB, pulled 1 MB"
        )
        self.assertEqual(94.4, self.watch.seconds())


class StormTest(unittest.TestCase):
    def daemon(self, role):
        """Starts a process that is called as a daemon of a job."""
        folder = os.environ.get("TEST_TMPDIR", "/tmp")
        path = os.path.join(folder, "slimps_" + role)
        if not os.path.exists(path):
            os.symlink("/bin/sleep", path)
        process = subprocess.Popen([path, "600"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_it_finds_the_processes_of_a_job_and_their_roles(self):
        mine = {(role, self.daemon(role).pid) for role in ("server", "scheduler", "worker")}
        found = eventually(lambda: mine <= set(storm_watch.descendants(os.getpid())), 30.0)
        self.assertTrue(found, storm_watch.descendants(os.getpid()))
        self.assertEqual([], storm_watch.descendants(2**22 + 1))

    def test_it_kills_the_roles_it_is_told_to_and_waits_for_the_one_before(self):
        worker, server = self.daemon("worker"), self.daemon("server")
        eventually(lambda: len(storm_watch.descendants(os.getpid())) == 2, 30.0)
        watch = storm_watch.Watch()
        storm = storm_bench.Storm(
            types.SimpleNamespace(every=0.0, seed=1, roles=["server", "scheduler"]), watch
        )
        storm.blow(os.getpid())
        self.assertEqual([], watch.kills, "no step was seen yet")
        watch.see(LINE % 20)
        storm.blow(os.getpid())
        storm.blow(os.getpid())
        self.assertEqual(["server"], [kill.role for kill in watch.kills])
        self.assertEqual(-signal.SIGKILL, server.wait(30))
        self.daemon("scheduler")
        storm.blow(os.getpid())
        self.assertEqual(1, len(watch.kills), "the first kill is not mended yet")
        self.assertIsNone(worker.poll())


if __name__ == "__main__":
    unittest.main()
