# SPDX-License-Identifier: Apache-2.0
"""launch and run: what they refuse, each in one line, and jobs on this machine."""

import contextlib
import http.client
import io
import os
import signal
import tempfile
import unittest
from unittest import mock

import commands
from commands import SLIMPS, SMALL, TRAIN, Command
from eventually import eventually
from slimps_launch import command
from slimps_launch import job_launch
from slimps_launch.placement import topology
from slimps_launch.places import here
from slimps_launch.watching import source

COUNTS = ["--workers=2", "--servers=2"]


class RefusedTest(unittest.TestCase):
    def refused(self, *arguments, **environment):
        """Returns the last line, after usage, which some errors show."""
        with Command(SLIMPS + list(arguments), **environment) as job:
            self.assertNotEqual(0, job.status())
            lines = [line for line in job.lines if not line.startswith(("usage:", "  "))]
            self.assertEqual(1, len(lines), job.said)
            return lines[0]

    def test_what_launch_cannot_do_is_told_in_one_line(self):
        launch = ["launch", *COUNTS]
        for flags, words in (
            (["--on", "moon", "--", "true"], "--on moon: expected local, ssh:HOSTFILE, slurm, mpi"),
            (["--on", "local:x", "--", "true"], "--on local:x: expected local"),
            (["--on", "ssh", "--", "true"], "--on ssh: expected --on ssh:HOSTFILE"),
            (["--on", "ssh:/no/file", "--", "true"], "hostfile /no/file: No such file"),
            (["--servers-apart", "--", "true"], "--servers-apart goes with --on slurm"),
            (["--interface", "nowhere0", "--", "true"], "--interface nowhere0: no interface of"),
            (["--logs", "/dev/null/x", "--", "true"], "--logs /dev/null/x: Not a directory"),
            (["--", "/no/program"], "command not found: /no/program"),
            ([], "expected -- COMMAND at the end"),
        ):
            with self.subTest(flags):
                self.assertIn(words, self.refused(*launch, *flags))

    def test_what_run_cannot_do_is_told_in_one_line(self):
        self.assertIn(
            "neither torchrun, srun, mpirun nor Kubernetes has started this process",
            self.refused("run", "--", "true"),
        )
        self.assertIn('expected HOST:PORT, got "x"', self.refused("run", "--scheduler", "x"))
        self.assertIn(
            "Kubernetes does not say where the scheduler is: give --scheduler HOST:PORT",
            self.refused("run", *COUNTS, "--", "true", JOB_COMPLETION_INDEX="1"),
        )

    def test_daemons_that_are_not_there_are_told_with_what_to_do(self):
        with mock.patch.object(command.Installation, "folder", "/no/folder"):
            with self.assertRaisesRegex(command.errors.LaunchError, "install slimps again"):
                command.main(["launch", *COUNTS, "--", "true"])


