# SPDX-License-Identifier: Apache-2.0
"""slimps plan from its command line: what is refused and how, what is printed and left."""

import contextlib
import io
import json
import os
import unittest
from unittest import mock

import small_reports
from cli import setup
from folder_case import FolderCase
from plan import check, plan_command, plan_options
from plan.terms import Layer, Model, Tensor
from slimps_launch import out_files
from small_reports import job

DESCRIBED = {
    "name": "small",
    "ratio": 4.0,
    "tensors": [["a.weight", [512, 512]], ["b.weight", [1024, 512]], ["b.bias", [512]]],
    "layers": [[1, 0.5], [2, 0.5]],
}
FAKE = """#!/bin/sh
if [ "$1" = small ]; then echo '%s'; exit 0; fi
echo "unknown model '$1': expected one of small" >&2
exit 1
""" % json.dumps(
    DESCRIBED
)


class CommandCase(FolderCase):
    """A folder with a describe_model that knows one model, and a calibration of this machine."""

    def setUp(self):
        super().setUp()
        program = self.path("tools/bench/cluster/describe_model")
        os.makedirs(os.path.dirname(program))
        with open(program, "w", encoding="utf-8") as out:
            out.write(FAKE)
        os.chmod(program, 0o755)
        self.ours = self.path("ours.json")
        out_files.save_json(self.ours, small_reports.content())
        here = mock.patch("plan.calibration.this_machine", lambda: dict(small_reports.MACHINE))
        here.start()
        self.addCleanup(here.stop)

    def plan(self, *arguments):
        """Returns what `slimps plan` prints."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = plan_command.main(
                ["--programs", self.folder, "--model", "small", "--calibration", self.ours]
                + list(arguments)
            )
        self.assertEqual(0, status)
        return said.getvalue()


class PlanTest(CommandCase):
    def test_the_first_line_answers_and_the_rest_says_what_would_change_it(self):
        lines = self.plan("--link", "100mbit:0.5", "--compute_ms", "30").splitlines()
        self.assertRegex(lines[0], "^Compression pays: 1bit.* times as fast[.]$")
        self.assertIn("bandwidth: it no longer pays from", lines[1])
        self.assertIn("compute: it no longer pays from", lines[2])
        self.assertIn("batch: that is a batch of", lines[3])
        systems = {line.split()[0] for line in lines[4:]}
        self.assertLessEqual({"fp32", "bf16+backup", "1bit", "ddp_bf16", "ddp_powersgd"}, systems)

    def test_json_has_the_plan_to_the_letter(self):
        path = self.path("plan.json")
        self.plan("--link", "100mbit", "--json", path)
        said = out_files.load_json(path)
        self.assertEqual(
            ["pays", "baseline", "best", "systems", "bandwidth_for", "calibration"], list(said)
        )
        self.assertTrue(said["pays"])
        self.assertEqual({None}, {row["measured_ms"] for row in said["systems"]})
        self.assertEqual(self.ours, said["calibration"]["file"])
        self.assertEqual([], said["calibration"]["left_out"])
        self.assertIn("powersgd4", {row["system"] for row in said["systems"]})

    def test_the_error_of_measured_set_ups_is_expected_of_others(self):
        path, rows = self.path("plan.json"), self.path("rows.json")
        jobs = [job("bf16", 1, 1)]
        for name, predicted in (("1bit", 102), ("2bit", 110), ("topk", 79)):
            jobs.append(job(name, predicted, 100))
        out_files.save_json(rows, jobs)
        with mock.patch("plan.validation.MEASURED", rows):
            said = self.plan("--json", path)
        self.assertIn(
            "expected error: 10.0 % in the median, 21.0 % at worst, in 3 measured set-ups", said
        )
        expected = out_files.load_json(path)["calibration"]["expected_error"]
        self.assertEqual(3, expected["set_ups"])
        self.assertAlmostEqual(10, expected["median_percent"])
        self.assertAlmostEqual(21, expected["worst_percent"])

    def test_without_measured_set_ups_no_error_is_expected(self):
        path, rows = self.path("plan.json"), self.path("rows.json")
        out_files.save_json(rows, [dict(job("1bit", 1, 1), predicted_ms=None)])
        with mock.patch("plan.validation.MEASURED", rows):
            self.assertNotIn("expected error", self.plan("--json", path))
        self.assertIsNone(out_files.load_json(path)["calibration"]["expected_error"])

    def test_codecs_that_are_not_planned_are_named(self):
        self.assertNotIn("left out", self.plan())
        model = Model("t", (Tensor("a", 1 << 18),), (Layer(0, 1, 1.0, 2.0),))
        with mock.patch("plan.models.of_trace", lambda path: model):
            said = self.plan("--model", self.path("job.json"))
        self.assertIn("left out: powersgd4, which see matrices", said)

    def test_without_a_calibration_the_answer_says_whose_figures_it_has(self):
        said = io.StringIO()
        arguments = ["--programs", self.folder, "--model", "small", "--json", self.path("a.json")]
        arguments += ["--systems", "1bit"]
        with contextlib.redirect_stdout(said):
            plan_command.main(arguments)
        self.assertIn("calibration: none; codecs as on", said.getvalue())
        self.assertIsNone(out_files.load_json(self.path("a.json"))["calibration"]["file"])

    def test_compute_defaults_to_the_published_ratio(self):
        # 1.57 Mi bytes times 2, plus: at 1 Gbit/s over a ratio of 4.
        elements = 512 * 512 + 1024 * 512 + 512
        self.plan("--json", self.path("plan.json"))
        bounds = [row["bound_ms"] for row in out_files.load_json(self.path("plan.json"))["systems"]]
        self.assertAlmostEqual(32e3 * elements / 1e9 / 4, min(bounds))

    def test_only_the_wanted_systems_and_their_baseline_are_planned(self):
        path = self.path("plan.json")
        self.plan("--systems", "1bit+backup", "--json", path)
        names = [row["system"] for row in out_files.load_json(path)["systems"]]
        self.assertEqual(["1bit+backup", "bf16", "bf16+backup", "ddp_bf16", "ddp_powersgd"], names)

    def test_the_measured_link_is_the_calibrations(self):
        content = small_reports.content()
        options = plan_options.parse(["--link", "measured", "--calibration", self.ours])
        cluster = plan_command.cluster_of(options, content)
        self.assertEqual(content["link"]["bits_per_second"] / 8e3, cluster.bytes_per_ms())
        self.assertEqual(content["link"]["round_trip_ms"], cluster.round_trip_ms)
        self.assertEqual(4, cluster.cores)
        said = self.plan("--link", "measured", "--compute_ms", "1")
        self.assertTrue(said.startswith("Compression pays: 1bit+backup"), said)

    def test_a_sweep_leaves_a_table_and_a_picture(self):
        for what in plan_options.SWEEPS:
            path = self.path(what + ".svg")
            said = self.plan("--link", "100mbit", "--what_if", what, "--svg", path)
            self.assertIn("x bf16", said.splitlines()[-9 if what == "bandwidth" else -8])
            self.assertTrue(self.get(what + ".svg").startswith("<svg"))

    @contextlib.contextmanager
    def bench_that(self, measure):
        """What --check runs is `measure`. Yields what it was asked for."""
        asked = []

        @contextlib.contextmanager
        def bench(nodes, placement, programs, specs):
            asked.append((nodes, placement, specs["1bit"], specs["powersgd4"]))
            yield measure

        def find(programs, folder):
            return {name: os.path.join(folder, path) for name, (_, path) in programs.items()}

        with mock.patch.object(check, "bench", bench), mock.patch.object(
            check, "refuse", lambda nodes, placement: None
        ), mock.patch("bench.common.find_programs", find):
            yield asked

    def test_check_puts_measured_times_beside_predicted_ones(self):
        with self.bench_that(
            lambda name, model, compute_ms, rate: {"100mbit": 50.0}[rate]
        ) as asked:
            said = self.plan("--link", "100mbit", "--check", "--json", self.path("plan.json"))
        self.assertEqual([(2, "together", "1bit", "powersgd:rank=4")], asked)
        self.assertIn("measured ms", said)
        rows = out_files.load_json(self.path("plan.json"))["systems"]
        for row in rows:
            expected = None if row["system"].startswith("ddp_") else 50.0
            self.assertEqual(expected, row["measured_ms"], row)

    def test_what_was_measured_before_a_job_failed_is_kept(self):
        left = [50.0, 60.0]

        def measure(name, model, compute_ms, rate):
            if not left:
                raise setup.SetupError("a job failed")
            return left.pop()

        path = self.path("plan.json")
        with self.bench_that(measure), self.assertRaisesRegex(setup.SetupError, "a job failed"):
            self.plan("--link", "100mbit", "--check", "--json", path)
        found = [row["measured_ms"] for row in out_files.load_json(path)["systems"]]
        self.assertEqual([50.0, 60.0], sorted(filter(None, found)))


class RefusedTest(CommandCase):
    def usage(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            plan_command.main(list(arguments))
        self.assertEqual(2, ended.exception.code)
        return said.getvalue().splitlines()[-1]

    def failed(self, *arguments):
        with self.assertRaises(setup.SetupError) as failed:
            self.plan(*arguments)
        return str(failed.exception)

    def test_wrong_links_are_refused(self):
        for link in ("fast", "1gbit:x", "1gbit:-1", "1gbit:1e9", "unshaped:"):
            self.assertIn("--link: expected", self.usage("--link", link))
        self.assertIn("expected --calibration FILE", self.usage("--link", "measured"))

    def test_flags_that_do_not_go_together_are_refused(self):
        for arguments, said in (
            (["--svg", self.path("a.svg")], "--svg goes with --what_if"),
            (["--most", "3"], "--most goes with --validate"),
            (["--calibrate"], "expected --calibration FILE to write"),
            (["--check", "--servers", "3"], "as many servers as workers"),
            (["--check", "--cores", "3"], "leave out --cores"),
            (["--calibrate", "--calibration=c", "--json", self.path("a")], "--json goes with a"),
            (["--calibrate", "--calibration=c", "--check"], "--check goes with a plan"),
            (["--validate", self.path("v"), "--what_if=ratio"], "--what_if goes with a plan"),
            (["--calibrate", "--calibration=c", "--validate", self.path("v")], "two runs"),
            (["--quick"], "--on and --quick go with --calibrate"),
            (["--on", "ssh:hosts"], "--on and --quick go with --calibrate"),
            (["--check", "--link", "1gbit:2"], "no round trip"),
            (["--what_if", "weather"], "invalid choice: 'weather'"),
            (["--worker", "3"], "did you mean --workers?"),
            (["--workers", "0"], "expected 1 to 64"),
            (["--json", os.path.join(self.folder, "gone", "a")], "--json: cannot write"),
        ):
            self.assertIn(said, self.usage(*arguments), arguments)

    def test_an_unknown_model_is_refused_with_the_known_ones(self):
        with self.assertRaisesRegex(setup.SetupError, "unknown model 'x': expected one of small"):
            plan_command.main(["--programs", self.folder, "--model", "x"])

    def test_a_damaged_calibration_is_refused(self):
        content = small_reports.content()
        content["memory"]["copy_ns_per_byte"] *= 2
        out_files.save_json(self.ours, content)
        self.assertRegex(
            self.failed(),
            "^--calibration: .*ours.json: damaged: its checksum disagrees; measure again: ",
        )

    def test_another_machines_calibration_is_refused_unless_it_is_meant(self):
        other = dict(small_reports.MACHINE, cpu="Another CPU")
        with mock.patch("plan.calibration.this_machine", lambda: other):
            self.assertRegex(
                self.failed(),
                "a calibration of A CPU, .* and this is Another CPU, .*--other_machine",
            )
            self.plan("--other_machine")

    def test_unknown_systems_are_refused_with_the_nearest(self):
        self.assertIn(
            "--systems: unknown system '1bit+backpu': did you mean '1bit+backup'?; the calibration "
            "has fp32, fp32+backup, bf16",
            self.failed("--systems", "1bit+backpu"),
        )
        self.assertIn("none of the systems compresses: fp32", self.failed("--systems", "fp32"))

    def test_a_machine_that_cannot_check_says_so_before_it_plans(self):
        said = io.StringIO()
        with mock.patch("bench.cluster.net.why_not", lambda congestion: "needs root"):
            with contextlib.redirect_stdout(said):
                self.assertEqual("needs root", self.failed("--link", "100mbit", "--check"))
        self.assertEqual("", said.getvalue())

    def test_a_trace_cannot_be_checked_in_the_bench(self):
        trace = self.path("job.json")
        with mock.patch("plan.models.of_trace") as of_trace, self.assertRaisesRegex(
            setup.SetupError, "--check: bench cluster has no model of a trace"
        ):
            of_trace.return_value.ratio = None
            plan_command.main(["--model", trace, "--check", "--calibration", self.ours])


if __name__ == "__main__":
    unittest.main()
