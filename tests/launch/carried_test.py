# SPDX-License-Identifier: Apache-2.0
"""Nodes that another process carries: what their agents report, and what is heard when it is mixed.

A fake node stands for mpirun.
"""

import json
import os
import queue
import subprocess
import sys
import unittest
from unittest import mock

import folder_case
import proc_files
from eventually import eventually
from job_case import FAKE, JobCase
from slimps_launch import agent
from slimps_launch import carried
from slimps_launch import job_node
from slimps_launch import job_output
from slimps_launch import job_trace
from slimps_launch import pieces
from slimps_launch.places import here


HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")


class CarriedHere(here.Place):
    """The place of a job whose one worker a carrier has."""

    def __init__(self, script):
        self.script = script

    def start(self, launcher, port):
        worker = carried.CarriedNode("worker0", "worker")
        launcher.start_node(carried.Carrier("mpirun", FAKE + self.script, [worker]), {})


class CarriedJobTest(JobCase):
    def run_carried(self, *script):
        ended = self.path("ended")
        launcher = self.launcher(["until=" + ended], [], [], workers=1)
        launcher.place = CarriedHere([*script[:-1], "touch=" + ended, script[-1]])
        return launcher.run(), self.out.getvalue()

    def test_a_carrier_that_ends_well_says_so_of_nodes_whose_reports_are_lost(self):
        end = carried.report("worker0", status=0, stopped=False, report={}).decode()
        status, out = self.run_carried("say=worker0| step 1" + end, "exit=0")
        self.assertEqual(0, status, out)

    def test_a_carrier_that_fails_fails_the_job(self):
        status, out = self.run_carried("say=worker0| step 1", "exit=7")
        self.assertEqual(7, status, out)
        self.assertIn("slimps: the job failed: mpirun exited with status 7", out)


class AgentTest(unittest.TestCase):
    def test_a_launcher_speaks_while_stdout_holds_up_the_main_thread(self):
        lines = queue.SimpleQueue()
        clock = mock.Mock()
        with mock.patch.object(agent, "time", clock):
            clock.monotonic.return_value = 0.0
            runner = agent.Agent()
            runner.listen(iter(lines.get, None))
            clock.monotonic.return_value = 25.0
            lines.put("signal 0")
            self.assertTrue(eventually(lambda: runner.silent_at == 25.0 + agent.SILENCE))
            clock.monotonic.return_value = 40.0
            node = job_node.Node("worker0", "worker", [])
            node.status = 0
            runner.nodes.append(node)
            runner.events.put(node)
            with mock.patch.object(runner, "write"):
                self.assertEqual(0, runner.run())


class PartTest(folder_case.FolderCase):
    def test_a_part_of_a_trace_arrives_whole_also_for_the_second_time(self):
        sent = "part " * agent.CHUNK
        self.put("sent", sent)
        carrier = carried.Carrier("ssh host", [], [carried.CarriedNode("worker0", "worker")])
        launcher = mock.Mock()
        launcher.job.environment = {job_trace.VARIABLE: self.path("job.json")}
        runner = agent.Agent()

        def hear(line):
            carrier.hear(1, line.rstrip(b"\n"), pieces.LINE, launcher)

        with mock.patch.object(runner, "write", hear):
            runner.send_part("worker0", self.path("none"))
            for _ in range(2):  # a job that begins anew
                runner.send_part("worker0", self.path("sent"))
                self.assertEqual(sent, self.get("job.worker0.json"))
        launcher.output.add.assert_not_called()