class LocalTest(unittest.TestCase):
    def test_it_trains(self):
        commands.trained(SLIMPS + ["launch", *COUNTS, "--"] + TRAIN)

    def test_a_worker_s_exception_is_told_with_its_traceback_also_if_it_ends_late(self):
        for what, end in (("fail", "exited with status 1"), ("late", "failed")):
            with Command(SLIMPS + ["launch", *COUNTS, "--"] + SMALL + [what]) as job:
                self.assertEqual(1, job.status(), job.said)
                at = job.lines.index(
                    "slimps: the job failed: worker1 %s: ValueError: bad luck" % end
                )
                report = "\n".join(job.lines[at:])
            self.assertIn("  worker1| Traceback (most recent call last):", report)
            self.assertRegex(
                report, r'  worker1\|   File ".*/small_worker.py", line \d+, in <module>'
            )
            self.assertIn('    raise ValueError("bad luck")', report)

    def test_what_a_killed_launcher_has_started_ends_with_all_that_it_started(self):
        shell = ["sh", "-c", '"$@"; true', "sh"]  # the worker is a child of the shell
        with Command(SLIMPS + ["launch", *COUNTS, "--"] + shell + SMALL + ["wait"]) as job:
            job.wait_for("ready: ", 2)
            job.process.send_signal(signal.SIGKILL)
            self.assertTrue(eventually(lambda: not job.processes(), commands.SECONDS), job.said)

    def test_a_worker_that_ends_without_python_s_end_is_named_with_that_cause(self):
        with Command(SLIMPS + ["launch", *COUNTS, "--"] + SMALL + ["vanish"]) as job:
            self.assertEqual(1, job.status())
            job.wait_for(
                r"slimps: the job failed: .*worker 1 \(host .*\) has ended without closing its "
                "store: by os._exit"
            )

    def test_workers_that_end_before_they_join_end_the_job_at_once(self):
        with Command(SLIMPS + ["launch", *COUNTS, "--"] + SMALL + ["idle"]) as job:
            self.assertEqual(1, job.status())
            job.wait_for("slimps: the job failed: .*worker . has ended before all nodes had joined")

    def test_what_a_killed_launcher_left_is_gone_with_the_next(self):
        folder = tempfile.TemporaryDirectory(prefix="slimps-test-")
        self.addCleanup(folder.cleanup)
        launch = SLIMPS + ["launch", *COUNTS, "--restart=1", "--"]
        with Command(launch + SMALL + ["wait"], TMPDIR=folder.name) as job:
            job.wait_for("ready: ", 2)
            servers = job.processes("slimps_server")
            job.process.send_signal(signal.SIGKILL)
            self.assertTrue(job.nobody_is_left())
        sockets = "/tmp/slimps-%d" % os.geteuid()

        def left():
            own = [name for name in os.listdir(sockets) if int(name.split("-")[1]) in servers]
            return sorted(name.split("-")[2] for name in os.listdir(folder.name)), own

        folders, own = left()
        self.assertEqual((["keys", "reports", "snapshots"], len(servers)), (folders, len(own)))
        commands.trained(launch + TRAIN, TMPDIR=folder.name)
        self.assertEqual(([], []), left())

    def test_a_tilde_behind_a_flag_is_the_home_directory(self):
        with tempfile.TemporaryDirectory(prefix="slimps-test-") as home:
            launch = SLIMPS + ["launch", *COUNTS, "--logs=~/logs", "--checkpoint=~/saved", "--"]
            with Command(launch + TRAIN, cwd=home, HOME=home) as job:
                self.assertEqual(0, job.status(), job.said)
            self.assertIn("worker0.log", os.listdir(os.path.join(home, "logs")))
            self.assertNotIn("~", os.listdir(home))

    def test_cores_are_shared_out_and_that_is_said(self):
        job = job_launch.Job(["scheduler"], ["server"], ["worker"], 2, 1)
        job.share_cores = True
        out = io.StringIO()
        launcher = job_launch.Launcher(job, out=out)
        machine = topology.Topology([topology.Core(frozenset({cpu})) for cpu in range(8)])
        with mock.patch.object(topology, "read", return_value=machine):
            with mock.patch.object(launcher, "start_here") as start:
                here.Place().start(launcher, 4711)
        given = [call.kwargs.get("cores") or call.args[-1] for call in start.call_args_list]
        self.assertEqual([{0, 1}, {2, 3, 4}, {5, 6, 7}], given)
        self.assertEqual(
            "slimps: 2 cores for each server, 3 cores for each worker\n", out.getvalue()
        )


class WatchedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slimps-test-")
        self.addCleanup(folder.cleanup)
        self.home = {"HOME": folder.name, "XDG_RUNTIME_DIR": folder.name}

    def status(self):
        """Returns the exit status of slimps status, and what it says."""
        with Command(SLIMPS + ["status"], **self.home) as asked:
            return asked.status(), asked.said

    def assert_metrics_at(self, address):
        """Fails unless the metrics there say at last that all nodes are in the job."""

        def nodes_up():
            with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as asked:
                asked.request("GET", "/metrics")
                lines = asked.getresponse().read().decode().splitlines()
            return [line for line in lines if line.startswith("slimps_node_up{")]

        nodes = [(role, rank) for role in ("server", "worker") for rank in (0, 1)]
        expected = ['slimps_node_up{role="%s",rank="%d"} 1' % node for node in nodes]
        eventually(lambda: sorted(nodes_up()) == expected, commands.SECONDS)
        self.assertEqual(expected, sorted(nodes_up()))

    def test_the_addresses_that_launch_prints_answer_and_status_finds_the_job(self):
        launch = SLIMPS + ["launch", *COUNTS, "--page_port=0", "--metrics_port=0", "--"]
        with Command(launch + SMALL + ["wait"], **self.home) as job:
            job.wait_for("ready: ", 2)
            [metrics] = job.wait_for(r"metrics at http://(127\.0\.0\.1:\d+)/metrics$")
            self.assert_metrics_at(metrics.group(1))
            [page] = job.wait_for(r"watch this job at (http://127\.0\.0\.1:\d+/\?token=\w+)$")
            asked = source.Source(page.group(1), token="")
            eventually(lambda: asked.ask()["job"]["phase"] == "running", commands.SECONDS)
            told = asked.ask()
            self.assertEqual(("running", 4), (told["job"]["phase"], len(told["nodes"])))
            status, said = self.status()
            self.assertEqual(0, status, said)
            self.assertIn("2 of 2 workers, 2 of 2 servers there", said)
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(128 + signal.SIGINT, job.status(), job.said)
        status, said = self.status()
        self.assertEqual(1, status)
        self.assertIn("no job runs here that can be watched", said)


if __name__ == "__main__":
    unittest.main()
