# SPDX-License-Identifier: Apache-2.0
"""The daemon as a user meets it: flags, environment, exit status, signals."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import unittest

from eventually import eventually

PROGRAM = os.path.join(os.environ.get("TEST_SRCDIR", ""), "slimps/scheduler/slimps_scheduler")
DEADLINE = 60.0  # seconds; only a failing test waits this long


def environment(**variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DMLC_")}
    return dict(clean, **variables)


def run(*arguments, **variables):
    return subprocess.run(
        [PROGRAM] + list(arguments),
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


class WrongUsageTest(unittest.TestCase):
    def refused(self, what, *arguments, **variables):
        result = run(*arguments, **variables)
        self.assertEqual(2, result.returncode, result.stdout)
        self.assertIn(what, result.stdout)

    def test_flags_that_make_no_sense_are_refused_with_status_2(self):
        self.refused("no_such_flag", "--no_such_flag")
        self.refused("illegal value 'x'", "--port=x")
        self.refused("--num_workers=0: expected 1 to 4096", "--num_workers=0")
        self.refused("--port=70000: expected 0 to 65535", "--port=70000")
        self.refused("at least twice", "--heartbeat_interval_ms=100", "--heartbeat_timeout_ms=150")
        self.refused("unexpected argument \"extra\"", "extra")

    def test_where_nodes_are_told_to_look_it_listens_or_refuses(self):
        self.refused(
            "DMLC_PS_ROOT_URI=192.0.2.7 can be reached by others", DMLC_PS_ROOT_URI="192.0.2.7"
        )
        self.refused(
            "--bind=127.0.0.1: nodes look for the scheduler at DMLC_PS_ROOT_URI=192.0.2.7",
            "--bind=127.0.0.1",
            "--insecure",
            DMLC_PS_ROOT_URI="192.0.2.7",
        )

    def test_an_open_address_needs_insecure(self):
        self.refused("--insecure", "--bind=0.0.0.0")
        self.refused("--insecure", "--bind=127.example.org")

    def test_an_environment_that_makes_no_sense_is_refused(self):
        self.refused("DMLC_NUM_WORKER=two: expected a number", DMLC_NUM_WORKER="two")
        self.refused("DMLC_ROLE=worker: expected scheduler", DMLC_ROLE="worker")

    def test_keys_that_cannot_be_read_stay_so(self):
        keys = ("--key_file=/no/such", "--allow_file=/no/such")
        self.refused("cannot read /no/such: No such file or directory", *keys)


class HelpTest(unittest.TestCase):
    def test_help_is_the_programs_own_flags(self):
        for flag in ("--help", "-h"):
            result = run(flag)
            self.assertEqual(0, result.returncode)
            self.assertIn(
                "  --roster_timeout_s (600)  how long to wait for all nodes to come", result.stdout
            )
            self.assertLess(len(result.stdout.splitlines()), 27, result.stdout)
            self.assertNotIn("--logbufsecs", result.stdout)

    def test_the_version_is_that_of_the_file(self):
        with open("VERSION", encoding="utf-8") as version:
            self.assertEqual("slimps_scheduler " + version.read(), run("--version").stdout)


class RunningTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.port_file = os.path.join(folder.name, "port")
        self.report_file = os.path.join(folder.name, "report")

    def start(self, *arguments, stdin=None, **variables):
        process = subprocess.Popen(
            [PROGRAM, "--port_file", self.port_file] + list(arguments),
            env=environment(**variables),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        eventually(lambda: os.path.exists(self.port_file) or process.poll() is not None, DEADLINE)
        with open(self.port_file, encoding="ascii") as text:
            return process, int(text.read())

    def test_the_port_file_names_a_port_that_listens(self):
        _, port = self.start()
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE).close()
        self.assertEqual(["port"], os.listdir(os.path.dirname(self.port_file)))

    def test_a_tilde_behind_a_flag_is_the_home_directory(self):
        home = os.path.dirname(self.port_file)
        self.start("--port_file=~/port", HOME=home)

    def test_it_is_told_by_stdin_which_worker_has_ended(self):
        process, _ = self.start("--ends_from_stdin", stdin=subprocess.PIPE)
        output, _ = process.communicate("ended 0 7\n", timeout=DEADLINE)
        self.assertEqual(1, process.returncode)
        self.assertIn("worker 0 has ended before all nodes had joined", output)

    def test_a_port_in_use_is_named(self):
        _, port = self.start()
        second = run("--port=%d" % port)
        self.assertEqual(1, second.returncode)
        self.assertIn("127.0.0.1:%d: Address already in use" % port, second.stdout)

    def test_nodes_that_never_come_are_named(self):
        process, _ = self.start("--roster_timeout_s=1", DMLC_NUM_WORKER="2", DMLC_NUM_SERVER="1")
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(1, process.returncode)
        self.assertIn(
            "slimps_scheduler: roster incomplete after 1s: waiting for 1 server and 2 workers",
            output,
        )

    def report(self):
        """Returns what the scheduler has said to its launcher."""
        with open(self.report_file, encoding="utf-8") as text:
            return json.load(text)

    def test_a_launcher_is_told_how_the_job_has_failed(self):
        for flags, code, error in (
            (["--roster_timeout_s=1"], "DEADLINE_EXCEEDED", "roster incomplete after 1s: .*"),
            ([], "CANCELLED", "the scheduler was stopped by Terminated"),
        ):
            process, _ = self.start(*flags, SLIMPS_REPORT_FILE=self.report_file)
            if not flags:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=DEADLINE)
            report = self.report()
            self.assertRegex(report.pop("error"), error)
            self.assertEqual({"job": "failed", "code": code}, report)
            os.remove(self.port_file)

    def test_a_launcher_is_told_why_it_does_not_start(self):
        self.assertEqual(2, run("--port=70000", SLIMPS_REPORT_FILE=self.report_file).returncode)
        self.assertEqual(
            {"code": "INVALID_ARGUMENT", "error": "--port=70000: expected 0 to 65535"},
            self.report(),
        )

    def test_a_flag_counts_more_than_the_environment(self):
        process, _ = self.start("--roster_timeout_s=1", "--num_workers=3", DMLC_NUM_WORKER="2")
        self.assertIn(
            "waiting for 1 server and 3 workers", process.communicate(timeout=DEADLINE)[0]
        )

    def test_a_signal_ends_it(self):
        process, _ = self.start()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(1, process.returncode)
        self.assertIn("stopped by Terminated", output)

    def test_garbage_on_the_port_does_not_end_it(self):
        process, port = self.start()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b"\x00" * 64):
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
                connection.sendall(garbage)
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE).close()
        self.assertIsNone(process.poll())


if __name__ == "__main__":
    unittest.main()
