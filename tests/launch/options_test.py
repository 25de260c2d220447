# SPDX-License-Identifier: Apache-2.0
"""What a command refuses before it starts a process, and what it tells the processes of ssh."""

import argparse
import contextlib
import io
import json
import os
import unittest
from unittest import mock

import folder_case
from slimps_launch import __main__ as main_module
from slimps_launch import command
from slimps_launch import errors
from slimps_launch import job_launch
from slimps_launch.identity import keys
from slimps_launch.places import on_mpi
from slimps_launch.places import on_ssh


class LaunchFlagsTest(unittest.TestCase):
    def test_a_trace_is_of_this_machine_and_of_hosts_alone(self):
        for where in ("mpi", "slurm", "k8s"):
            arguments = [
                "--on",
                where,
                "--workers=1",
                "--servers=1",
                "--trace=t.json",
                "--",
                "true",
            ]
            with contextlib.redirect_stderr(io.StringIO()) as said:
                with self.subTest(where), self.assertRaises(SystemExit):
                    command.launch(arguments, None)
            self.assertIn("--trace goes with --on local and --on ssh", said.getvalue())

    def refused(self, *flags):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with self.assertRaises(SystemExit):
                command.launch([*flags, "--workers=1", "--servers=1", "--", "true"], None)
        return said.getvalue()

    def test_an_engine_starts_jobs_again_by_its_own_means(self):
        for where, means in (
            ("mpi", "mpirun starts no process again: start the job again with --checkpoint"),
            ("slurm", "sbatch --requeue"),
            ("k8s", "Kubernetes starts a whole job again"),
        ):
            said = self.refused("--on=" + where, "--restart=1")
            self.assertIn("--restart goes with --on local and ssh. ", said)
            self.assertIn(means, " ".join(said.split()))

    def test_a_folder_with_checkpoints_needs_a_word(self):
        self.assertIn("--resume goes with --checkpoint DIR", self.refused("--resume"))

    def test_a_wait_is_a_number_of_seconds_also_in_its_variable(self):
        self.assertIn('got "0"', self.refused("--timeout_s=0"))
        self.assertIn('got "1e3"', self.refused("--join_timeout_s=1e3"))
        with mock.patch.dict(os.environ, SLIMPS_JOIN_TIMEOUT_S="a minute"):
            said = self.refused()
        self.assertIn("--join_timeout_s", said)
        self.assertIn('expected 1 to 86400 seconds, got "a minute"', said)

    def test_snapshots_are_for_restarts(self):
        self.assertIn("goes with --restart N", self.refused("--snapshot_dir=d"))
        self.assertIn("goes with --restart N", self.refused("--snapshot_every=5"))
        self.assertIn('got "0"', self.refused("--restart=1", "--snapshot_every=0"))
        self.assertIn('got "-1"', self.refused("--restart=-1"))


class ConsoleTest(unittest.TestCase):
    def test_ctrl_c_during_the_imports_ends_it_without_a_traceback(self):
        with mock.patch("builtins.__import__", side_effect=KeyboardInterrupt):
            with self.assertRaises(SystemExit) as ended:
                main_module.console()
        self.assertEqual(130, ended.exception.code)


class CommandInVariableTest(unittest.TestCase):
    def test_quotes_that_do_not_match_are_told_with_the_variable(self):
        with mock.patch.dict(os.environ, SLIMPS_MPIRUN='mpirun "x'):
            with self.assertRaisesRegex(errors.LaunchError, 'SLIMPS_MPIRUN=mpirun "x: No closing'):
                on_mpi.find_command()

    def test_a_blank_one_is_as_none(self):
        with mock.patch.dict(os.environ, SLIMPS_MPIRUN=" "):
            with mock.patch.object(on_mpi.shutil, "which", return_value="/bin/mpirun"):
                self.assertEqual(["/bin/mpirun"], on_mpi.find_command())


class SshTest(folder_case.FolderCase):
    def place(self, **environment):
        """Returns the place of one server and two workers on the hosts a and b, and its job."""
        path = self.put("hosts", "a slots=2\nb slots=2\n")
        job = job_launch.Job(["scheduler"], ["server"], ["worker"], 2, 1)
        with mock.patch.dict(os.environ, **environment):
            return on_ssh.Place(job, argparse.Namespace(interface=None), path, ["slimps"]), job

    def test_its_command_may_have_options(self):
        for given, words in ((" ", ["ssh", "-T"]), ("ssh -p '7 7'", ["ssh", "-p", "7 7", "-T"])):
            place, _ = self.place(SLIMPS_SSH=given)
            self.assertEqual(words, place.carriers_of_hosts()[0].command[: len(words)])
        with self.assertRaisesRegex(errors.LaunchError, 'SLIMPS_SSH=ssh "x: No closing quotation'):
            self.place(SLIMPS_SSH='ssh "x')

    def test_each_node_is_told_its_own_key_and_by_stdin_alone(self):
        place, job = self.place()
        job.keys = keys.make(self.path("keys"), 2, 1)
        place.address = "10.0.0.1"
        told = []
        place.carriers = place.carriers_of_hosts()
        for carrier in place.carriers:
            carrier.about = {"address": "10.0.0.2", "port": 4711}
            carrier.tell = lambda line: told.extend(json.loads(line)["nodes"])
        place.start(mock.Mock(job=job), 9091)
        self.assertEqual(["server0", "worker0", "worker1"], sorted(node["name"] for node in told))
        for node in told:
            self.assertEqual(job.keys.secret_file(node["name"]), node["key"])
            secret = node["key"].split()[-1]
            self.assertNotIn(secret, " ".join(node["command"]) + str(node["environment"]))
            self.assertEqual(
                job.keys.public["scheduler"], node["environment"]["SLIMPS_SCHEDULER_KEY"]
            )

    def test_a_script_s_process_group_meets_where_all_hosts_reach_it(self):
        for address, master in (
            ("10.0.0.2", "10.0.0.2"),
            ("127.0.0.1", "10.0.0.1"),
            (None, "10.0.0.1"),
        ):
            place, job = self.place()
            place.address = "10.0.0.1"
            told = []
            place.carriers = place.carriers_of_hosts()
            for carrier in place.carriers:
                carrier.about = {"address": address, "port": 4711}
                carrier.tell = lambda line: told.extend(json.loads(line)["nodes"])
            place.start(mock.Mock(job=job), 9091)
            found = [node["member"] for node in told if node["role"] == "worker"]
            self.assertEqual([master, master], [member["address"] for member in found])


if __name__ == "__main__":
    unittest.main()