class RestartingAgentTest(folder_case.FolderCase):
    def start(self, *script):
        """Starts an agent with one server, which plays the script."""
        process = subprocess.Popen(
            [sys.executable, "-m", "slimps_launch", "agent"],
            env={**os.environ, "PYTHONPATH": PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        server = {
            "name": "server0",
            "role": "server",
            "command": FAKE + list(script),
            "environment": {"OWN": "1"},
        }
        what = {
            "folder": self.folder,
            "share_cores": False,
            "trace": False,
            "snapshots": {"parent": self.path("snapshots"), "every": 7},
            "nodes": [server],
        }
        self.tell(process, json.dumps(what))
        return process

    def tell(self, process, line):
        process.stdin.write(line + "\n")
        process.stdin.flush()

    def status(self, process, what="status"):
        """Returns the status that the agent reports next, or else, and the lines before."""
        lines = []
        for line in process.stdout:
            mark, name, said = (line.split(" ", 2) + ["", ""])[:3]
            if mark == carried.MARK.decode() and "status" in json.loads(said):
                self.assertEqual("server0", name)
                return json.loads(said)[what], lines
            lines.append(line)
        raise AssertionError(lines)

    def test_it_starts_a_node_again_with_its_variables_and_its_snapshots(self):
        process = self.start("env=OWN", "once=" + self.path("died"), "arguments")
        self.assertEqual(-9, self.status(process)[0])
        [folder] = os.listdir(self.path("snapshots"))
        self.tell(process, "start server0")
        status, lines = self.status(process)
        self.assertEqual(0, status)
        self.assertIn("server0| OWN=1\n", lines)
        self.assertIn("server0| --snapshot_every 7\n", lines)
        self.assertEqual(0, process.wait())
        self.assertEqual([], os.listdir(self.path("snapshots")), folder + " goes with the job")

    def test_when_the_job_is_over_it_ends_a_stopped_node_and_goes_when_told(self):
        process = self.start("stop=" + self.path("stopped"), "wait")
        line = next(line for line in process.stdout if '"pid"' in line)
        pid = json.loads(line.split(" ", 2)[2])["pid"]
        self.assertTrue(eventually(lambda: proc_files.state_of(pid) == "T"))
        self.tell(process, "end_if_stopped worker7")  # another agent's
        self.tell(process, "end_if_stopped server0")
        line = next(line for line in process.stdout if '"status"' in line)
        self.assertEqual(
            {"status": -9, "stopped": True, "report": {}}, json.loads(line.split(" ", 2)[2])
        )
        process.communicate()  # closes its stdin
        self.assertEqual(128 + 15, process.returncode)

    def test_what_a_node_writes_and_reports_is_passed_on(self):
        report = {"error": "ValueError: bad"}
        process = self.start("raw=\\r 10%", "err=oh", "report=" + json.dumps(report), "exit=3")
        status, lines = self.status(process, "report")
        self.assertEqual(report, status)
        self.assertIn("server0|  10%\n", lines)
        self.assertIn("server0! oh\n", lines)
        self.tell(process, "signal 15")
        process.wait()

    def test_a_report_that_is_none_holds_nobody_up(self):
        node = job_node.Node("worker0", "worker", [])
        node.report_file = self.path("report")
        os.mkfifo(node.report_file)
        self.assertEqual({}, node.report)
        os.remove(node.report_file)
        self.put("report", "[" * 100000)
        self.assertEqual({}, node.report)

    def test_it_waits_for_the_word_of_the_launcher_after_a_failure(self):
        process = self.start("exit=3")
        self.assertEqual(3, self.status(process)[0])
        self.tell(process, "signal 15")
        self.assertEqual(3, process.wait())


class HearTest(unittest.TestCase):
    def setUp(self):
        self.node = carried.CarriedNode("worker0", "worker")
        self.carrier = carried.Carrier("mpirun", [], [self.node])
        self.cut = self.carrier.cut()
        self.launcher = mock.Mock()

    def hear(self, line):
        for text, end in self.cut.next(line):
            self.carrier.hear(job_output.STDOUT, text, end, self.launcher)

    def test_what_a_node_prints_is_shown_as_its_own(self):
        for piece in (
            (job_output.STDOUT, b"step | 1", pieces.LINE),
            (job_output.STDERR, b"worker1| \xff!", pieces.LINE),
            (job_output.STDERR, b" 10%", pieces.STATE),
        ):
            self.hear(carried.line_of("worker0", *piece))
            self.launcher.output.add.assert_called_with(self.node, *piece)

    def test_a_report_of_an_end_is_an_event(self):
        said = {"error": "ValueError: bad luck", "traceback": "Traceback\n  frames\n"}
        self.hear(carried.report("worker0", pid=17, host="a"))
        self.hear(carried.report("worker0", status=3, stopped=False, report=said))
        self.assertEqual((17, "a", 3), (self.node.pid, self.node.where, self.node.status))
        self.assertEqual(said, self.node.report)
        self.launcher.events.put.assert_called_once_with(self.node)

    def test_a_report_that_is_mixed_with_another_line_is_shown(self):
        for line in (
            carried.MARK,
            carried.MARK + b' worker0 {"status"worker1| step 1',
            carried.MARK + b' worker0worker1| {"status": 0}',
            carried.MARK + b' worker0 {"status": 1}',
        ):
            with self.subTest(line):
                self.hear(line + b"\n")
                self.launcher.output.add.assert_called_with(
                    self.carrier, job_output.STDOUT, line, pieces.LINE
                )


if __name__ == "__main__":
    unittest.main()
