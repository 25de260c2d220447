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
from plan import check, plan_command, plan_options, validation
from slimps_launch import out_files

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
        lines = self.plan("--link", "100mbit:0.5", "--workers", "2").splitlines()
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
        self.assertEqual(["powersgd"], said["calibration"]["left_out"])

    def test_the_error_of_measured_set_ups_is_expected_of_others(self):
        path, rows = self.path("plan.json"), self.path("rows.json")
        out_files.save_json(rows, [row(1, predicted, 1, 100) for predicted in (102, 110, 79)])
        with mock.patch("plan.validation.MEASURED", rows):
            said = self.plan("--json", path)
        self.assertIn(
            "expected error: 10.0 % in the median, 21.0 % at worst, in 3 measured set-ups", said
        )
        expected = out_files.load_json(path)["calibration"]["expected_error"]
        self.assertEqual(3, expected["set_ups"])
        self.assertAlmostEqual(10, expected["median_percent"])
        self.assertAlmostEqual(21, expected["worst_percent"])

    def test_codecs_that_are_not_planned_are_named(self):
        self.assertIn("left out: powersgd, whose exchange has phases", self.plan())

    def test_without_a_calibration_the_answer_says_whose_figures_it_has(self):
        said = io.StringIO()
        arguments = ["--programs", self.folder, "--model", "small", "--json", self.path("a.json")]
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

    def test_check_puts_measured_times_beside_predicted_ones(self):
        asked = []

        @contextlib.contextmanager
        def bench(options, programs, specs):
            asked.append((options.nodes, options.link, specs["1bit"]))
            yield lambda name, model, compute_ms: 50.0

        with mock.patch.object(check, "bench", bench), mock.patch(
            "bench.common.find_programs",
            lambda programs, folder: {
                name: os.path.join(self.folder, path) for name, (_, path) in programs.items()
            },
        ):
            said = self.plan("--link", "100mbit", "--check", "--json", self.path("plan.json"))
        self.assertEqual([(2, "100mbit", "1bit")], asked)
        self.assertIn("measured ms", said)
        rows = out_files.load_json(self.path("plan.json"))["systems"]
        for row in rows:
            expected = None if row["system"].startswith("ddp_") else 50.0
            self.assertEqual(expected, row["measured_ms"], row)


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

    def test_a_trace_cannot_be_checked_in_the_bench(self):
        trace = self.path("job.json")
        with mock.patch("plan.models.of_trace") as of_trace, self.assertRaisesRegex(
            setup.SetupError, "--check: bench cluster has no model of a trace"
        ):
            of_trace.return_value.ratio = None
            plan_command.main(["--model", trace, "--check", "--calibration", self.ours])


def row(base_predicted, predicted, base_measured, measured):
    return {
        "model": "m",
        "link": "1gbit",
        "system": "1bit",
        "compute": 1.0,
        "compute_ms": 1.0,
        "base_predicted_ms": base_predicted,
        "predicted_ms": predicted,
        "base_measured_ms": base_measured,
        "measured_ms": measured,
    }


class ValidationTest(FolderCase):
    def test_there_are_enough_set_ups_of_all_kinds_in_any_part(self):
        chosen = validation.set_ups()
        self.assertEqual(chosen, validation.set_ups())
        self.assertEqual(len(chosen), len(set(chosen)))
        self.assertGreater(len(chosen), 240)
        part = chosen[:60]
        for field, values in (
            ("model", validation.MODELS),
            ("link", validation.LINKS),
            ("compute", validation.COMPUTES),
        ):
            self.assertEqual(set(values), {getattr(each, field) for each in part})

    def test_signs_are_right_if_both_agree_or_it_makes_no_difference(self):
        self.assertTrue(validation.sign_is_right(row(20, 10, 21, 12)))
        self.assertFalse(validation.sign_is_right(row(20, 10, 10, 12)))
        self.assertTrue(validation.sign_is_right(row(20, 10, 100, 101)))
        self.assertTrue(validation.sign_is_right(row(10, 20, 101, 100)))

    def test_the_summary_counts(self):
        rows = [row(20, 10, 20, 10), row(10, 11, 10, 10), row(20, 10, 10, 12)]
        said = validation.summary(rows)
        self.assertIn("3 set-ups, 2 within 25 % of break-even: sign right in 66.7 %", said)
        self.assertIn("10.0 % in the median, 16.7 % at worst", said)
        self.assertEqual(2 + len(rows), len(validation.markdown(rows).splitlines()))
        self.assertIn("| WRONG |", validation.markdown(rows))

    def test_a_run_goes_on_where_it_was_stopped(self):
        path = self.path("rows.json")
        run = validation.Run.__new__(validation.Run)
        run.options = mock.Mock(validate=path, most=2)
        run.rows = []
        done = []

        def predicted(set_up):
            return {**row(20, 10, 1, 1), **vars(set_up)}

        with contextlib.redirect_stderr(io.StringIO()), mock.patch.object(
            run, "predicted", predicted
        ), mock.patch.object(run, "measure", lambda set_up, row: done.append(set_up)):
            run.go_on()
            run.rows = validation.load(path)
            run.go_on()
        self.assertEqual(validation.set_ups()[:4], done)
        self.assertEqual(4, len(validation.load(path)))

    def test_another_file_is_refused(self):
        with self.assertRaisesRegex(
            setup.SetupError, r"--validate: .* holds no set-ups: \[0\].model: expected text"
        ):
            validation.load(self.put("rows.json", "[{}]"))
        self.assertEqual([], validation.load(self.path("gone.json")))


if __name__ == "__main__":
    unittest.main()
