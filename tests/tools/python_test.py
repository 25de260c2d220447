# SPDX-License-Identifier: Apache-2.0
"""install-python, and what launch does for a Python script."""

import base64
import hashlib
import io
import os
import sys
import tempfile
import unittest
import zipfile
from contextlib import redirect_stdout
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")
sys.path[:0] = [TOOLS, HERE]

import fake_commands  # noqa: E402
from cli import python_package  # noqa: E402
from cli import setup  # noqa: E402


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slimps-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.target = os.path.join(folder.name, "target")

    def wheel(self, version, files, spoil=None):
        path = os.path.join(self.folder, "slimps-%s-cp311-cp311-linux_x86_64.whl" % version)
        info = "slimps-%s.dist-info/" % version
        files = dict(files, **{info + "METADATA": "Name: slimps\nVersion: %s\n" % version})
        lines = [
            "%s,sha256=%s,%d"
            % (
                name,
                base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
                .rstrip(b"=")
                .decode(),
                len(text),
            )
            for name, text in files.items()
        ]
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text if name != spoil else text + " ")
            archive.writestr(info + "RECORD", "\n".join(lines) + "\n%sRECORD,,\n" % info)
        return path

    def installed(self):
        found = set()
        for folder, _, names in os.walk(self.target):
            found.update(os.path.relpath(os.path.join(folder, name), self.target) for name in names)
        return found

    def test_a_wheel_is_unpacked_and_recorded(self):
        python_package.unpack(self.wheel("1", {"slimps/__init__.py": "one = 1\n"}), self.target)
        self.assertEqual(
            {
                "slimps/__init__.py",
                "slimps-1.dist-info/METADATA",
                "slimps-1.dist-info/RECORD",
                "slimps-1.dist-info/INSTALLER",
            },
            self.installed(),
        )
        with open(
            os.path.join(self.target, "slimps-1.dist-info", "RECORD"), encoding="utf-8"
        ) as record:
            self.assertTrue(
                record.read().endswith(
                    "slimps-1.dist-info/RECORD,,\nslimps-1.dist-info/INSTALLER,,\n"
                )
            )

    def test_an_earlier_installation_goes_and_nothing_else(self):
        python_package.unpack(self.wheel("1", {"slimps/old.py": ""}), self.target)
        for name in (
            "other.py",
            os.path.join("slimps", "mine.py"),
            os.path.join(self.folder, "outside"),
        ):
            with open(os.path.join(self.target, name), "w", encoding="utf-8"):
                pass
        with open(
            os.path.join(self.target, "slimps-1.dist-info", "RECORD"), "a", encoding="utf-8"
        ) as record:
            record.write("../outside,,\n")
        python_package.unpack(self.wheel("2", {"slimps/new.py": ""}), self.target)
        self.assertEqual(
            {
                "other.py",
                "slimps/mine.py",
                "slimps/new.py",
                "slimps-2.dist-info/METADATA",
                "slimps-2.dist-info/RECORD",
                "slimps-2.dist-info/INSTALLER",
            },
            self.installed(),
        )
        self.assertTrue(os.path.exists(os.path.join(self.folder, "outside")))

    def test_a_spoilt_wheel_is_refused_and_the_old_one_stays(self):
        python_package.unpack(self.wheel("1", {"slimps/old.py": ""}), self.target)
        with self.assertRaisesRegex(setup.SetupError, "slimps/new.py is not as its RECORD says"):
            python_package.unpack(
                self.wheel("2", {"slimps/new.py": ""}, spoil="slimps/new.py"), self.target
            )
        self.assertIn("slimps/old.py", self.installed())

    def test_the_command_says_where_it_went_and_what_to_try(self):
        wheel = self.wheel("1", {"slimps/__init__.py": ""})
        with mock.patch.object(python_package, "built_wheel", return_value=wheel), redirect_stdout(
            io.StringIO()
        ) as said:
            self.assertEqual(0, python_package.install(["--target", self.target]))
        self.assertIn("into " + self.target, said.getvalue())
        self.assertIn(
            "PYTHONPATH=%s /usr/bin/python3 -c 'import slimps" % self.target, said.getvalue()
        )
        self.assertIn("slimps launch --workers 2", said.getvalue())

    def test_without_target_it_is_the_users_own_folder(self):
        wheel = self.wheel("1", {"slimps/__init__.py": ""})
        with mock.patch.object(python_package, "built_wheel", return_value=wheel), mock.patch.dict(
            os.environ, {"PYTHONUSERBASE": self.folder}
        ), redirect_stdout(io.StringIO()) as said:
            self.assertEqual(0, python_package.install([]))
        self.target = os.path.join(self.folder, "lib", "python3.11", "site-packages")
        self.assertIn("slimps/__init__.py", self.installed())
        self.assertNotIn("PYTHONPATH", said.getvalue())

    def test_a_folder_that_cannot_be_written_is_named(self):
        with open(os.path.join(self.folder, "file"), "w", encoding="utf-8"):
            pass
        wheel = self.wheel("1", {"slimps/__init__.py": ""})
        with mock.patch.object(
            python_package, "built_wheel", return_value=wheel
        ), self.assertRaisesRegex(setup.SetupError, "cannot install into .*file"):
            python_package.install(["--target", os.path.join(self.folder, "file")])


