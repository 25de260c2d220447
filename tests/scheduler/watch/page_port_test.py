# SPDX-License-Identifier: Apache-2.0
"""The scheduler's page and metrics as a browser and Prometheus meet them."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

from eventually import eventually
from slimps_launch.watching import source

PROGRAM = os.path.join(os.environ.get("TEST_SRCDIR", ""), "slimps/scheduler/slimps_scheduler")
DEADLINE = 60.0  # seconds; only a failing test waits this long
PROMTOOL = shutil.which("promtool")


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("DMLC_")}


class WatchedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.log = os.path.join(self.folder, "log")
        self.watch_file = os.path.join(self.folder, "job.json")

    def start(self, *flags):
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                [PROGRAM, "--num_workers=2"] + list(flags), env=environment(), stderr=log
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        eventually(
            lambda: "waiting at tcp://" in self.logged() or process.poll() is not None, DEADLINE
        )
        return process

    def logged(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def found(self, pattern):
        return re.search(pattern, self.logged())

    def page(self):
        """Returns the port of the page and its token, as the log says them."""
        found = self.found(r"watch this job at http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{32})\n")
        return int(found.group(1)), found.group(2)

    def metrics(self):
        return int(self.found(r"metrics at http://127\.0\.0\.1:(\d+)/metrics\n").group(1))

    def ask(self, port, path, method="GET", host=None, ranges=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        self.addCleanup(connection.close)
        headers = {"Host": host, "Range": ranges}
        connection.request(method, path, headers={k: v for k, v in headers.items() if v})
        return connection.getresponse()

    def test_the_page_wants_its_token_and_a_policy_guards_it(self):
        self.start("--page_port=0")
        self.assertIn(" for 2 workers and 1 server\n", self.logged())
        port, token = self.page()
        for path in ("/", "/?token=", "/?token=" + "0" * 32, "/job.json", "/events", "/x"):
            answer = self.ask(port, path)
            self.assertEqual(403, answer.status, path)
            self.assertEqual(b"wrong or no token\n", answer.read())
        answer = self.ask(port, "/?token=" + token)
        self.assertEqual(200, answer.status)
        self.assertIn("<!doctype html>", answer.read().decode().lower())
        policy = answer.getheader("Content-Security-Policy")
        self.assertRegex(policy, r"^default-src 'none'; script-src 'nonce-[0-9a-f]{32}'; ")
        self.assertIsNone(answer.getheader("Access-Control-Allow-Origin"))
        other = self.ask(port, "/?token=" + token).getheader("Content-Security-Policy")
        self.assertNotEqual(policy, other)
        self.assertEqual(404, self.ask(port, "/x?token=" + token).status)

    def test_only_get_is_answered(self):
        self.start("--page_port=0", "--metrics_port=0")
        port, token = self.page()
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            answer = self.ask(port, "/job.json?token=" + token, method)
            self.assertEqual(405, answer.status, method)
            self.assertEqual("GET", answer.getheader("Allow"))
        self.assertEqual(405, self.ask(self.metrics(), "/metrics", "POST").status)

    def test_a_foreign_host_is_refused_where_no_token_is_asked_for(self):
        self.start("--page_port=0", "--metrics_port=0")
        port, token = self.page()
        for host in (
            "evil.example:%d" % port,
            "127.0.0.1.evil.example",
            "[::1].evil",
            "localhost.",
        ):
            self.assertEqual(403, self.ask(self.metrics(), "/metrics", host=host).status)
            self.assertEqual(403, self.ask(port, "/job.json", host=host).status)
            self.assertEqual(200, self.ask(port, "/job.json?token=" + token, host=host).status)
        for host in ("localhost:1", "[::1]:80", "10.0.0.7"):
            self.assertEqual(200, self.ask(self.metrics(), "/metrics", host=host).status)

    def test_ranges_do_not_multiply_an_answer(self):
        self.start("--page_port=0", "--metrics_port=0")
        port, token = self.page()
        for port, path in ((port, "/?token=" + token), (port, "/"), (self.metrics(), "/metrics")):
            whole = self.ask(port, path)
            answer = self.ask(port, path, ranges="bytes=" + ",".join(["0-"] * 100))
            self.assertEqual(whole.status, answer.status, path)
            self.assertLess(len(answer.read()), 2 * len(whole.read()) + 1000, path)

    def test_events_are_the_state_again_and_again(self):
        self.start("--page_port=0")
        port, token = self.page()
        answer = self.ask(port, "/events?token=" + token)
        self.assertEqual("text/event-stream", answer.getheader("Content-Type"))
        seconds = []
        for _ in range(2):
            line = answer.readline()
            self.assertTrue(line.startswith(b"data: {"), line)
            seconds.append(json.loads(line[len("data: ") :])["job"]["seconds"])
            self.assertEqual(b"\n", answer.readline())
        self.assertLess(seconds[0], seconds[1])

    def test_the_last_event_tells_how_the_job_has_ended(self):
        process = self.start("--page_port=0")
        port, token = self.page()
        answer = self.ask(port, "/events?token=" + token)
        answer.readline()
        process.send_signal(signal.SIGTERM)
        events = [line for line in answer if line.startswith(b"data: ")]
        job = json.loads(events[-1][len("data: ") :])["job"]
        self.assertEqual("failed", job["phase"])
        self.assertIn("stopped by Terminated", job["why"])

    def test_sixteen_pages_may_look_at_once(self):
        self.start("--page_port=0")
        port, token = self.page()
        pages = [self.ask(port, "/events?token=" + token) for _ in range(16)]
        self.assertEqual([200] * 16, [page.status for page in pages])
        self.assertEqual(503, self.ask(port, "/events?token=" + token).status)
        self.assertEqual(200, self.ask(port, "/job.json?token=" + token).status)

    def test_missing_nodes_are_named_in_the_state(self):
        self.start("--page_port=0", "--stall_warning=1")
        port, token = self.page()

        def state():
            return json.loads(self.ask(port, "/job.json?token=" + token).read())

        eventually(lambda: state()["stalls"], DEADLINE)
        self.assertIn("the job waits for 1 server and 2 workers", state()["stalls"][0]["text"])
        self.assertEqual(["missing"] * 3, [node["state"] for node in state()["nodes"]])
        line = " s the job waits for 1 server and 2 workers; there: nobody\n"
        self.assertTrue(eventually(lambda: line in self.logged(), DEADLINE))

    @unittest.skipIf(PROMTOOL is None, "promtool is missing (Debian package prometheus)")
    def test_promtool_finds_nothing_to_say_about_the_metrics(self):
        self.start("--metrics_port=0")
        text = self.ask(self.metrics(), "/metrics").read()
        self.assertIn(b'slimps_node_up{role="worker",rank="1"} 0\n', text)
        checked = subprocess.run(
            [PROMTOOL, "check", "metrics"],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.assertEqual((0, b""), (checked.returncode, checked.stdout))

    def test_an_address_that_others_reach_wants_a_token_for_metrics(self):
        self.start("--metrics_port=0", "--watch_bind=0.0.0.0")
        port, token = self.found(
            r"metrics at http://%s:(\d+)/metrics\?token=([0-9a-f]{32})\n"
            % re.escape(socket.gethostname())
        ).groups()
        self.assertEqual(403, self.ask(int(port), "/metrics").status)
        self.assertEqual(200, self.ask(int(port), "/metrics?token=" + token).status)

    def test_one_warning_says_that_others_can_read_plain_http(self):
        warning = "watch_bind: others can reach this address"
        self.start("--page_port=0", "--metrics_port=0", "--watch_bind=0.0.0.0")
        self.assertEqual(1, self.logged().count(warning), self.logged())
        for flags in (["--page_port=0", "--metrics_port=0"], ["--watch_bind=0.0.0.0"]):
            self.start(*flags)
            self.assertNotIn(warning, self.logged())

    def test_a_port_in_use_is_one_line_and_status_1(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for flag in ("--page_port", "--metrics_port"):
                process = self.start("%s=%d" % (flag, port))
                self.assertEqual(1, process.wait(DEADLINE))
                self.assertEqual(
                    "slimps_scheduler: %s: cannot listen at 127.0.0.1:%d: Address already in use\n"
                    % (flag, port),
                    self.logged(),
                )

    def test_the_watch_file_is_this_users_and_is_removed(self):
        process = self.start("--page_port=0", "--watch_file=" + self.watch_file, "--job_id=mine")
        port, token = self.page()
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.watch_file).st_mode))
        with open(self.watch_file, encoding="utf-8") as text:
            self.assertEqual(
                {
                    "address": "http://127.0.0.1:%d" % port,
                    "token": token,
                    "job": "mine",
                    "pid": process.pid,
                    "host": socket.gethostname(),
                    "begun": source.begun(process.pid),
                },
                json.load(text),
            )
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
        self.assertFalse(os.path.exists(self.watch_file))

    def test_a_killed_schedulers_page_goes_on_with_the_next(self):
        flags = ("--page_port=0", "--watch_file=" + self.watch_file)
        former = self.start(*flags)
        page = self.page()
        former.kill()
        former.wait(DEADLINE)
        former = self.start(*flags)
        self.assertEqual(page, self.page())
        self.start(*flags)
        self.assertEqual(page[1], self.page()[1])
        self.assertNotEqual(page[0], self.page()[0], "the port is taken")
        self.start(*flags, "--job_id=another")
        self.assertNotEqual(page[1], self.page()[1])

    def test_what_others_could_write_names_no_token(self):
        flags = ("--page_port=0", "--watch_file=" + self.watch_file)
        former = self.start(*flags)
        token = self.page()[1]
        former.kill()
        former.wait(DEADLINE)
        os.chmod(self.watch_file, 0o660)
        self.start(*flags)
        self.assertNotEqual(token, self.page()[1])

    def test_page_and_metrics_have_the_token_of_a_file(self):
        path = os.path.join(self.folder, "token")
        token = "f" * 32
        with open(path, "w", encoding="utf-8") as text:
            text.write(token + "\n")
        flags = ("--metrics_port=0", "--page_port=0", "--watch_token_file=" + path)
        os.chmod(path, 0o640)
        self.assertEqual(2, self.start(*flags).wait(DEADLINE))
        self.assertIn("others cannot reach: chmod 600", self.logged())
        os.chmod(path, 0o600)
        self.start(*flags, "--watch_bind=0.0.0.0")
        for what in ("metrics at", "watch this job at"):
            self.assertTrue(self.found(what + r" http://\S+\?token=" + token + "\n"))

    def test_nothing_listens_unless_it_is_asked_for(self):
        self.start()
        self.assertNotIn("http://", self.logged())


if __name__ == "__main__":
    unittest.main()
