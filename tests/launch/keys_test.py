# SPDX-License-Identifier: Apache-2.0
"""Keys as slimps makes, keeps and hands them out."""

import contextlib
import io
import os
import stat
import unittest
from unittest import mock

import folder_case
from slimps_launch import command
from slimps_launch import errors
from slimps_launch import job_launch
from slimps_launch.identity import keys
from slimps_launch.identity import x25519

# RFC 7748, section 6.1: Alice's and Bob's.
VECTORS = {
    "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a": (
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    ),
    "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb": (
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    ),
}


class PublicKeyTest(unittest.TestCase):
    def test_it_is_that_of_rfc_7748(self):
        for secret, public in VECTORS.items():
            self.assertEqual(public, x25519.public_key(bytes.fromhex(secret)).hex())


class FolderTest(folder_case.FolderCase):
    def make(self, workers=2, servers=1):
        return keys.make(self.path("keys"), workers, servers)

    def test_each_node_has_a_key_that_only_its_owner_reads(self):
        folder = self.make()
        names = ["scheduler", "server0", "worker0", "worker1"]
        self.assertEqual(
            ["allow"] + [name + ".key" for name in names], sorted(os.listdir(folder.path))
        )
        self.assertEqual(0o700, stat.S_IMODE(os.stat(folder.path).st_mode))
        for name in names:
            self.assertEqual(0o600, stat.S_IMODE(os.stat(folder.file_of(name)).st_mode))
            word, secret = folder.secret_file(name).splitlines()[-1].split()
            self.assertEqual("secret", word)
            self.assertEqual(
                folder.public[name], x25519.public_key(bytes.fromhex(secret)).hex(), name
            )
        self.assertEqual(4, len(set(folder.public.values())))

    def test_no_secret_stands_in_the_list(self):
        folder = self.make()
        with open(folder.allow, encoding="ascii") as file:
            listed = file.read()
        for name in folder.public:
            self.assertNotIn(folder.secret_file(name).split()[-1], listed)

    def test_no_key_is_replaced(self):
        self.make()
        with self.assertRaisesRegex(errors.LaunchError, "is not empty"):
            self.make()

    def test_a_folder_that_others_enter_is_refused(self):
        folder = self.make()
        os.chmod(folder.path, 0o750)
        with self.assertRaisesRegex(errors.LaunchError, "chmod 700"):
            keys.Folder(folder.path)

    def test_a_folder_without_a_list_is_none(self):
        with self.assertRaisesRegex(errors.LaunchError, "is no folder of keys"):
            keys.Folder(self.path("."))

    def test_a_job_with_more_nodes_than_keys_is_refused(self):
        folder = self.make()
        folder.check(2, 1)
        for workers, servers, missing in ((3, 1, "worker2"), (2, 2, "server1")):
            with self.assertRaisesRegex(errors.LaunchError, "no key of %s" % missing):
                folder.check(workers, servers)


class JobTest(folder_case.FolderCase):
    def launched(self, *flags):
        """Returns the keys' variables of each process that a launch would start."""
        started = {}

        def run(launcher):
            started["job"] = launcher.job.environment
            for name in ("scheduler", "server0", "worker0", "worker1"):
                started[name] = launcher.job.key_variables(name)
            if launcher.job.keys:
                self.assertTrue(os.path.exists(launcher.job.keys.allow))
                started["folder"] = launcher.job.keys.path
            return 0

        installation = mock.Mock(known_programs=(), again=["slimps"])
        installation.programs.return_value = {
            name: "/bin/true" for name in ("slimps_scheduler", "slimps_server")
        }
        installation.environment.return_value = {}
        with mock.patch.object(job_launch.Launcher, "run", run):
            line = ["--workers=2", "--servers=1", *flags, "--", "true"]
            self.assertEqual(0, command.launch(line, installation))
        return started

    def test_each_job_has_keys_of_its_own_for_as_long_as_it_runs(self):
        first, second = self.launched(), self.launched()
        self.assertNotEqual(
            first["worker0"]["SLIMPS_SCHEDULER_KEY"], second["worker0"]["SLIMPS_SCHEDULER_KEY"]
        )
        self.assertEqual(["SLIMPS_ALLOW_FILE", "SLIMPS_KEY_FILE"], sorted(first["scheduler"]))
        for name in ("server0", "worker0", "worker1"):
            self.assertEqual(
                os.path.join(first["folder"], name + ".key"), first[name]["SLIMPS_KEY_FILE"]
            )
        self.assertFalse(os.path.exists(first["folder"]))

    def test_insecure_is_the_only_way_without(self):
        started = self.launched("--insecure")
        self.assertEqual({}, started["worker0"])
        # Keys that the launcher's own process has are not passed on.
        self.assertEqual({""}, {started["job"].get(name) for name in keys.VARIABLES})

    def test_a_folder_of_keys_is_taken_and_stays(self):
        folder = keys.make(self.path("keys"), 2, 1)
        started = self.launched("--keys", folder.path)
        self.assertEqual(folder.file_of("worker1"), started["worker1"]["SLIMPS_KEY_FILE"])
        self.assertTrue(os.path.exists(folder.allow))

    def test_keys_and_insecure_exclude_each_other(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with self.assertRaises(SystemExit):
                self.launched("--keys", self.path("."), "--insecure")
        self.assertIn("--keys and --insecure exclude each other", said.getvalue())


class KeygenTest(folder_case.FolderCase):
    def test_it_says_what_goes_where(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            line = [self.path("new"), "--workers=1", "--servers=1"]
            self.assertEqual(0, command.keygen(line, None))
        folder = keys.Folder(self.path("new"))
        self.assertIn("SLIMPS_SCHEDULER_KEY=" + folder.public["scheduler"], said.getvalue())
        self.assertIn(folder.path, said.getvalue())


if __name__ == "__main__":
    unittest.main()