class LaunchTest(unittest.TestCase):
    def prepare(self, command, **fakes):
        """Prepares `command` with fake programs that answer the probe as given. Returns what was
        said too."""
        said = []
        with fake_commands.FakeCommands() as fake, mock.patch.object(
            python_package, "ensure_package", return_value="/built"
        ), mock.patch.dict(os.environ):
            os.environ.pop("PYTHONPATH", None)
            for name, answer in fakes.items():
                fake.add(name, "echo " + answer)
            with mock.patch.object(python_package, "PYTHON", fake.at("debian")):
                command, environment = python_package.prepare(command, said.append)
            return [os.path.basename(command[0])] + command[1:], environment, said

    def test_other_programs_are_left_alone(self):
        self.assertEqual(
            (["slimps_worker", "--model", "mlp"], {}, []),
            self.prepare(["slimps_worker", "--model", "mlp"]),
        )
        self.assertEqual((["pythonize"], {}, []), self.prepare(["pythonize"]))

    def test_a_python_without_the_package_finds_the_built_one(self):
        command, environment, said = self.prepare(
            ["python3", "train.py"], python3="3.11 True False"
        )
        self.assertEqual((["python3", "train.py"], []), (command, said))
        self.assertEqual({"PYTHONUNBUFFERED": "1", "PYTHONPATH": "/built"}, environment)

    def test_an_installed_package_is_used(self):
        _, environment, _ = self.prepare(
            ["python3.11", "train.py"], **{"python3.11": "3.11 True True"}
        )
        self.assertEqual({"PYTHONUNBUFFERED": "1"}, environment)

    def test_a_pythonpath_stays_behind_the_package(self):
        with mock.patch.object(
            python_package, "probe", return_value=(None, False)
        ), mock.patch.object(
            python_package, "ensure_package", return_value="/built"
        ), mock.patch.dict(
            os.environ, {"PYTHONPATH": "/mine"}
        ):
            self.assertEqual("/built:/mine", python_package.prepare(["python3"])[1]["PYTHONPATH"])

    def test_a_python3_that_cannot_load_it_gives_way_and_that_is_said(self):
        for answer, why in (
            ("3.12 True False", "is Python 3.12, and the package slimps is built for 3.11"),
            ("3.11 False False", "has no numpy"),
            ("oh", "does not say which Python it is"),
        ):
            command, environment, said = self.prepare(
                ["python3", "a.py"], python3=answer, debian="3.11 True False"
            )
            self.assertEqual(["debian", "a.py"], command)
            self.assertEqual("/built", environment["PYTHONPATH"])
            self.assertRegex(
                said[0], "^slimps: python3 is .*/python3, which %s; running .*debian$" % why
            )

    def test_a_python_that_was_named_by_its_path_stays(self):
        said = []
        with mock.patch.object(python_package, "probe", return_value=("has no numpy", False)):
            command, environment = python_package.prepare(["/opt/python3", "a.py"], said.append)
        self.assertEqual(
            (["/opt/python3", "a.py"], {"PYTHONUNBUFFERED": "1"}), (command, environment)
        )
        self.assertEqual(["slimps: /opt/python3 has no numpy"], said)

    def test_debians_python_can_run_the_package(self):
        self.assertIsNone(python_package.probe("/usr/bin/python3")[0])
        self.assertEqual(
            ("cannot be run (No such file or directory)", False),
            python_package.probe("/no/such/python3"),
        )


if __name__ == "__main__":
    unittest.main()
