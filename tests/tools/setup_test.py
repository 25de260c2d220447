# SPDX-License-Identifier: Apache-2.0
"""What the front command does through other commands: packages, builds, tests."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

import fake_commands
from cli import lint
from cli import pip_environment
from cli import python_wheel
from cli import setup
from cli import test_run


class CommandsTest(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.fake = stack.enter_context(fake_commands.FakeCommands())
        self.stack = stack

    def replace(self, name, value):
        self.stack.enter_context(mock.patch.object(setup, name, value))

    def captured(self, function, *arguments):
        """Returns what `function` returns, and what went to stdout (of child processes too)."""
        with tempfile.TemporaryFile("w+") as out:
            saved = os.dup(1)
            sys.stdout.flush()
            os.dup2(out.fileno(), 1)
            try:
                with contextlib.redirect_stdout(io.StringIO()) as text:
                    result = function(*arguments)
            finally:
                os.dup2(saved, 1)
                os.close(saved)
            out.seek(0)
            return result, text.getvalue() + out.read()


class PackagesTest(CommandsTest):
    def install(self, missing, root=True):
        self.replace("missing_packages", lambda packages: missing)
        with mock.patch.object(os, "geteuid", lambda: 0 if root else 1000):
            return self.captured(setup.install_packages)[1]

    def test_only_what_is_wholly_installed_counts(self):
        self.fake.add(
            "dpkg-query",
            "printf 'a installed\\nb config-files\\nc half-installed\\nd not-installed\\n'; exit 1",
        )
        self.assertEqual(["e", "d", "b", "c"], setup.missing_packages(["e", "d", "a", "b", "c"]))
        self.assertEqual(["e", "d", "a", "b", "c"], self.fake.calls[0][-5:])

    def test_without_dpkg_the_error_names_the_system(self):
        with fake_commands.FakeCommands(only=True):
            with self.assertRaisesRegex(
                setup.SetupError, "dpkg-query not found: slimps builds on Debian 12"
            ):
                setup.missing_packages(["a"])

    def test_comments_and_blank_lines_are_no_packages(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
            listing.write("# tools\n\na  # why\n  b\n")
            listing.flush()
            self.assertEqual(["a", "b"], setup.wanted_packages(listing.name))

    def test_where_nothing_is_missing_nothing_is_run(self):
        for name in ("apt-get", "sudo"):
            self.fake.add(name)
        self.install([], root=False)
        self.assertEqual([], self.fake.calls)

    def test_root_updates_then_installs_exactly_what_is_missing(self):
        self.fake.add("sudo")
        self.fake.add("apt-get", 'test "$DEBIAN_FRONTEND" = noninteractive && echo "of apt"')
        said = self.install(["a", "b"])
        self.assertEqual(
            [
                ["apt-get", "-q", "update"],
                ["apt-get", "-q", "install", "-y", "--no-install-recommends", "a", "b"],
            ],
            self.fake.calls,
        )
        self.assertEqual("slimps: installing a b\n", said, "apt's lines go to stderr")

    def test_others_go_through_sudo(self):
        self.fake.add("sudo", 'exec "$@"')
        self.fake.add("apt-get")
        self.install(["a"], root=False)
        self.assertEqual(
            ["sudo", "apt-get", "sudo", "apt-get"], [call[0] for call in self.fake.calls]
        )

    def test_a_failing_apt_is_named_and_nothing_follows(self):
        self.fake.add("apt-get", "exit 100")
        with self.assertRaisesRegex(setup.SetupError, "failed: env .*apt-get -q update"):
            self.install(["a"])
        self.assertEqual(1, len(self.fake.calls))
        self.fake.add("apt-get", 'test "$2" = update')
        with self.assertRaisesRegex(setup.SetupError, "apt-get -q install .* a$"):
            self.install(["a"])


class BuildTest(CommandsTest):
    def bazel(self, script=""):
        path = self.fake.add("bazel", script)
        self.replace("bazel_command", lambda: path)

    def test_bazel_runs_in_the_repository_with_debians_tools_first(self):
        self.bazel(
            'echo "on stdout"; pwd > "%s"; echo "$PATH" > "%s"; exit 3'
            % (self.fake.at("cwd"), self.fake.at("path"))
        )
        status, said = self.captured(setup.run_bazel, "build", ["//a:b", "--config=tsan"])
        self.assertEqual(3, status)
        self.assertEqual("", said, "what bazel says goes to stderr")
        call = self.fake.calls[0]
        self.assertEqual(["bazel", "build"], call[:2])
        self.assertEqual(["//a:b", "--config=tsan"], call[-2:])
        with open(self.fake.at("cwd"), encoding="utf-8") as text:
            self.assertEqual(
                os.path.realpath(setup.REPOSITORY), os.path.realpath(text.read().strip())
            )
        with open(self.fake.at("path"), encoding="utf-8") as text:
            folders = text.read().strip().split(":")
        self.assertEqual(["/usr/bin", "/bin"], folders[:2])
        self.assertIn(self.fake.folder.name, folders)

    def test_lines_for_a_terminal_go_to_terminals_alone(self):
        self.bazel()
        for terminal in (True, False):
            with mock.patch.object(sys.stderr, "isatty", lambda answer=terminal: answer):
                setup.run_bazel("build", [])
            self.assertEqual(not terminal, "--curses=no" in self.fake.calls[-1])

    def test_a_home_is_found_where_none_is_set(self):
        environment = {name: value for name, value in os.environ.items() if name != "HOME"}
        with mock.patch.dict(os.environ, environment, clear=True):
            self.assertTrue(os.path.isabs(setup.bazel_environment()["HOME"]))
        with mock.patch.dict(os.environ, {"HOME": "/somewhere"}):
            self.assertEqual("/somewhere", setup.bazel_environment()["HOME"])

    def test_without_bazel_the_error_names_the_package(self):
        with mock.patch.object(os.path, "exists", lambda path: False):
            with self.assertRaisesRegex(setup.SetupError, "bazel-bootstrap"):
                setup.bazel_command()

    def test_a_failed_build_names_the_targets(self):
        self.bazel("exit 1")
        with self.assertRaisesRegex(
            setup.SetupError, "the build failed .* bazel build //a:b //c:d$"
        ):
            setup.build(["//a:b", "//c:d"], ["--config=asan"])
        self.assertEqual(["--config=asan", "//a:b", "//c:d"], self.fake.calls[0][-3:])

    def test_only_absent_programs_are_built(self):
        self.bazel()
        self.replace("install_packages", lambda *lists: None)
        self.replace("REPOSITORY", self.fake.folder.name)
        there = setup.program_path("slimps_server")
        os.makedirs(os.path.dirname(there))
        with open(there, "w", encoding="utf-8"):
            pass
        names = ["slimps_server", "slimps_worker"]
        self.assertEqual(
            {name: setup.program_path(name) for name in names}, setup.ensure_programs(names)
        )
        self.assertEqual(
            ["//server:slimps_server", "//worker:slimps_worker"],
            self.fake.calls[-1][-2:],
            "a file that cannot be run is no program",
        )
        os.chmod(there, 0o755)
        setup.ensure_programs(names)
        self.assertEqual("//worker:slimps_worker", self.fake.calls[-1][-1])
        self.assertNotIn("//server:slimps_server", self.fake.calls[-1])
        before = len(self.fake.calls)
        setup.ensure_programs(["slimps_server"])
        self.assertEqual(before, len(self.fake.calls))


class RunTestsTest(CommandsTest):
    CASE = '<testsuites><testsuite><testcase name="%s" classname="A"/></testsuite></testsuites>'
    BAD = (
        '<testsuites><testsuite><testcase name="Bad" classname="A"><failure '
        'message="no"/></testcase></testsuite></testsuites>'
    )

    def setUp(self):
        super().setUp()
        self.replace("install_packages", lambda *lists: None)
        for module, name, made in (
            (pip_environment, "ensure", "/made/%s"),
            (python_wheel, "build", "%s/made.whl"),
        ):
            fake = mock.patch.object(module, name, lambda argument, made=made: made % argument)
            self.stack.enter_context(fake)
        self.stack.enter_context(mock.patch.object(lint, "changed_is_clean", lambda: True))

    def run_tests(self, arguments, targets, status=0):
        """Runs the tests with fake results. `targets`: label -> (overall status, text of
        test.xml)."""
        events = []
        for number, (label, (overall, xml)) in enumerate(targets.items()):
            if xml is not None:
                path = self.fake.at("%d.xml" % number)
                with open(path, "w", encoding="utf-8") as out:
                    out.write(xml)
                events.append(
                    {
                        "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": 1}},
                        "testResult": {
                            "testActionOutput": [{"name": "test.xml", "uri": "file://" + path}]
                        },
                    }
                )
            events.append(
                {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": overall}}
            )
        with open(self.fake.at("events"), "w", encoding="utf-8") as out:
            out.write("\n".join(json.dumps(event) for event in events))
        bazel = self.fake.add(
            "bazel",
            'for a in "$@"; do case "$a" in --build_event_json_file=*) '
            'cp "%s" "${a#*=}";; esac; done; exit %d' % (self.fake.at("events"), status),
        )
        self.replace("bazel_command", lambda: bazel)
        return self.captured(test_run.run, arguments)

    def test_all_passed(self):
        status, said = self.run_tests(
            [], {"//a:b": ("PASSED", self.CASE % "One"), "//c:d": ("PASSED", None)}
        )
        self.assertEqual((0, "3 passed, 0 failed\n"), (status, said), "the third is lint")
        self.assertEqual("//...", self.fake.calls[0][-1])

    def test_failures_are_listed_before_the_count(self):
        status, said = self.run_tests(
            ["//a/..."],
            {"//a:b": ("FAILED", self.BAD), "//a:c": ("PASSED", self.CASE % "One")},
            status=3,
        )
        self.assertEqual((1, "FAILED //a:b A.Bad\n1 passed, 1 failed\n"), (status, said))
        self.assertEqual("//a/...", self.fake.calls[0][-1])
        self.assertNotIn("//...", self.fake.calls[0])

    def test_each_reason_of_a_skip_is_told_once_before_the_count(self):
        skipped = '<a><testcase name="x"><skipped message="%s"/></testcase></a>'
        status, said = self.run_tests(
            ["//a/..."],
            {
                "//a:b": ("PASSED", skipped % "no GPU"),
                "//a:c": ("PASSED", skipped % "busy"),
                "//a:d": ("PASSED", skipped % "no GPU"),
            },
        )
        self.assertEqual(
            (0, "SKIPPED 1: busy\nSKIPPED 2: no GPU\n0 passed, 0 failed, 3 skipped\n"),
            (status, said),
        )

    def test_options_alone_mean_all_targets(self):
        self.run_tests(["--config=tsan"], {})
        self.assertEqual(["--config=tsan", "//..."], self.fake.calls[0][-2:])
        self.assertIn("--keep_going", self.fake.calls[0])

    def test_all_of_the_tests_contain_lint(self):
        with mock.patch.object(lint, "changed_is_clean", lambda: False):
            status, said = self.run_tests([], {"//a:b": ("PASSED", None)})
            self.assertEqual((1, "FAILED slimps lint\n1 passed, 1 failed\n"), (status, said))
            status, said = self.run_tests(["//a:b"], {"//a:b": ("PASSED", None)})
            self.assertEqual((0, "1 passed, 0 failed\n"), (status, said))

    def test_what_pip_installs_is_made_for_the_tests_that_need_it(self):
        made = [
            "--test_env=SLIMPS_TORCH2_PYTHON=/made/torch2",
            "--test_env=SLIMPS_WHEEL=bazel-bin/wheel/made.whl",
            "--test_env=SLIMPS_NEWEST_PYTHON=" + test_run.newest_python(),
        ]
        self.run_tests([], {})
        self.assertEqual(made, [one for one in self.fake.calls[-1] if "SLIMPS" in one])
        self.run_tests(["//tests/server/..."], {})
        self.assertEqual([], [one for one in self.fake.calls[-1] if "SLIMPS" in one])

    def test_tests_that_were_left_out_are_told_in_the_last_lines(self):
        given = ["--without-torch2", "--without-wheel"]
        status, said = self.run_tests(given, {"//a:b": ("PASSED", None)})
        self.assertEqual(
            (
                0,
                "the tests of today's PyTorch were left out (--without-torch2)\n"
                "the tests of the wheel were left out (--without-wheel)\n"
                "2 passed, 0 failed\n",
            ),
            (status, said),
        )
        self.assertIn("--test_tag_filters=-torch2,-wheel", self.fake.calls[-1])
        self.assertFalse([one for one in self.fake.calls[-1] if "SLIMPS" in one or one in given])

    def test_without_a_package_index_the_tests_run_without_what_they_need(self):
        def fail(_):
            raise setup.SetupError("no index")

        with mock.patch.object(pip_environment, "ensure", fail):
            self.run_tests([], {})
        self.assertFalse([option for option in self.fake.calls[-1] if "TORCH2" in option])
        self.assertTrue([option for option in self.fake.calls[-1] if "WHEEL" in option])

    def test_a_bazel_that_fails_without_a_word_of_targets_fails(self):
        status, said = self.run_tests([], {}, status=37)
        self.assertEqual(1, status)
        self.assertEqual(
            "FAILED bazel test (exit status 37, see above)\n1 passed, 1 failed\n", said
        )


if __name__ == "__main__":
    unittest.main()
