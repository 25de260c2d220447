# SPDX-License-Identifier: Apache-2.0
"""slimps bench storm: what it sees of a job, and what it kills."""

import os
import shlex
import signal
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

from bench.cluster import net
from bench.storm import storm_bench, storm_network, storm_watch
from eventually import eventually
from slimps_launch.places import on_ssh

WHY_NOT = net.why_not()

LINE = "worker0| epoch 1/9 step %d/900 loss 0.5 100 samples/s pushed 1 MB (ratio 1.0) waited 0 s"
BACK = (
    "scheduler| I0 server 1 (host a, pid 7) is gone; "
    "a process that was started anew takes its place"
)
CLOSED = "scheduler| I0 server 1 (host a, pid 7) has closed its connection, and is awaited for 10s"
SILENT = "scheduler| I0 server 1 (host a, pid 7) has been silent for over 10s; the job waits up to"


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
        self.watch.note("kill", "server", 7)
        self.see(CLOSED, 0.5)
        self.assertEqual(0.5, self.watch.troubles[0].detected)
        self.see(LINE % 60, 0.0)
        self.see(BACK, 0.5)
        self.see(LINE % 80)
        self.assertIsNone(self.watch.troubles[0].recovered, "that step may have been on its way")
        self.see(LINE % 100)
        self.assertEqual(3.0, self.watch.troubles[0].recovered)
        self.assertEqual((100, 900), (self.watch.step, self.watch.steps))

    def test_another_roles_return_is_not_its_own(self):
        for role in ("scheduler", "worker"):
            self.watch.note("kill", role, 8)
            self.see(CLOSED)
            self.see(BACK)
            self.assertIsNone(self.watch.troubles[-1].detected)
            self.assertFalse(self.watch.troubles[-1].mended)
        self.see(CLOSED.replace("pid 7", "pid 8"))
        self.see(BACK.replace("server 1", "worker 1"))
        self.assertEqual(3.0, self.watch.troubles[-1].detected)
        self.assertTrue(self.watch.troubles[-1].mended)

    def test_a_node_that_is_stopped_is_detected_as_silent_and_not_before_the_timeout(self):
        self.see(LINE % 40)
        self.watch.note("stop", "server", 7, away=15.0)
        self.assertFalse(self.watch.troubles[0].is_due(self.clock()))
        self.see(SILENT, 9.5)  # its last heartbeat came half a second before
        self.assertEqual(9.5, self.watch.troubles[0].detected)
        self.clock.now += 5.5
        self.assertTrue(self.watch.troubles[0].is_due(self.clock()))
        self.watch.note_mended(self.watch.troubles[0])
        self.see(LINE % 80)
        self.assertEqual(16.0, self.watch.troubles[0].recovered)
        self.assertEqual(0, self.watch.false_deaths)

    def test_a_death_that_is_none_is_false(self):
        self.see(SILENT)
        self.watch.note("stop", "server", 8, away=15.0)
        self.see(SILENT, 12.0)
        self.watch.note("cut", "server", 7, away=15.0)
        self.see(SILENT, 8.0)
        self.watch.note_mended(self.watch.troubles[-1])
        self.see(SILENT, 9.0)
        self.assertEqual(4, self.watch.false_deaths)

    def test_a_process_that_was_killed_is_dead(self):
        self.watch.note("kill", "server", 7)
        self.see(SILENT, 9.0)
        self.assertEqual(0, self.watch.false_deaths)

    def test_training_may_go_on_while_the_scheduler_is_away(self):
        self.see(LINE % 20)
        self.watch.note("kill", "scheduler", 7)
        for step in (40, 60):
            self.see(LINE % step, 0.5)
        self.see(LINE % 80, 2.0)
        self.see("scheduler| started again: going on by a journal of 9 messages")
        self.see(LINE % 100, 9.0)
        self.assertEqual(2.0, self.watch.troubles[0].longest_pause)

    def test_a_pause_counts_without_a_step_in_between(self):
        self.see(LINE % 20)
        self.watch.note("kill", "scheduler", 7)
        self.see("scheduler| started again: going on by a journal of 9 messages", 3.0)
        self.assertEqual(3.0, self.watch.troubles[0].longest_pause)

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
        self.watch.note("kill", "server", 7)
        self.see(BACK)
        self.see(LINE % 900)
        self.assertIsNotNone(self.watch.troubles[0].recovered)

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

    def storm(self, watch, troubles, roles):
        return storm_bench.Storm(
            types.SimpleNamespace(every=0.0, seed=1, troubles=troubles, roles=roles, away=[0.1]),
            watch,
        )

    def test_it_finds_the_processes_of_a_job_and_their_roles(self):
        mine = {(role, self.daemon(role).pid) for role in ("server", "scheduler", "worker")}
        found = eventually(lambda: mine <= set(storm_watch.descendants(os.getpid())), 30.0)
        self.assertTrue(found, storm_watch.descendants(os.getpid()))
        self.assertEqual([], storm_watch.descendants(2**22 + 1))

    def test_it_kills_the_roles_it_is_told_to_and_waits_for_the_one_before(self):
        worker, server = self.daemon("worker"), self.daemon("server")
        eventually(lambda: len(storm_watch.descendants(os.getpid())) == 2, 30.0)
        watch = storm_watch.Watch()
        storm = self.storm(watch, ["kill"], ["server", "scheduler"])
        storm.blow(os.getpid())
        self.assertEqual([], watch.troubles, "no step was seen yet")
        watch.see(LINE % 20)
        storm.blow(os.getpid())
        storm.blow(os.getpid())
        self.assertEqual(["server"], [one.role for one in watch.troubles])
        self.assertEqual(-signal.SIGKILL, server.wait(30))
        self.daemon("scheduler")
        storm.blow(os.getpid())
        self.assertEqual(1, len(watch.troubles), "the first kill is not mended yet")
        self.assertIsNone(worker.poll())

    def test_it_stops_a_process_for_a_while(self):
        def state():
            with open("/proc/%d/stat" % worker.pid, encoding="ascii") as stat:
                return stat.read().rpartition(")")[2].split()[0]

        worker = self.daemon("worker")
        eventually(lambda: len(storm_watch.descendants(os.getpid())) == 1, 30.0)
        watch = storm_watch.Watch()
        storm = self.storm(watch, ["stop"], ["worker"])
        watch.see(LINE % 20)
        storm.blow(os.getpid())
        storm.blow(os.getpid())
        self.assertTrue(eventually(lambda: state() == "T", 30.0))
        self.assertFalse(watch.troubles[0].mended)
        self.assertTrue(eventually(lambda: watch.troubles[0].is_due(time.monotonic()), 30.0))
        storm.blow(os.getpid())
        self.assertTrue(eventually(lambda: state() == "S", 30.0))
        self.assertTrue(watch.troubles[0].mended)

    def test_a_process_that_has_ended_is_not_cut_off(self):
        self.daemon("worker")
        eventually(lambda: len(storm_watch.descendants(os.getpid())) == 1, 30.0)
        watch = storm_watch.Watch()
        storm = self.storm(watch, ["cut"], ["worker"])
        storm.network = mock.Mock(**{"node_of.return_value": None})
        watch.see(LINE % 20)
        storm.blow(os.getpid())
        storm.blow(os.getpid())
        storm.network.node_of.assert_called_once()
        self.assertEqual([], watch.troubles)
        storm.network.node_of.return_value = 3
        storm.blow(os.getpid())
        storm.network.cut.assert_called_once_with(3)
        storm.calm_down()
        storm.network.mend.assert_called_once_with(3)


