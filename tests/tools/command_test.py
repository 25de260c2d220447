# SPDX-License-Identifier: Apache-2.0
"""Set-up, counting of test cases, the demo's table, and the command line itself."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from bench import bench_command
from cli import demo_runs
from cli import setup
from cli import test_run

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")

GTEST = """<testsuites><testsuite name="A">
<testcase name="Good" classname="A" status="run" result="completed"/>
<testcase name="Bad" classname="A" status="run" result="completed"><failure message="no"/>
</testcase>
<testcase name="NotHere" classname="A" status="run" result="skipped"><skipped message="no data"/>
</testcase>
<testcase name="DISABLED_Off" classname="A" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


class CountTest(unittest.TestCase):
    def count(self, status, *documents):
        tally = test_run.Tally()
        test_run.count_cases("//a:b", status, documents, tally)
        return tally

    def test_cases_are_counted_by_result(self):
        tally = self.count("FAILED", GTEST.replace('result="suppressed"', 'result="completed"'))
        self.assertEqual((1, ["//a:b A.Bad"]), (tally.passed, tally.failures))
        self.assertEqual({"no data": 1}, tally.skipped)
        self.assertEqual("1 passed, 1 failed, 1 skipped", tally.last_line())

    def test_skips_are_counted_by_their_reason_in_one_line(self):
        skipped = '<testcase name="x"><skipped message="%s"/></testcase>'
        tally = self.count(
            "PASSED",
            "<a>%s%s</a>"
            % (skipped % "a/b_test.cc:12&#10;no  GPU&#10;here", skipped % "no GPU here"),
            '<a><testcase name="x" result="skipped"/><testcase name="y"><skipped>busy</skipped>'
            "</testcase></a>",
        )
        self.assertEqual({"no GPU here": 2, "no reason given": 1, "busy": 1}, tally.skipped)
        self.assertEqual("0 passed, 0 failed, 4 skipped", tally.last_line())

    def test_a_target_without_cases_counts_as_one(self):
        self.assertEqual("1 passed, 0 failed", self.count("PASSED").last_line())
        self.assertEqual(["//a:b (failed)"], self.count("FAILED").failures)
        self.assertEqual(["//a:b (timeout)"], self.count("TIMEOUT", "<not xml").failures)

    def test_a_target_that_fails_outside_its_cases_counts_as_failed(self):
        good = '<testsuites><testsuite><testcase name="x" classname="A"/></testsuite></testsuites>'
        tally = self.count("FAILED", good)
        self.assertEqual((1, ["//a:b (failed)"]), (tally.passed, tally.failures))

    def test_a_target_that_does_not_build_counts_as_failed(self):
        self.assertEqual(["//a:b (failed to build)"], self.count("FAILED_TO_BUILD").failures)

    def test_events_name_targets_and_their_last_xml(self):
        def result(label, attempt, uri):
            return {
                "id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": attempt}},
                "testResult": {
                    "testActionOutput": [
                        {"name": "test.log", "uri": "file:///l"},
                        {"name": "test.xml", "uri": uri},
                    ]
                },
            }

        events = [
            result("//a:b", 1, "file:///x/1.xml"),
            result("//a:b", 2, "file:///x/with%20space.xml"),
            {"id": {"testSummary": {"label": "//a:b"}}, "testSummary": {"overallStatus": "PASSED"}},
            {
                "id": {"testSummary": {"label": "//a:c"}},
                "testSummary": {"overallStatus": "FAILED_TO_BUILD"},
            },
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
            out.write("\n".join(map(json.dumps, events)))
            out.flush()
            self.assertEqual(
                {"//a:b": ("PASSED", ["/x/with space.xml"]), "//a:c": ("FAILED_TO_BUILD", [])},
                test_run.read_events(out.name),
            )


class SetupTest(unittest.TestCase):
    def test_the_package_list_has_names_only(self):
        packages = setup.wanted_packages() + setup.wanted_packages(setup.TEST_PACKAGE_LIST)
        self.assertIn("libzmq3-dev", packages)
        self.assertEqual(len(set(packages)), len(packages))
        for package in packages:
            self.assertRegex(package, r"^[a-z0-9][a-z0-9+.-]+$")

    def test_an_installed_package_is_not_missing(self):
        self.assertEqual(
            ["no-such-package-at-all"], setup.missing_packages(["dpkg", "no-such-package-at-all"])
        )

    def test_without_root_or_sudo_the_error_says_what_to_install(self):
        with mock.patch.object(
            setup, "missing_packages", return_value=["libzmq3-dev"]
        ), mock.patch.object(os, "geteuid", return_value=1000), mock.patch.object(
            setup.shutil, "which", return_value=None
        ):
            with self.assertRaisesRegex(setup.SetupError, "apt-get install.*libzmq3-dev"):
                setup.install_packages()


class DemoTest(unittest.TestCase):
    SUMMARY = {
        "test_accuracy": 0.97,
        "test_loss": 0.1,
        "seconds": 5.5,
        "bytes_pushed": 3200000,
        "bytes_pulled": 9,
        "threshold_bytes": 4096,
        "threshold_explanation": "because",
        "threshold_table": [
            {
                "bytes": 40,
                "t_c_ms": 1.0,
                "t_cq_ms": 1.0,
                "t_pq_ms": 1.0,
                "t_q_ms": 2.0,
                "gain": 0.5,
                "note": "left out",
            }
        ],
    }

    def test_json_has_the_promised_fields(self):
        run = demo_runs.as_run("slimgc", self.SUMMARY)
        self.assertEqual(
            {
                "name",
                "test_accuracy",
                "seconds",
                "bytes_pushed",
                "bytes_pulled",
                "threshold_bytes",
                "threshold_table",
                "after_epoch",
            },
            set(run),
        )
        self.assertEqual(
            {"bytes", "t_c_ms", "t_cq_ms", "t_pq_ms", "t_q_ms", "gain"},
            set(run["threshold_table"][0]),
        )

    def test_a_run_without_a_table_has_an_empty_one(self):
        run = demo_runs.as_run(
            "fp32", dict(self.SUMMARY, threshold_bytes=None, threshold_table=None)
        )
        self.assertIsNone(run["threshold_bytes"])
        self.assertEqual([], run["threshold_table"])

    def test_the_codec_runs_alone_and_under_the_table(self):
        fp32, bf16, plain, slimgc, both = demo_runs.plan_runs("topk:ratio=0.05")
        self.assertEqual(
            ["fp32", "bf16", "topk", "slimgc", "slimgc_2way"],
            [run[0] for run in (fp32, bf16, plain, slimgc, both)],
        )
        self.assertIn("none", fp32[2])
        for (_, meaning, flags), threshold in ((plain, "0"), (slimgc, "auto")):
            self.assertIn("topk:ratio=0.05", meaning)
            self.assertEqual("topk:ratio=0.05", flags[flags.index("--compression") + 1])
            self.assertEqual(threshold, flags[flags.index("--threshold") + 1])
        self.assertEqual(slimgc[2] + ["--pull_compression", "topk:ratio=0.05"], both[2])
        self.assertEqual(
            ["bf16", "bf16"],
            [bf16[2][bf16[2].index(flag) + 1] for flag in ("--compression", "--pull_compression")],
        )
        self.assertEqual("0.2", plain[2][-1])
        self.assertEqual("0.001", demo_runs.plan_runs("signsgd")[2][2][-1])
        self.assertEqual("0.5", demo_runs.plan_runs("signsgd", 0.5)[2][2][-1])

    def test_what_cannot_compress_pulls_leaves_them_to_1bit(self):
        for compression, pulls in (
            ("signsgd", "1bit"),
            ("dgc:ratio=0.01", "1bit"),
            ("1bit:momentum=0.9", "1bit"),
            ("dgcx", "dgcx"),
            ("2bit:threshold=0.5", "2bit:threshold=0.5"),
        ):
            self.assertEqual(pulls, demo_runs.plan_runs(compression)[-1][2][-1])

    def test_bf16_is_not_run_twice(self):
        self.assertEqual(
            ["fp32", "bf16", "slimgc", "slimgc_2way"],
            [run[0] for run in demo_runs.plan_runs("bf16")],
        )

    def test_what_a_worker_refuses_is_refused_before_anything_starts(self):
        runs = demo_runs.plan_runs("2bits")
        with tempfile.TemporaryDirectory() as folder:
            worker = os.path.join(folder, "worker")
            with open(worker, "w", encoding="utf-8") as script:
                script.write(
                    "#!/bin/sh\necho \"slimps_worker: did you mean '2bit'?\" >&2\nexit 2\n"
                )
            os.chmod(worker, 0o755)
            with self.assertRaisesRegex(setup.SetupError, "demo: did you mean '2bit'"):
                demo_runs.check_runs(worker, runs, 1)

    def test_the_table_compares_with_fp32(self):
        full = demo_runs.as_run("fp32", self.SUMMARY)
        small = demo_runs.as_run("1bit", dict(self.SUMMARY, bytes_pushed=100000))
        lines = demo_runs.table_text([full, small]).splitlines()
        self.assertIn("3.2 MB", lines[1])
        self.assertTrue(lines[2].endswith(" 32.0 x"), lines[2])


class CommandLineTest(unittest.TestCase):
    def slimps(self, *arguments):
        return subprocess.run(
            [os.path.join(TOOLS, "slimps")] + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    def test_help_lists_the_commands(self):
        result = self.slimps("--help")
        self.assertEqual(0, result.returncode)
        for command in ("demo", "test", "build", "launch", "trace", "bench", "install-python"):
            self.assertIn("\n  " + command + " ", result.stdout)

    def test_the_version_is_that_of_the_file(self):
        with open(os.path.join(os.path.dirname(TOOLS), "VERSION"), encoding="utf-8") as version:
            self.assertEqual("slimps " + version.read(), self.slimps("--version").stdout)

    def test_every_kind_of_bench_is_listed(self):
        kinds = [kind.name for kind in bench_command.KINDS]
        self.assertLessEqual(
            {"codec", "transport", "cluster", "torch", "python", "soak", "render"}, set(kinds)
        )
        self.assertIn("bench " + ", ".join(kinds) + "\n", self.slimps("--help").stdout)
        for arguments, status in ((["bench"], 2), (["bench", "--help"], 0)):
            result = self.slimps(*arguments)
            self.assertEqual(status, result.returncode)
            for kind in kinds:
                self.assertIn(" slimps bench %s " % kind, result.stdout)

    def become(self, name, environment):
        """Returns what a fake slimps_NAME prints when `slimps NAME` turns into it."""
        with tempfile.TemporaryDirectory() as folder:
            daemon = os.path.join(folder, "slimps_" + name)
            with open(daemon, "w", encoding="utf-8") as script:
                script.write('#!/bin/sh\necho "role $DMLC_ROLE, got $*"\nexit 7\n')
            os.chmod(daemon, 0o755)
            code = (
                "import sys; sys.path.insert(0, %r)\nfrom cli import main, setup\n"
                "setup.ensure_programs = lambda names: {name: %r + '/' + name for name in names}\n"
                "sys.exit(main.main(sys.argv[1:]))" % (TOOLS, folder)
            )
            return subprocess.run(
                [sys.executable, "-c", code, name, "--model", "mlp"],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )

    def test_a_daemon_is_a_command_that_knows_its_role(self):
        environment = {name: value for name, value in os.environ.items() if name != "DMLC_ROLE"}
        for name in ("scheduler", "server", "worker"):
            result = self.become(name, environment)
            self.assertEqual(
                (7, "role %s, got --model mlp\n" % name), (result.returncode, result.stdout)
            )
        other = self.become("server", dict(environment, DMLC_ROLE="worker"))
        self.assertEqual(
            "role worker, got --model mlp\n", other.stdout, "the daemon refuses another's role"
        )

    def test_an_unknown_command_is_refused(self):
        result = self.slimps("tset")
        self.assertEqual(2, result.returncode)
        self.assertIn('unknown command "tset"', result.stderr)

    def test_launch_wants_a_command_and_sane_counts(self):
        self.assertIn(
            "expected -- COMMAND", self.slimps("launch", "--workers", "1", "--servers", "1").stderr
        )
        for count in ("0", "4097", "many", "1.5"):
            self.assertIn(
                '--workers: expected 1 to 4096, got "%s"' % count,
                self.slimps("launch", "--workers", count, "--servers", "1").stderr,
            )

    def test_files_that_cannot_be_written_are_refused_before_anything_is_built(self):
        for flag in ("--json", "--trace"):
            result = self.slimps("demo", flag, "/no/such/x.json")
            self.assertEqual(2, result.returncode)
            self.assertIn("%s: cannot write /no/such/x.json: No such file" % flag, result.stderr)

    def test_output_that_cannot_be_written_is_one_line_or_none(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run(
                [os.path.join(TOOLS, "slimps"), "--help"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        self.assertEqual(
            (1, "slimps: No space left on device\n"), (result.returncode, result.stderr)
        )
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run(
            [os.path.join(TOOLS, "slimps"), "--help"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(writer)
        self.assertEqual((141, ""), (result.returncode, result.stderr))


if __name__ == "__main__":
    unittest.main()
