# SPDX-License-Identifier: Apache-2.0
"""slimps plan --validate: which set-ups are measured, what counts as right, how a run goes on."""

import contextlib
import io
import subprocess
import sys
import unittest
from unittest import mock

import small_reports
from cli import setup
from folder_case import FolderCase
from plan import calibration, check, systems, validation
from plan.terms import Layer, Model, Tensor
from slimps_launch import out_files
from small_reports import job


def set_up(base_predicted, predicted, base_measured, measured):
    place = validation.Place("m", "1gbit", 1.0)
    return validation.SetUp(place, "1bit", (predicted, measured), (base_predicted, base_measured))


class ValidationTest(FolderCase):
    def setUp(self):
        super().setUp()
        shape = Model("m", (Tensor("a", 1 << 20, (1 << 10, 1 << 10)),), (Layer(0, 1, 1.0, 2.0),))
        self.models = {name: shape for name in validation.MODELS}

    def test_there_are_enough_set_ups_of_all_kinds_in_any_part(self):
        chosen = list(validation.chosen(self.models))
        self.assertEqual(chosen, list(validation.chosen(self.models)))
        pairs = [(place, name) for place, names in chosen for name in names]
        self.assertEqual(len(pairs), len(set(pairs)))
        others = [pair for pair in pairs if not pair[1].startswith("bf16")]
        self.assertEqual(validation.SET_UPS, len(others))
        part = pairs[: len(pairs) // 2]
        self.assertEqual(set(validation.MODELS), {place.model for place, _ in part})
        self.assertEqual(set(validation.LINKS), {place.link for place, _ in part})
        self.assertLessEqual(set(validation.CODECS), {name.partition("+")[0] for _, name in part})

    def test_a_system_comes_after_its_baseline(self):
        for _, names in validation.chosen(self.models):
            for number, name in enumerate(names):
                self.assertIn(systems.baseline_of(name), names[: number + 1])

    def test_signs_are_right_if_both_agree_or_it_makes_no_difference(self):
        self.assertTrue(set_up(20, 10, 21, 12).sign_is_right())
        self.assertFalse(set_up(20, 10, 10, 12).sign_is_right())
        self.assertTrue(set_up(20, 10, 100, 101).sign_is_right())
        self.assertTrue(set_up(10, 20, 101, 100).sign_is_right())

    def test_the_summary_counts(self):
        jobs = []
        for number, (base, one) in enumerate((((20, 20), (10, 10)), ((10, 10), (11, 10)))):
            jobs += [job("bf16", *base, number + 1.0), job("1bit", *one, number + 1.0)]
        jobs += [job("bf16", 20, 10, 3.0), job("1bit", 10, 12, 3.0)]
        jobs += [job("1bit+backup", 10, 12, 3.0), job("2bit", None, 12, 3.0)]  # no set-ups yet
        said = validation.summary(jobs)
        self.assertIn("3 set-ups, 2 within 25 % of break-even: sign right in 66.7 %", said)
        self.assertIn("10.0 % in the median, 16.7 % at worst", said)
        self.assertEqual(2 + 3, len(validation.markdown(jobs).splitlines()))
        self.assertIn("| WRONG |", validation.markdown(jobs))

    def run_of(self, path):
        run = validation.Run.__new__(validation.Run)
        run.path, run.programs, run.specs = path, {}, {}
        run.models, run.jobs = self.models, validation.load(path)
        run.costs = calibration.costs_of(small_reports.content())
        return run

    def test_a_run_goes_on_where_it_was_stopped(self):
        path, done = self.path("jobs.json"), []

        @contextlib.contextmanager
        def bench(*_):
            def measure(name, model, compute_ms, rate):
                if len(done) == 5:
                    raise SystemExit(143)
                done.append((model, rate, compute_ms, name))
                return 7.0

            yield measure

        with contextlib.redirect_stderr(io.StringIO()), mock.patch.object(
            check, "bench", bench
        ), mock.patch.object(validation.Busyness, "of_others", lambda busy: 0.05):
            self.run_of(path).go_on(3)
            self.assertEqual(3, len(validation.load(path)))
            with self.assertRaises(SystemExit):
                self.run_of(path).go_on(None)
        wanted = [
            (*vars(place).values(), name)
            for place, names in validation.chosen(self.models)
            for name in names
        ]
        self.assertEqual([(m, l, c, n) for m, l, c, n in wanted[:5]], done)
        self.assertEqual(5, len(validation.load(path)))

    def test_a_job_beside_which_others_were_busy_is_measured_again(self):
        measured = iter((7.0, 8.0, 9.0, 8.5, 8.8))
        shares = iter((0.05, 0.3, 0.05, 0.2, 0.25))

        @contextlib.contextmanager
        def bench(*_):
            yield lambda *_: next(measured)

        path = self.path("jobs.json")
        wanted = [
            (place, name) for place, names in validation.chosen(self.models) for name in names
        ][:3]
        with contextlib.redirect_stderr(io.StringIO()), mock.patch.object(
            check, "bench", bench
        ), mock.patch.object(
            validation.Busyness, "of_others", lambda busy: next(shares)
        ), mock.patch.object(
            validation, "chosen", lambda models: [(place, [name]) for place, name in wanted]
        ):
            self.run_of(path).go_on(None)
            self.assertEqual(
                [(wanted[1][0], wanted[1][1])], self.run_of(path).missing(), "only the disturbed"
            )
            self.run_of(path).go_on(None)  # less disturbed
            self.run_of(path).go_on(None)  # more disturbed
        found = {job["system"]: job["measured_ms"] for job in validation.load(path)}
        self.assertEqual({wanted[0][1]: 7.0, wanted[1][1]: 8.5, wanted[2][1]: 9.0}, found)

    def test_what_children_take_is_not_what_others_take(self):
        with mock.patch("plan.validation.all_cpu_s", side_effect=(10.0, 12.0)), mock.patch(
            "plan.validation.children_cpu_s", side_effect=(1.0, 1.5)
        ), mock.patch("time.monotonic", side_effect=(0.0, 10.0)), mock.patch(
            "os.cpu_count", lambda: 2
        ):
            self.assertAlmostEqual(0.075, validation.Busyness().of_others())

    def test_cpu_times_of_this_machine_are_read(self):
        before = validation.children_cpu_s(), validation.all_cpu_s()
        spin = "import time\nwhile time.process_time() < 0.3: pass"
        subprocess.run([sys.executable, "-c", spin], check=True)
        self.assertGreater(validation.children_cpu_s() - before[0], 0.25)
        self.assertGreater(validation.all_cpu_s() - before[1], 0.2)

    def test_predictions_are_made_anew_of_what_was_measured(self):
        path = self.path("jobs.json")
        name = validation.MODELS[0]
        out_files.save_json(path, [{**job("1bit", None, 9.0), "model": name}])
        self.run_of(path).predict()
        found = validation.load(path)[0]
        self.assertEqual(9.0, found["measured_ms"])
        self.assertGreater(found["predicted_ms"], 1.0)

    def test_another_file_is_refused(self):
        with self.assertRaisesRegex(
            setup.SetupError, r"rows.json holds no set-ups: \[0\].model: expected text"
        ):
            validation.load(self.put("rows.json", "[{}]"))
        self.assertEqual([], validation.load(self.path("gone.json")))


if __name__ == "__main__":
    unittest.main()
