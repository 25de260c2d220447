# SPDX-License-Identifier: Apache-2.0
"""The output of a job's processes: what they wrote, when and where they wrote it."""

import contextlib
import errno
import io
import os
import pty
import stat
import subprocess
import sys
import threading
import unittest
from unittest import mock

import folder_case
from eventually import eventually
from job_case import FAKE
from slimps_launch import job_node
from slimps_launch import job_output
from slimps_launch import pieces

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")
# What Python makes an ASCII terminal of, which "C" alone no longer is.
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


class Read:
    """What comes from a file descriptor, as it comes."""

    def __init__(self, number):
        self.number = number
        self.bytes = b""
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        with contextlib.suppress(OSError):  # as a terminal that nobody has open any more
            while chunk := os.read(self.number, 65536):
                self.bytes += chunk

    def has(self, text):
        return eventually(lambda: text in self.bytes or not self.thread.is_alive()) and (
            text in self.bytes
        )


class LaunchedTest(folder_case.FolderCase):
    """Jobs of a launcher in a process of its own."""

    def start(self, worker, out=subprocess.PIPE, err=subprocess.PIPE, workers=1, **environment):
        """Starts a job whose daemons end when the file `done` is there."""
        daemon = FAKE + ["until=" + self.path("done")]
        script = self.put(
            "launch.py",
            "import sys\nsys.path.insert(0, %r)\n"
            "from slimps_launch import command, job_launch, job_output\n"
            "job = job_launch.Job(%r, %r, %r, %d, 1)\n"
            "logs = job_output.Logs(%r)\n"
            "sys.exit(command.guarded(job_launch.Launcher(job, logs=logs).run))\n"
            % (PACKAGES, daemon, daemon, worker, workers, self.path("logs")),
        )
        environment = {**os.environ, **environment}
        launcher = subprocess.Popen(
            [sys.executable, "-B", script], stdout=out, stderr=err, env=environment
        )
        self.addCleanup(launcher.wait)
        self.addCleanup(launcher.terminate)
        for pipe in (launcher.stdout, launcher.stderr):
            if pipe is not None:
                self.addCleanup(pipe.close)
        return launcher

    def end(self, launcher):
        self.put("done", "")
        self.assertEqual(0, launcher.wait(60))

    def test_bytes_pass_whatever_the_locale(self):
        launcher = self.start(
            FAKE + ["raw=20 \\xc2\\xb0C \\xff\\n", "touch=" + self.path("said")], **ASCII
        )
        said = Read(launcher.stdout.fileno())
        self.assertTrue(said.has(b"worker0| 20 \xc2\xb0C \xff\n"), said.bytes)
        self.end(launcher)

    def test_stderr_stays_apart_and_logs_have_both(self):
        launcher = self.start(FAKE + ["say=result", "err=warning"])
        out, err = Read(launcher.stdout.fileno()), Read(launcher.stderr.fileno())
        self.assertTrue(err.has(b"worker0| warning\n"), err.bytes)
        self.assertTrue(out.has(b"worker0| result\n"), out.bytes)
        self.end(launcher)
        self.assertNotIn(b"warning", out.bytes)
        self.assertEqual({"result", "warning"}, set(self.get("logs/worker0.log").splitlines()))

    def test_a_bar_moves_on_a_terminal(self):
        keeper, terminal = pty.openpty()
        self.addCleanup(os.close, keeper)
        worker = [
            one
            for percent in (1, 2)
            for one in ("raw=\\r %d0%%" % percent, "until=" + self.path("step%d" % percent))
        ]
        launcher = self.start(FAKE + worker + ["raw=\\n"], out=terminal)
        os.close(terminal)
        screen = Read(keeper)
        for percent in (1, 2):
            state = b"worker0|  %d0%%" % percent + job_output.TO_LINE_END + b"\r"
            self.assertTrue(screen.has(state), screen.bytes)
            self.put("step%d" % percent, "")
        self.assertTrue(screen.has(b"worker0|  20%" + job_output.TO_LINE_END + b"\r\n"))
        self.end(launcher)

    def test_a_bar_is_shown_in_a_file_before_it_ends(self):
        launcher = self.start(FAKE + ["raw=\\r 10%", "until=" + self.path("done")])
        said = Read(launcher.stdout.fileno())
        self.assertTrue(said.has(b"worker0|  10%\n"), said.bytes)
        self.end(launcher)

    def test_nothing_that_others_say_is_dropped_after_a_traceback(self):
        logged = self.path("logged")
        worker = (
            "import os, sys, time\n"
            "sys.path[:0] = %r\n"
            "from eventually import eventually\n"
            "if os.environ['DMLC_WORKER_ID'] == '0':\n"
            "    print('Traceback (most recent call last):\\nValueError: caught', flush=True)\n"
            "    open(%r, 'w').close()\n"
            "    eventually(lambda: os.path.exists(%r))\n"
            "    sys.exit(3)\n"
            "eventually(lambda: os.path.exists(%r))\n"
            "print('loss 0.5', flush=True)\n"
            "open(%r, 'w').close()\n"
            "eventually(lambda: False)\n"
            % (sys.path, logged, self.path("said"), logged, self.path("said"))
        )
        launcher = self.start([sys.executable, "-c", worker], workers=2)
        out, _ = launcher.communicate(timeout=60)
        self.assertEqual(3, launcher.returncode)
        self.assertIn(b"worker1| loss 0.5\n", out)


