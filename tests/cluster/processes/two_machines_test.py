# SPDX-License-Identifier: Apache-2.0
"""A job of real processes on two machines (network namespaces): where daemons listen, what they say
if nobody can reach them there, and who is told which nodes the job waits for. Skipped where
namespaces cannot be made."""

import os
import signal
import subprocess
import tempfile
import unittest

from bench.cluster import net
from eventually import eventually

PROGRAMS = os.path.abspath(".")  # the runfiles, where tests start

WHY_NOT = net.why_not()
DEADLINE = 60.0  # seconds; only a failing test waits this long
SCHEDULER, SERVER, WORKER = (
    "scheduler/slimps_scheduler",
    "server/slimps_server",
    "examples/kvstore_cpp",
)


@unittest.skipIf(WHY_NOT is not None, WHY_NOT)
class TwoMachinesTest(unittest.TestCase):
    def setUp(self):
        self.network = net.Network(2, congestion="default")
        self.network.__enter__()
        self.addCleanup(self.network.remove)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.processes = {}
        self.addCleanup(self.end)

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()

    def start(self, name, node, program, *flags, uri="10.77.0.1", workers=1):
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("DMLC_")
        }
        environment.update(
            DMLC_PS_ROOT_URI=uri,
            DMLC_PS_ROOT_PORT="9091",
            DMLC_NUM_WORKER=str(workers),
            DMLC_NUM_SERVER="1",
        )
        command = self.network.command(node, [os.path.join(PROGRAMS, program), *flags])
        with open(self.path(name), "wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def output(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as text:
            return text.read()

    def wait_for(self, condition, what):
        if not eventually(condition, DEADLINE):
            self.fail(
                "waited %.0f s for %s\n%s"
                % (
                    DEADLINE,
                    what,
                    "\n".join("--- %s\n%s" % (name, self.output(name)) for name in self.processes),
                )
            )

    def wait_for_line(self, name, text):
        self.wait_for(lambda: text in self.output(name), "%r in the output of %s" % (text, name))

    def status(self, name):
        self.wait_for(lambda: self.processes[name].poll() is not None, "the end of " + name)
        return self.processes[name].returncode

    def test_a_job_trains_with_nothing_said_but_insecure(self):
        self.start("scheduler", 0, SCHEDULER, "--insecure")
        self.start("server", 1, SERVER, "--insecure")
        self.wait_for_line("scheduler", "server 0 (host ")
        self.assertIn("listens at tcp://10.77.0.2:", self.output("scheduler"))
        self.start("worker", 0, WORKER)
        for name in ("worker", "server", "scheduler"):
            self.assertEqual(0, self.status(name), self.output(name))

    def test_daemons_that_others_would_reach_ask_for_insecure_and_name_their_address(self):
        self.start("scheduler", 0, SCHEDULER)
        self.start("server", 1, SERVER)
        self.assertEqual(2, self.status("scheduler"))
        self.assertIn(
            "DMLC_PS_ROOT_URI=10.77.0.1 can be reached by others", self.output("scheduler")
        )
        self.assertEqual(2, self.status("server"))
        self.assertIn(
            "10.77.0.2, by which this machine reaches the scheduler at 10.77.0.1, can be reached "
            "by others",
            self.output("server"),
        )

    def test_a_server_that_only_its_own_machine_reaches_is_refused(self):
        self.start("server", 1, SERVER, "--bind=127.0.0.1")
        self.assertEqual(2, self.status("server"))
        self.assertIn(
            "--bind=127.0.0.1: no other machine reaches this server there", self.output("server")
        )
        self.assertIn("leave --bind out (which is --bind=10.77.0.2)", self.output("server"))

    def test_a_scheduler_elsewhere_than_it_is_looked_for_is_refused(self):
        self.start("scheduler", 0, SCHEDULER, "--bind=127.0.0.1", "--insecure")
        self.assertEqual(2, self.status("scheduler"))
        self.assertIn(
            "nodes look for the scheduler at DMLC_PS_ROOT_URI=10.77.0.1", self.output("scheduler")
        )

    def test_a_server_beside_the_scheduler_on_loopback_is_named_by_a_worker_elsewhere(self):
        self.start("scheduler", 0, SCHEDULER, "--bind=0.0.0.0", "--insecure")
        self.wait_for_line("scheduler", "waiting at")
        self.start("server", 0, SERVER, uri="127.0.0.1")
        self.start("worker", 1, WORKER)
        self.assertNotEqual(0, self.status("worker"))
        for name in ("worker", "scheduler"):
            self.wait_for_line(name, "listens at tcp://127.0.0.1:")
            self.assertIn("start the server with --bind", self.output(name))
        self.assertEqual(1, self.status("scheduler"))

    def test_the_scheduler_and_who_waits_tell_whom_the_job_waits_for_and_who_was_refused(self):
        self.start("scheduler", 0, SCHEDULER, "--insecure", workers=2)
        self.wait_for_line("scheduler", "waiting at")
        self.start("server", 1, SERVER, "--insecure", workers=2)
        self.start("worker", 0, WORKER, workers=2)
        self.wait_for_line("scheduler", "worker 0 (host ")
        self.start("mistaken", 1, WORKER, workers=3)
        self.assertNotEqual(0, self.status("mistaken"))
        self.assertIn("was told 3 workers", self.output("mistaken"))
        self.wait_for_line("scheduler", "refused a worker (host ")
        self.wait_for_line("scheduler", "the job waits for 1 worker; there: server 0 (host ")
        for name in ("worker", "server"):
            self.wait_for_line(name, "waiting for 1 worker; the scheduler refused a worker (host ")
            self.assertIn("was told 3 workers", self.output(name))


if __name__ == "__main__":
    unittest.main()
