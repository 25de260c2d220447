# SPDX-License-Identifier: Apache-2.0
"""install-python, and what launch does for a Python script."""

import contextlib
import io
import os
import unittest
from unittest import mock

import fake_commands
from cli import pip_environment
from cli import python_package
from cli import python_wheel
from cli import setup


class InstallTest(unittest.TestCase):
    def install(self, arguments, managed="False", pip="exit 0"):
        """Installs with a fake pip for the fake Python "py". Returns pip's calls, and what was
        said."""
        said = io.StringIO()
        with fake_commands.FakeCommands() as fake:
            fake.add("py", "echo " + managed)
            with mock.patch.object(
                pip_environment, "ensure", return_value=fake.add("tool", pip)
            ), mock.patch.object(
                python_wheel, "build", lambda out: "a.whl"
            ), contextlib.redirect_stdout(
                said
            ):
                self.assertEqual(0, python_package.install(["--python", "py"] + arguments))
            start = ["tool", "-m", "pip", "--python", fake.at("py"), "install"]
            calls = [call for call in fake.calls if call[0] == "tool"]
            self.assertEqual([start] * len(calls), [call[: len(start)] for call in calls])
            return [call[len(start) :] for call in calls], said.getvalue()

    def test_pip_installs_the_wheel_with_what_it_needs_even_over_the_same_version(self):
        self.assertEqual(
            [["a.whl"], ["--no-deps", "--force-reinstall", "a.whl"]], self.install([])[0]
        )

    def test_where_the_system_manages_the_python_it_is_for_this_user(self):
        calls, _ = self.install([], managed="True")
        self.assertEqual(["--user", "--break-system-packages", "a.whl"], calls[0])
        self.assertEqual(["--user", "--break-system-packages"], calls[1][:2])

    def test_a_target_takes_the_wheel_alone_and_is_said(self):
        calls, said = self.install(["--target", "there"], managed="True")
        there = os.path.abspath("there")
        self.assertEqual([["--no-deps", "--upgrade", "--target", there, "a.whl"]], calls)
        self.assertRegex(said, "^try it: PYTHONPATH=%s .*/py -m slimps_launch demo\n$" % there)

    def test_a_pip_that_fails_and_a_python_that_is_not_there_are_told(self):
        with self.assertRaisesRegex(setup.SetupError, "^failed: .* install a.whl$"):
            self.install([], pip="exit 1")
        with self.assertRaisesRegex(setup.SetupError, "^--python no-such: not found"):
            python_package.install(["--python", "no-such"])

    def test_debians_python_is_managed_and_virtual_environments_are_not(self):
        ask = [python_package.PYTHON, "-c", python_package.MANAGED]
        self.assertEqual("True\n", setup.output(ask))
        inside = python_package.MANAGED.replace("sys.prefix", "'/venv'")
        self.assertEqual("False\n", setup.output([python_package.PYTHON, "-c", inside]))


class LaunchTest(unittest.TestCase):
    def environment(self, command, **variables):
        with mock.patch.object(python_package, "PACKAGE", "/built"), mock.patch.object(
            python_package, "build_package"
        ), mock.patch.dict(os.environ, variables):
            return python_package.environment([command, "train.py"])

    def test_other_programs_are_left_alone(self):
        for command in ("slimps_worker", "pythonize", "./python2"):
            self.assertEqual({}, self.environment(command))

    def test_every_python_finds_the_built_package_before_others(self):
        for command in ("python", "python3", "/opt/bin/python3.13"):
            self.assertEqual(
                {"PYTHONUNBUFFERED": "1", "PYTHONPATH": "/built:/mine"},
                self.environment(command, PYTHONPATH="/mine"),
            )
        self.assertEqual("/built", self.environment("python3", PYTHONPATH="")["PYTHONPATH"])


if __name__ == "__main__":
    unittest.main()