class PiecesTest(unittest.TestCase):
    def cut(self, *chunks, kind=pieces.Pieces):
        """Returns the pieces of the chunks of one pipe, which then ends."""
        one = kind()
        return [piece for chunk in (*chunks, b"") for piece in one.next(chunk)]

    def test_lines_and_states_are_told_as_they_come(self):
        line, state = pieces.LINE, pieces.STATE
        for chunks, expected in (
            ([b"a\nb\r\nc"], [(b"a", line), (b"b", line), (b"c", line)]),
            ([b"a", b"b\n"], [(b"ab", line)]),
            ([b"a\r", b"\n"], [(b"a", state), (b"a", line)]),
            ([b"\r 1", b"\r 2", b"\n"], [(b" 1", state), (b" 2", state), (b" 2", line)]),
            ([b"1\r", b"2\r"], [(b"1", state), (b"2", state), (b"2", line)]),
            ([b"\r1", b"\r  ", b"\r", b"\n"], [(b"1", state), (b"  ", state), (b"", line)]),
            ([b"...", None, b".", None], [(b"...", state), (b"....", state), (b"....", line)]),
            ([b"\n\n"], [(b"", line), (b"", line)]),
        ):
            with self.subTest(chunks):
                self.assertEqual(expected, self.cut(*chunks))

    def test_a_line_does_not_grow_in_memory(self):
        found = self.cut(*[b"x" * 1000] * 200)
        self.assertEqual(200000, sum(len(text) for text, _ in found))
        self.assertLess(max(len(text) for text, _ in found), pieces.LONGEST + 1001)

    def test_what_is_carried_comes_in_whole_lines(self):
        self.assertEqual(
            [(b"w| 1", pieces.STATE), (b"w| a", pieces.LINE)],
            self.cut(b"w| ", None, b"1\r\nw", b"| a\n", kind=pieces.CarriedPieces),
        )

    def test_the_last_lines_are_bounded_by_bytes(self):
        tail = pieces.Tail()
        for number in range(3000):
            tail.append("%099d" % number)
        self.assertEqual(pieces.LONGEST // 100, len(tail))
        self.assertEqual("%099d" % 2999, tail[-1])
        for _ in range(2 * pieces.LONGEST):
            tail.append("")
        self.assertEqual(pieces.LONGEST, len(tail))

    def test_text_is_made_of_bytes_and_bytes_of_text(self):
        every = bytes(range(256))
        self.assertEqual(every, pieces.encoded(pieces.decoded(every)))
        self.assertEqual(b"\\ud800", pieces.encoded("\ud800"))


class OutputTest(unittest.TestCase):
    def setUp(self):
        self.out = io.StringIO()
        self.output = job_output.Output(self.out, self.out, lambda node: node.name != "worker1")
        self.nodes = [job_node.Node("worker%d" % rank, "worker", ["w"]) for rank in range(2)]

    def test_hidden_lines_are_kept(self):
        for node in self.nodes:
            self.output.add(node, job_output.STDERR, b"step 1", pieces.LINE)
            self.assertEqual(["step 1"], list(node.last_errors))
        self.assertEqual("worker0| step 1\n", self.out.getvalue())

    def test_a_terminal_that_is_gone_takes_nothing_and_is_told(self):
        screen = self.output.screens[job_output.STDOUT]
        screen.is_terminal = True
        with mock.patch.object(screen, "fitting", side_effect=OSError(errno.EIO, "gone")):
            self.output.add(self.nodes[0], 1, b"50 %", pieces.STATE)
        self.assertEqual(errno.EIO, self.output.unsaid["printed"].errno)

    def test_of_many_states_a_file_gets_one_in_some_seconds(self):
        with mock.patch.object(job_output, "time") as clock:
            for second in range(12):
                clock.monotonic.return_value = float(second)
                self.output.add(self.nodes[0], 2, b"%d s" % second, pieces.STATE)
        self.output.add(self.nodes[0], 2, b"all", pieces.LINE)
        self.assertEqual(
            ["worker0| 0 s", "worker0| 5 s", "worker0| 10 s", "worker0| all"],
            self.out.getvalue().splitlines(),
        )
        self.assertEqual(["all"], list(self.nodes[0].last_lines))


class LogsTest(folder_case.FolderCase):
    def test_only_this_user_reads_logs_which_have_the_pages_token(self):
        os.chmod(self.put("scheduler.log", "an earlier job's"), 0o644)
        logs = job_output.Logs(self.folder)
        for name in ("scheduler", "worker0"):
            logs.open(name)
            self.addCleanup(logs.files[name].close)
            self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path(name + ".log")).st_mode))
        self.assertEqual("", self.get("scheduler.log"))


if __name__ == "__main__":
    unittest.main()