class NetworkTest(unittest.TestCase):
    def test_the_stand_in_for_ssh_runs_the_command_in_the_namespace(self):
        folder = os.environ.get("TEST_TMPDIR", "/tmp")
        with open(os.path.join(folder, "ip"), "w", encoding="ascii") as script:
            script.write('#!/bin/sh\necho "$1 $2 $3"\nshift 3\nexec "$@"\n')
        os.chmod(os.path.join(folder, "ip"), 0o755)
        said = subprocess.run(
            shlex.split(storm_network.ENTER % "10.0.0.9")
            + on_ssh.OPTIONS
            + ["node 1", "exec echo 'a  b' ${SSH_CONNECTION%% *}"],
            env={"PATH": folder + ":" + os.environ["PATH"]},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.assertEqual(["netns exec node 1", "a  b 10.0.0.9"], said.stdout.splitlines())

    @unittest.skipIf(WHY_NOT is not None, WHY_NOT)
    def test_a_link_is_cut_and_mended(self):
        folder = os.environ.get("TEST_TMPDIR", "/tmp")
        with storm_network.StormNetwork(2, "10mbit", folder) as network:
            with open(network.hosts, encoding="ascii") as hosts:
                names = [line.split()[0] for line in hosts]
            address = network.network.address(1)
            reach = ["timeout", "1", "bash", "-c", "</dev/tcp/%s/8000" % address]
            reach = network.network.command(0, reach)

            def reaches():
                done = subprocess.run(reach, stderr=subprocess.DEVNULL, check=False)
                return done.returncode == 0

            listen = [sys.executable, "-m", "http.server", "--bind", address, "8000"]
            inside = subprocess.Popen(
                ["ip", "netns", "exec", names[1]] + listen,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.addCleanup(inside.wait)
            self.addCleanup(inside.kill)
            self.assertTrue(eventually(lambda: network.node_of(inside.pid) == 1, 30.0))
            self.assertTrue(eventually(reaches, 30.0))
            network.cut(1)
            self.assertFalse(reaches())
            network.mend(1)
            self.assertTrue(eventually(reaches, 30.0))


if __name__ == "__main__":
    unittest.main()
