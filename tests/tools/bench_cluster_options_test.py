# SPDX-License-Identifier: Apache-2.0
"""The flags of slimps bench cluster: which are refused, under whose name, and that a refusal leaves
nothing behind."""

import contextlib
import io
import json
import os
import signal
import tempfile
import unittest
from unittest import mock

from bench.cluster import cluster_bench as cluster
from bench.cluster import net
from bench.cluster import cluster_options as flags_of
from bench import report_tables
from cli import setup
from slimps_launch import errors


def settled(*arguments):
    parser = flags_of.make_parser()
    options = parser.parse_args(arguments)
    flags_of.settle(parser, options)
    return options


class FlagsTest(unittest.TestCase):
    def refused(self, *arguments):
        """Returns what the whole command says. It must not have started anything."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch.object(
            net, "run", side_effect=AssertionError
        ):
            with self.assertRaises(SystemExit) as ended:
                cluster.main(list(arguments))
        self.assertEqual(2, ended.exception.code, said.getvalue())
        return said.getvalue().splitlines()[-1]

    def test_wrong_names_are_refused_with_the_nearest(self):
        self.assertIn(
            "--systems: unknown system 'slimgc_1bi': did you mean 'slimgc_1bit'?",
            self.refused("--systems", "slimgc_1bi"),
        )
        self.assertIn("did you mean --systems?", self.refused("--system", "fp32"))
        self.assertIn("together", self.refused("--placement", "beside"))
        self.assertIn("'shm', 'ipc', 'tcp'", self.refused("--same_host", "udp"))

    def test_rates_are_refused_in_the_name_of_their_flag(self):
        for rate in (
            "",
            "1",
            "fast",
            "1gbps",
            "0gbit",
            "-1mbit",
            "1gbit ",
            "\u0661gbit",
            "nangbit",
        ):
            self.assertIn(
                "error: --link: expected a rate such as 1gbit or 100mbit, got '%s'" % rate,
                self.refused("--link=" + rate),
            )
        for rate in ("7kbit", "1001gbit", "9" * 400 + "gbit"):
            self.assertIn(
                "error: --link: expected a rate from 8kbit to 1000gbit, got '%s'" % rate,
                self.refused("--link=" + rate),
            )
        self.assertIn(
            "error: --change_link: expected a rate such as", self.refused("--change_link=5:fast")
        )

    def test_wrong_numbers_are_refused_with_the_flag(self):
        for flag, most in (
            ("--iterations", 10000),
            ("--repeats", 10000),
            ("--nodes", 64),
            ("--shard_threads", 1024),
        ):
            for value in ("0", str(most + 1), "-1", "1.5", "many"):
                self.assertIn(
                    '%s: expected 1 to %d, got "%s"' % (flag, most, value),
                    self.refused(flag + "=" + value),
                )
        for value in ("-1", "1025", "1.5", "many"):
            self.assertIn(
                '--encode_threads: expected 0 to 1024, got "%s"' % value,
                self.refused("--encode_threads=" + value),
            )
        for value in ("-1", "nan", "inf", "3600001"):
            self.assertIn(
                "--compute_ms: expected 0 to 3600000.0, got", self.refused("--compute_ms=" + value)
            )
        for value in ("-1", "0", "nan", "inf", "soon"):
            self.assertIn(
                '--timeout: expected 1 to 1000000.0, got "%s"' % value,
                self.refused("--timeout=" + value),
            )

    def test_names_are_there_and_there_once(self):
        for flag in ("--model", "--systems", "--fixed_thresholds"):
            for value in ("", "a,", ",a"):
                self.assertIn(
                    '%s: expected names with commas between them, got "%s"' % (flag, value),
                    self.refused(flag + "=" + value),
                )
        self.assertIn(
            '--systems: "fp32" is there twice: fp32,1bit,fp32',
            self.refused("--systems=fp32,1bit,fp32"),
        )
        self.assertIn('--model: "vgg16" is there twice', self.refused("--model=vgg16,vgg16"))
        self.assertIn(
            "--model: expected all, or names, got both", self.refused("--model=all,vgg16")
        )

    def test_thresholds_after_the_at_are_below_what_a_message_holds(self):
        self.assertEqual(
            "9223372036854775807",
            settled("--systems=1bit@9223372036854775807").systems[0].threshold,
        )
        for value in ("9223372036854775808", "18446744073709551615", "9" * 5000):
            self.assertIn(
                "--systems: system '1bit@%s': expected less than 2^63 bytes after @" % value,
                self.refused("--systems=1bit@" + value),
            )

    def test_changes_have_times_in_order_and_rates(self):
        for text in ("", "5", "x:1gbit", "-1:1gbit", "nan:1gbit", "inf:1gbit", "1e7:1gbit"):
            self.assertIn(
                "--change_link: expected SECONDS:RATE,... with 0 to 1000000 seconds, got '%s'"
                % text,
                self.refused("--change_link=" + text),
            )
        self.assertIn(
            "--change_link: expected times in order",
            self.refused("--change_link=9:1gbit,5:100mbit"),
        )
        self.assertEqual(
            [(0.5, "100mbit"), (20.0, "unshaped")],
            flags_of.parse_changes("0.5:100mbit,20:unshaped"),
        )

    def test_files_that_cannot_be_written_are_refused_at_once(self):
        for flag in ("--json", "--profiles"):
            self.assertIn(
                "%s: cannot write /no/such/x.json: No such file" % flag,
                self.refused(flag, "/no/such/x.json"),
            )
            self.assertIn("%s: cannot write /tmp: not a file" % flag, self.refused(flag, "/tmp"))


class FixedThresholdsTest(unittest.TestCase):
    def names(self, *arguments):
        return [
            (entry.name, entry.threshold, entry.pull_threshold)
            for entry in settled(*arguments).systems
        ]

    def test_each_automatic_system_is_followed_by_itself_with_each(self):
        self.assertEqual(
            [
                ("fp32", "0", "0"),
                ("slimgc_2bit", "auto", "0"),
                ("slimgc_2bit@0", "0", "0"),
                ("slimgc_2bit@none", "none", "none"),
            ],
            self.names("--systems=fp32,slimgc_2bit", "--fixed_thresholds=0,none"),
        )

    def test_pulls_have_the_same_threshold_where_they_are_compressed(self):
        self.assertEqual(
            [("slimgc_1bit_2way", "auto", "auto"), ("slimgc_1bit_2way@65536", "65536", "65536")],
            self.names("--systems=slimgc_1bit_2way", "--fixed_thresholds=65536"),
        )
        self.assertEqual(
            "slimgc_1bit_2way@none",
            self.names("--systems=slimgc_1bit_2way@auto", "--fixed_thresholds=none")[1][0],
        )

    def test_without_systems_those_of_the_paper_and_ours_are_compared(self):
        self.assertEqual(
            ["slimgc_1bit", "slimgc_1bit@0", "slimgc_1bit_2way", "slimgc_1bit_2way@0"],
            [name for name, _, _ in self.names("--fixed_thresholds=0")],
        )

    def test_what_cannot_be_compared_is_refused(self):
        for arguments, what in (
            (
                ("--systems=fp32,1bit", "--fixed_thresholds=0"),
                "none of the systems has an automatic",
            ),
            (("--fixed_thresholds=0,auto",), "expected bytes or none, got 'auto'"),
            (("--fixed_thresholds=64Ki",), "expected bytes, auto or none after @"),
            (
                ("--systems=slimgc_1bit,slimgc_1bit@0", "--fixed_thresholds=0"),
                "slimgc_1bit@0 would be measured twice",
            ),
        ):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                settled(*arguments)
            self.assertIn("--fixed_thresholds: ", said.getvalue())
            self.assertIn(what, said.getvalue())


class ProfilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "profiles.json")

    def test_what_was_measured_is_kept_and_taken(self):
        found = {"threshold": 4096, "pull_threshold": None}
        self.assertEqual(found, cluster.Profiles(self.path).get(("m", "1gbit"), lambda: found))
        self.assertEqual(found, cluster.Profiles(self.path).get(("m", "1gbit"), self.fail))
        with open(self.path, encoding="utf-8") as text:
            self.assertEqual({"m 1gbit": found}, json.load(text))

    def test_other_content_is_refused_with_the_field(self):
        for text, what in (
            ("[]", r"the whole: expected an object, got \[\]"),
            ("{", "not JSON"),
            ('{"m": 3}', '"m": expected an object, got 3'),
            ('{"m": {"threshold": 1}}', '"m".pull_threshold: expected a whole number.*got nothing'),
            ('{"m": {"threshold": "auto", "pull_threshold": 1}}', '"m".threshold: .* got "auto"'),
        ):
            with open(self.path, "w", encoding="utf-8") as out:
                out.write(text)
            with self.assertRaisesRegex(
                setup.SetupError, "^--profiles: %s holds no thresholds: %s" % (self.path, what)
            ):
                cluster.Profiles(self.path)

    def test_an_empty_file_knows_nothing_yet(self):
        with open(self.path, "w", encoding="utf-8"):
            pass
        self.assertEqual({}, cluster.Profiles(self.path).known)

    def test_a_file_that_cannot_be_written_any_more_is_named(self):
        profiles = cluster.Profiles("/dev/full")
        with self.assertRaisesRegex(
            errors.LaunchError, "cannot write /dev/full: No space left on device"
        ):
            profiles.get(("m",), lambda: {"threshold": 1, "pull_threshold": 1})


class OrderTest(unittest.TestCase):
    """Steps that may leave namespaces behind run while a signal tidies up. All other steps run
    before."""

    def test_signals_are_handled_while_namespaces_are_tried_and_no_more_after_a_refusal(self):
        before = {
            number: signal.getsignal(number)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        seen = {}

        def why_not(congestion):
            seen.update({number: signal.getsignal(number) for number in before})
            return "no: " + congestion

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(net, "why_not", why_not):
            with self.assertRaisesRegex(setup.SetupError, "^no: reno$"):
                cluster.main(
                    [
                        "--congestion=reno",
                        "--json",
                        os.path.join(folder, "x.json"),
                        "--profiles",
                        os.path.join(folder, "p.json"),
                    ]
                )
            self.assertEqual([], os.listdir(folder))
        self.assertTrue(all(seen[number] != before[number] for number in before), seen)
        self.assertEqual(before, {number: signal.getsignal(number) for number in before})

    def test_a_signal_while_they_are_tried_removes_what_was_made(self):
        commands = []

        def run(command, check=True):
            commands.append(command)
            if command[:3] == ["ip", "netns", "add"]:
                signal.raise_signal(signal.SIGTERM)
            return ""

        with mock.patch.object(net, "run", run), mock.patch.object(
            net.os, "geteuid", return_value=0
        ), mock.patch.object(net.shutil, "which", return_value="/sbin/ip"):
            with self.assertRaises(SystemExit) as ended:
                cluster.main([])
        self.assertEqual(128 + signal.SIGTERM, ended.exception.code)
        self.assertEqual(["ip", "netns", "del"], commands[-1][:3])
        self.assertEqual(
            [command[3] for command in commands if "add" in command],
            [command[3] for command in commands if "del" in command],
        )

    def test_an_unknown_congestion_control_is_named(self):
        def run(command, check=True):
            if "congctl" in command:
                raise setup.SetupError("ip: no such thing")
            return ""

        with mock.patch.object(net, "run", run), mock.patch.object(
            net.os, "geteuid", return_value=0
        ), mock.patch.object(net.shutil, "which", return_value="/sbin/ip"):
            self.assertIsNone(net.why_not())
            self.assertIn(
                "cannot use TCP's congestion control nosuch here: ip: no such thing",
                net.why_not("nosuch"),
            )


class KeepTest(unittest.TestCase):
    def test_what_is_measured_is_kept_and_a_full_disk_does_not_end_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            cluster.keep(path, {"results": [1]})
            with open(path, encoding="utf-8") as text:
                self.assertEqual({"results": [1]}, json.load(text))
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                cluster.keep(os.path.join(folder, "no", "x.json"), {})
            self.assertIn(
                "cannot write %s/no/x.json: No such file or directory; going on" % folder,
                said.getvalue(),
            )
            cluster.keep(None, {})

    def test_a_run_that_fails_keeps_the_models_before(self):
        class Run:
            cores, bytes_per_second = 2, 1e9

            def thresholds(self, entry, model):
                return entry

            def measure(self, entry, model, milliseconds):
                if model == "vgg16":
                    raise setup.SetupError("worker0 was killed")
                figures = dict.fromkeys(
                    cluster.MEANS
                    + (
                        "wire_bytes_out",
                        "wire_bytes_in",
                        "wire_ms_at_link_rate",
                        "cpu_ms",
                        "max_rss_bytes",
                        "borrowed_rss_bytes",
                    ),
                    1.0,
                )
                return dict(
                    figures,
                    iteration_ms=10.0,
                    threshold_bytes=None,
                    pull_threshold_bytes=None,
                    workers_are_identical=True,
                    decisions=[],
                )

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            with mock.patch.object(cluster, "Bench", lambda *_: Run()), mock.patch.object(
                net, "Network"
            ), contextlib.redirect_stderr(io.StringIO()), self.assertRaisesRegex(
                Exception, "worker0 was killed"
            ):
                cluster.bench(
                    settled("--systems=fp32"),
                    {},
                    [("resnet50", 1 << 20, 4.0), ("vgg16", 1 << 20, 4.0)],
                    None,
                    lambda report: cluster.keep(path, report),
                )
            with open(path, encoding="utf-8") as text:
                report = json.load(text)
        self.assertEqual(["resnet50"], [row["model"] for row in report["results"]])
        report_tables.check(report)


if __name__ == "__main__":
    unittest.main()
