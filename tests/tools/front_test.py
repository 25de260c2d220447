# SPDX-License-Identifier: Apache-2.0
"""tools/slimps where there is a python3, and where there is none yet."""

import os
import shutil
import subprocess
import unittest

import fake_commands

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))

FRONT = os.path.join(REPOSITORY, "tools", "slimps")
APT_BRINGS_PYTHON = (
    'case "$2" in install) /bin/ln -s /usr/bin/python3 "${0%/*}/python3"; esac; echo "of apt"'
)


class FrontTest(unittest.TestCase):
    """PATH has the commands of a minimal Debian, and those that a test adds."""

    def setUp(self):
        self.fake = fake_commands.FakeCommands(only=True)
        real = {name: shutil.which(name) for name in ("dirname", "realpath", "env")}
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)
        for name, path in real.items():
            os.symlink(path, self.fake.at(name))
        self.be_user(0)

    def be_user(self, number):
        self.fake.add("id", "echo %d" % number)

    def slimps(self, *arguments):
        return subprocess.run(
            [FRONT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    def calls(self):
        return [call for call in self.fake.calls if call[0] != "id"]

    def test_a_python3_in_path_runs_the_command(self):
        os.symlink("/usr/bin/python3", self.fake.at("python3"))
        result = self.slimps("--help")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertTrue(result.stdout.startswith("usage: slimps COMMAND"), result.stdout)
        self.assertEqual([], self.fake.calls)

    def test_without_one_debians_is_installed_first(self):
        self.fake.add("apt-get", APT_BRINGS_PYTHON)
        result = self.slimps("--help")
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertTrue(
            result.stdout.startswith("usage: slimps COMMAND"), "what apt-get says goes to stderr"
        )
        self.assertEqual("slimps: installing python3\nof apt\nof apt\n", result.stderr)
        self.assertEqual(
            [
                ["apt-get", "-q", "update"],
                ["apt-get", "-q", "install", "-y", "--no-install-recommends", "python3"],
            ],
            self.calls(),
        )

    def test_others_than_root_install_through_sudo(self):
        self.be_user(1000)
        self.fake.add("sudo", 'exec "$@"')
        self.fake.add("apt-get", APT_BRINGS_PYTHON)
        self.assertEqual(0, self.slimps("--help").returncode)
        self.assertEqual(["sudo", "apt-get", "sudo", "apt-get"], [call[0] for call in self.calls()])

    def test_where_nothing_can_install_it_one_line_says_what_to_do(self):
        self.be_user(1000)
        self.fake.add("apt-get")
        result = self.slimps("--help")
        self.assertEqual(
            (
                1,
                "slimps: python3 not found, and no sudo to install it with; as root: apt-get "
                "install python3\n",
            ),
            (result.returncode, result.stderr),
        )
        self.assertEqual([], self.calls())

    def test_a_failing_installation_is_named(self):
        self.fake.add("apt-get", 'test "$2" = update')
        result = self.slimps("--help")
        self.assertEqual(1, result.returncode)
        self.assertTrue(
            result.stderr.endswith("slimps: failed: apt-get install python3\n"), result.stderr
        )

    def test_arguments_and_status_go_through(self):
        os.symlink("/usr/bin/python3", self.fake.at("python3"))
        result = self.slimps("two words", "")
        self.assertEqual(2, result.returncode)
        self.assertIn('unknown command "two words"', result.stderr)


if __name__ == "__main__":
    unittest.main()
