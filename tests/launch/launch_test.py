# SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import io
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import types
import unittest
from unittest import mock

from eventually import eventually
from job_case import FAKE, JobCase
from proc_files import alive
from slimps_launch import job_launch
from slimps_launch import job_node
from slimps_launch import job_output
from slimps_launch import processes
from slimps_launch import worker_command

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")


def unread(pipe):
    """Returns the number of bytes that wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"    "))[0]


class LaunchTest(JobCase):
    def test_a_good_job_ends_with_status_0(self):
        done = self.path("done")
        status, out = self.run_job(
            ["until=" + done], ["until=" + done], ["say=hello", "touch=" + done]
        )
        self.assertEqual(0, status, out)
        self.assertIn("worker0| hello\n", out)
        self.assertIn("worker1| hello\n", out)

    def test_nodes_find_the_job_in_dmlc_variables(self):
        done = self.path("done")
        names = [
            "DMLC_ROLE",
            "DMLC_PS_ROOT_URI",
            "DMLC_PS_ROOT_PORT",
            "DMLC_NUM_WORKER",
            "DMLC_NUM_SERVER",
            "DMLC_WORKER_ID",
        ]
        show = ["env=" + name for name in names]
        status, out = self.run_job(
            ["until=" + done],
            show + ["until=" + done],
            show + ["touch=" + done],
            workers=1,
            servers=1,
        )
        self.assertEqual(0, status, out)
        for line in (
            "worker0| DMLC_ROLE=worker",
            "server0| DMLC_ROLE=server",
            "worker0| DMLC_PS_ROOT_PORT=4711",
            "server0| DMLC_PS_ROOT_URI=127.0.0.1",
            "worker0| DMLC_NUM_WORKER=1",
            "worker0| DMLC_WORKER_ID=0",
        ):
            self.assertIn(line + "\n", out)

    def test_a_worker_may_end_after_the_daemons(self):
        ended, late = self.path("ended"), self.path("late")
        launcher = self.launcher(["until=" + ended], ["touch=" + ended], ["until=" + late])
        passed = [0.0]

        def pass_the_grace():
            if {"scheduler", "server0"} <= launcher.ended:
                passed[0] = 2 * launcher.job.end_grace
                self.put(late, "")

        launcher.when_idle = pass_the_grace
        clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
        with mock.patch.object(job_launch, "time", clock), mock.patch.object(
            job_launch, "KEEP", 0.1
        ):
            self.assertEqual(0, launcher.run(), self.out.getvalue())

    def test_daemons_that_do_not_follow_the_workers_are_stopped(self):
        launcher = self.launcher(["wait"], ["wait"], ["exit=0"])
        launcher.job.end_grace = 0.05
        self.assertEqual(1, launcher.run())
        self.assertIn("scheduler, server0 did not follow", self.out.getvalue())
        self.assertIn("Does the program make a store", self.out.getvalue())

    def test_what_a_node_started_dies_with_the_job(self):
        pid_file = self.path("pid")
        status, out = self.run_job(
            ["wait"], ["child=" + pid_file, "wait"], ["until=" + pid_file, "exit=3"], workers=1
        )
        self.assertEqual(3, status, out)
        with open(pid_file, encoding="ascii") as text:
            pid = int(text.read())
        self.assertTrue(eventually(lambda: not alive(pid)))

    def handled(self, number, handler):
        """Gives a signal this handler during the test. SIGINT may be ignored in the background."""
        self.addCleanup(signal.signal, number, signal.signal(number, handler))

    def forwarded(self, number):
        self.handled(number, signal.SIG_DFL)
        trapped, ready = self.path("trapped"), self.path("ready")
        end = "until=" + trapped
        launcher = self.launcher([end], [end], ["trap=" + trapped, "touch=" + ready, "wait"], 1)
        sender = threading.Thread(
            target=lambda: eventually(lambda: os.path.exists(ready))
            and os.kill(os.getpid(), number)
        )
        sender.start()
        status = launcher.run()
        sender.join()
        self.assertEqual(128 + number, status)
        with open(trapped, encoding="ascii") as text:
            self.assertEqual(number.name, text.read())
        self.assertFalse(any(alive(node.process.pid) for node in launcher.nodes))

    def test_sigint_is_forwarded(self):
        self.forwarded(signal.SIGINT)

    def test_sigterm_is_forwarded(self):
        self.forwarded(signal.SIGTERM)

    def send(self, number, ready, after=lambda: None):
        """Sends this process a signal, when the files `ready` are there, and calls after()."""
        self.handled(number, signal.SIG_DFL)

        def send():
            for path in ready:
                eventually(lambda path=path: os.path.exists(path))
            os.kill(os.getpid(), number)
            after()

        sender = threading.Thread(target=send)
        sender.start()
        self.addCleanup(sender.join)

    def test_a_signal_is_the_workers_alone_until_they_have_ended(self):
        saving, ready, daemons = self.path("saving"), self.path("ready"), self.path("daemons")
        child, early = self.path("child"), []

        def look():
            eventually(lambda: os.path.exists(saving))
            early.extend(path for path in (child, daemons) if os.path.exists(path))
            self.put("saving.go", "")

        daemon = ["trap=" + daemons, "until=%s.go" % saving]
        worker = ["nested=" + child, "save=" + saving, "touch=" + ready, "wait"]
        launcher = self.launcher(daemon, daemon, worker, workers=1)
        self.send(signal.SIGTERM, [ready], look)
        self.assertEqual(128 + signal.SIGTERM, launcher.run())
        self.assertEqual([], early)
        self.assertTrue(os.path.exists(child))  # it is told after the worker's own process

    def test_behind_a_shell_a_signal_is_for_the_program(self):
        trapped, ready = self.path("trapped"), self.path("ready")
        end = ["until=" + trapped]
        launcher = self.launcher(end, end, ["trap=" + trapped, "touch=" + ready, "wait"], workers=1)
        launcher.job.worker = ["sh", "-c", '"$@"; exit $?', "sh"] + launcher.job.worker
        self.send(signal.SIGTERM, [ready])
        self.assertEqual(128 + signal.SIGTERM, launcher.run())
        self.assertEqual("SIGTERM", self.get("trapped"))

    def test_a_program_that_a_shell_leaves_behind_has_time_to_save(self):
        saved = self.path("saved")
        end = ["until=" + saved + ".go"]
        launcher = self.launcher(end, end, ["save=" + saved, "touch=" + saved + ".on", "wait"], 1)
        launcher.job.worker = ["sh", "-c", '"$@" | cat', "sh"] + launcher.job.worker
        self.send(signal.SIGTERM, [saved + ".on"])
        threading.Thread(
            target=lambda: eventually(lambda: os.path.exists(saved)) and self.put("saved.go", "")
        ).start()
        self.assertEqual(128 + signal.SIGTERM, launcher.run())
        self.assertTrue(os.path.exists(saved))

    def test_sigusr1_goes_to_the_workers_and_the_job_goes_on(self):
        noted, ready = self.path("noted"), self.path("ready")
        worker = ["noted=" + noted, "touch=" + ready, "until=" + noted]
        launcher = self.launcher(["until=" + noted], ["until=" + noted], worker, workers=1)
        self.send(signal.SIGUSR1, [ready])
        self.assertEqual(0, launcher.run(), self.out.getvalue())
        self.assertEqual("SIGUSR1", self.get("noted"))

    def test_the_scheduler_is_told_which_worker_has_ended_by_itself(self):
        told = self.path("told")
        status, out = self.run_job(["stdin=" + told], ["until=" + told], ["exit=0"], workers=1)
        self.assertEqual(0, status, out)
        self.assertRegex(self.get("told"), r"^ended 0 \d+\n$")

    def test_a_stopped_worker_does_not_outlive_the_job(self):
        done, stopped = self.path("done"), self.path("stopped")
        with mock.patch.object(job_launch, "KEEP", 0.1):
            status, out = self.run_job(
                ["until=" + done], ["until=" + done], ["stop=" + stopped, "touch=" + done]
            )
        self.assertEqual(0, status, out)
        self.assertRegex(out, "slimps: worker[01] was stopped, and the job has ended without it\n")

    def test_what_a_job_still_waits_for_is_said(self):
        ended, late = self.path("ended"), self.path("late")
        launcher = self.launcher(["until=" + ended], [], ["touch=" + ended, "until=" + late], 1, 0)
        launcher.job.end_grace = 0.05
        said = mock.Mock(side_effect=lambda line: "goes on" in line and self.put("late", ""))
        with mock.patch.object(launcher, "say", said):
            self.assertEqual(0, launcher.run())
        said.assert_any_call("slimps: the job is over, but worker0 goes on; waiting for its end")

    def test_signal_handlers_are_put_back(self):
        before = signal.getsignal(signal.SIGTERM)
        done = self.path("done")
        self.run_job(["until=" + done], ["until=" + done], ["touch=" + done])
        self.assertIs(before, signal.getsignal(signal.SIGTERM))

    def test_an_ignored_signal_stays_ignored(self):
        self.handled(signal.SIGHUP, signal.SIG_IGN)
        launcher = processes.Processes()
        launcher.catch_signals()
        self.addCleanup(launcher.put_back)
        self.assertIs(signal.SIG_IGN, signal.getsignal(signal.SIGHUP))
        self.assertIsNot(signal.SIG_DFL, signal.getsignal(signal.SIGTERM))

    def start_launcher(self, worker):
        """Starts a launcher of a job with one server and one worker, with a pipe as stdout."""
        self.handled(signal.SIGINT, signal.default_int_handler)
        script = self.put(
            "launch.py",
            "import sys\nsys.path.insert(0, %r)\nfrom slimps_launch import command, job_launch\n"
            "job = job_launch.Job(%r, %r, %r, 1, 1)\njob.stop_grace = 0.2\n"
            "sys.exit(command.guarded(job_launch.Launcher(job).run))\n"
            % (PACKAGES, FAKE + ["wait"], FAKE + ["wait"], [sys.executable, "-c", worker]),
        )
        return subprocess.Popen([sys.executable, "-B", script], stdout=subprocess.PIPE, text=True)

    def test_a_signal_ends_a_job_whose_output_nobody_reads(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            launcher = self.start_launcher("while True: print('x' * 1000, flush=True)")
            self.addCleanup(launcher.stdout.close)
            self.addCleanup(launcher.kill)
            self.assertTrue(eventually(lambda: unread(launcher.stdout) > 60000))
            launcher.send_signal(number)
            self.assertEqual(128 + number, launcher.wait(60))

    def test_nodes_are_kept_while_nobody_reads_the_output(self):
        done = self.path("done")
        launcher = self.launcher(["until=" + done], [], ["say=step 1", "until=" + done], 1, 0)
        read, kept = threading.Event(), []
        screen = mock.Mock(is_terminal=False, **{"write.side_effect": lambda text: read.wait()})
        launcher.output.screens = {1: screen, 2: screen}
        screen.lock = threading.Lock()

        def read_later():
            eventually(lambda: screen.write.called)
            keep.reset_mock()
            kept.append(eventually(lambda: keep.call_count > 2, 20.0))
            read.set()
            self.put(done, "")

        with mock.patch.object(job_launch, "KEEP", 0.01), mock.patch.object(
            job_node.Node, "keep"
        ) as keep:
            reader = threading.Thread(target=read_later)
            reader.start()
            self.assertEqual(0, launcher.run())
            reader.join()
        self.assertEqual([True], kept)

    def test_nodes_die_with_a_killed_launcher(self):
        launcher = self.start_launcher(
            "import os, signal; print('pid', os.getpid(), flush=True); signal.pause()"
        )
        for line in launcher.stdout:
            if line.startswith("worker0| pid "):
                pid = int(line.split()[-1])
                break
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
        self.assertTrue(eventually(lambda: not alive(pid)))

    def test_a_full_disk_does_not_hold_the_job_up_and_is_told(self):
        launcher = self.launcher(
            ["until=" + self.path("ended")],
            ["until=" + self.path("ended")],
            ["say=" + "x" * 1000] * 300 + ["touch=" + self.path("ended")],
        )
        with open("/dev/full", "w", encoding="ascii") as full:
            launcher.output = job_output.Output(full, full, lambda node: True)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(0, launcher.run())
            with contextlib.suppress(OSError):
                full.close()
        self.assertEqual(
            "slimps: some lines of the job could not be printed: No space left on device\n",
            said.getvalue(),
        )

    def test_a_full_disk_under_the_logs_does_not_hold_the_job_up_and_is_told(self):
        done = self.path("done")
        launcher = self.launcher(
            ["until=" + done], ["until=" + done], ["say=step 1", "say=step 2", "touch=" + done]
        )
        launcher.output.logs = job_output.Logs(self.path("logs"))
        os.symlink("/dev/full", self.path("logs/worker0.log"))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(0, launcher.run(), self.out.getvalue())
        self.assertIn("worker0| step 2\n", self.out.getvalue())
        self.assertEqual("step 1\nstep 2\n", self.get("logs/worker1.log"))
        for file in launcher.output.logs.files.values():
            file.close()
        self.assertEqual(
            "slimps: some lines of the job could not be written to --logs: "
            "No space left on device\n",
            said.getvalue(),
        )

    def test_no_file_is_left_behind(self):
        old = tempfile.tempdir
        tempfile.tempdir = self.path("tmp")
        os.mkdir(tempfile.tempdir)
        try:
            self.run_job(["wait"], ["wait"], ["exit=1"])
            self.assertEqual([], os.listdir(tempfile.tempdir))
        finally:
            tempfile.tempdir = old


class ResolveCommandTest(unittest.TestCase):
    def test_a_daemon_name_stands_for_the_built_one(self):
        self.assertEqual(
            ["/x/slimps_worker", "--model", "mlp"],
            worker_command.resolve_command(
                ["slimps_worker", "--model", "mlp"], {"slimps_worker": "/x/slimps_worker"}
            ),
        )

    def test_other_commands_run_as_they_are(self):
        self.assertEqual(["env", "-0"], worker_command.resolve_command(["env", "-0"], {}))

    def test_an_unknown_command_is_refused(self):
        with self.assertRaisesRegex(FileNotFoundError, "no-such-command"):
            worker_command.resolve_command(["no-such-command"], {})
        with self.assertRaisesRegex(FileNotFoundError, "command not found: ./no-such-command"):
            worker_command.resolve_command(["./no-such-command"], {})
        with self.assertRaisesRegex(FileNotFoundError, "command cannot be run: " + HERE):
            worker_command.resolve_command([HERE], {})
        with tempfile.NamedTemporaryFile() as text:
            with self.assertRaisesRegex(FileNotFoundError, "command cannot be run: " + text.name):
                worker_command.resolve_command([text.name], {})


class EventsTest(unittest.TestCase):
    def test_a_signal_just_before_a_wait_is_handled_within_a_second(self):
        """Its handler is called between two waits."""
        events = mock.Mock()
        events.get.side_effect = [queue.Empty, queue.Empty, "event"]
        self.assertEqual("event", processes.next_of(events, 600.0))
        self.assertTrue(all(one.kwargs["timeout"] <= 1.0 for one in events.get.mock_calls))

    def test_what_is_there_is_returned_after_the_time_too(self):
        events = queue.SimpleQueue()
        events.put(1)
        self.assertEqual(1, processes.next_of(events, -1.0))
        self.assertIsNone(processes.next_of(events, 0.01))


if __name__ == "__main__":
    unittest.main()
