# SPDX-License-Identifier: Apache-2.0
"""Which systems a plan has, what it compares with what, and its words and JSON."""

import dataclasses
import unittest

import small_jobs
from plan import answer, systems, what_if
from plan.terms import System, Tensor

MEBI = 1 << 18


def case(model=None, **cluster):
    return answer.Case(
        model or small_jobs.model(MEBI, 4 * MEBI), small_jobs.cluster(**cluster), small_jobs.FREE
    )


def plan_of(given):
    return systems.make_plan(given.model, given.cluster, given.costs)


def with_codec(given, name, **costs):
    """Returns the case with one more codec, or another of that name."""
    codecs = {**given.costs.codecs, name: small_jobs.codec(**costs)}
    return dataclasses.replace(given, costs=dataclasses.replace(given.costs, codecs=codecs))


class SystemsTest(unittest.TestCase):
    def test_every_codec_stands_with_and_without_the_backup_model(self):
        plan = plan_of(case(workers=2))
        self.assertEqual(
            [
                "fp32",
                "fp32+backup",
                "bf16",
                "bf16+backup",
                "1bit",
                "1bit+backup",
                "ddp_bf16",
                "ddp_powersgd",
            ],
            [row.system for row in plan.systems],
        )
        self.assertEqual([True] * 6 + [False] * 2, [row.ours for row in plan.systems])

    def test_each_prediction_is_told_with_its_system(self):
        told = []
        given = dataclasses.replace(case(workers=2), tell=told.append)
        plan = systems.make_plan(given.model, given.cluster, given.costs, tell=given.tell)
        self.assertEqual([row.system for row in plan.systems if row.ours], told)
        told.clear()
        given.at_gbit(0.5).predicted("1bit")
        self.assertEqual(["1bit"], told)

    def test_the_baseline_is_bf16_both_ways_with_the_same_means(self):
        base, best = systems.find("bf16+backup"), systems.find("1bit+backup")
        self.assertEqual(System("bf16+backup", "bf16", "bf16", backup=True), base)
        self.assertEqual(
            dataclasses.replace(best, name="", push="", pull=""),
            dataclasses.replace(base, name="", push="", pull=""),
        )
        self.assertEqual("bf16", systems.baseline_of("1bit"))
        self.assertEqual("bf16+backup", systems.baseline_of("1bit+backup"))

    def test_codecs_that_cannot_carry_weights_are_pulled_as_the_baseline_is(self):
        for name in ("signsgd", "dgc+backup", "dithering:partition=natural"):
            self.assertEqual("bf16", systems.find(name).pull)

    def test_of_equally_fast_codecs_the_one_that_sends_most_is_best(self):
        rows = [
            systems.Prediction("topk", 100.0, 0.0, sent_bytes=8.0),
            systems.Prediction("1bit", 101.9, 0.0, sent_bytes=12.0),
            systems.Prediction("1bit+backup", 102.1, 0.0, sent_bytes=12.0),
        ]
        self.assertEqual("1bit", systems.best_of(rows).system)
        rows[1] = systems.Prediction("1bit", 102.1, 0.0, sent_bytes=12.0)
        self.assertEqual("topk", systems.best_of(rows).system)

    def test_codecs_of_low_rank_need_shapes(self):
        square = dataclasses.replace(
            small_jobs.codec(payload=4.0), spec="powersgd:rank=4", phases=small_jobs.linear(0.0)
        )
        costs = dataclasses.replace(
            small_jobs.FREE, codecs={**small_jobs.FREE.codecs, "powersgd4": square}
        )
        flat = small_jobs.model(MEBI)
        shaped = dataclasses.replace(flat, tensors=(Tensor("m", MEBI, (512, 512)),))
        unknown = dataclasses.replace(flat, tensors=(Tensor("m", MEBI),))
        self.assertEqual([], systems.left_out(shaped, costs))
        self.assertEqual(["powersgd4"], systems.left_out(unknown, costs))
        names = [
            row.system for row in systems.make_plan(unknown, small_jobs.cluster(), costs).systems
        ]
        self.assertNotIn("powersgd4", names)
        with self.assertRaisesRegex(ValueError, "unknown system 'powersgd4'"):
            systems.make_plan(unknown, small_jobs.cluster(), costs, ["powersgd4"])

    def test_precisions_are_never_the_best(self):
        plan = plan_of(case(bits_per_second=None))
        self.assertTrue(plan.best.startswith("1bit"))
        with self.assertRaisesRegex(ValueError, "none of the systems compresses: fp32, bf16"):
            systems.make_plan(
                small_jobs.model(5), small_jobs.cluster(), small_jobs.FREE, ["fp32", "bf16"]
            )

    def test_a_codec_that_sends_no_less_than_the_baseline_is_never_the_best(self):
        for payload in (2.0, 4.0):
            plan = plan_of(with_codec(case(bits_per_second=None), "whole", payload=payload))
            self.assertTrue(plan.best.startswith("1bit"), plan.best)

    def test_where_compression_pays_the_best_pays(self):
        # 2bit is within 2 % of 1bit, and of bf16, too.
        given = case(model=small_jobs.model(4 * MEBI), bits_per_second=8e8)
        given = with_codec(given, "1bit", payload=1.94)
        plan = plan_of(with_codec(given, "2bit", payload=1.975))
        self.assertTrue(plan.pays())
        self.assertTrue(plan.best.startswith("1bit"), plan.best)

    def test_no_prediction_is_below_its_bound(self):
        for rate in (8e7, 8e8, 8e9, None):
            for row in plan_of(case(workers=2, servers=2, bits_per_second=rate)).systems:
                self.assertGreaterEqual(row.predicted_ms, row.bound_ms * 0.999, row)


class AnswerTest(unittest.TestCase):
    def test_the_first_line_says_whether_and_how_much(self):
        slow, even = case(bits_per_second=8e7), case(bits_per_second=None)
        self.assertRegex(
            answer.first_line(plan_of(slow)),
            r"^Compression pays: 1bit\S* takes [\d.]+ ms an iteration, bf16\S* [\d.]+ ms, "
            r"so \d+\.\d\d times as fast\.$",
        )
        self.assertRegex(
            answer.first_line(plan_of(even)),
            r"^Compression does not pay: .* which is the same within 2 %\.$",
        )
        slower = with_codec(even, "1bit", encode_ns=1000.0, payload=0.125)
        self.assertRegex(
            answer.first_line(plan_of(slower)), r"^Compression does not pay: .* times as slow\.$"
        )

    def test_the_breaking_bandwidth_is_where_the_answer_turns(self):
        given = case(bits_per_second=8e8)
        plan = plan_of(given)
        self.assertTrue(plan.pays())
        gbit = answer.breaking_gbit(given, plan)
        self.assertTrue(0.8 < gbit < 100, gbit)
        self.assertTrue(plan_of(given.at_gbit(gbit / 1.05)).pays())
        self.assertFalse(plan_of(given.at_gbit(gbit * 1.05)).pays())
        self.assertIn(
            "bandwidth: it no longer pays from %.3g Gbit/s up; the plan has 0.8" % gbit,
            answer.changes(given, plan, 64.0, gbit, None),
        )

    def test_the_answer_turns_where_any_codec_begins_to_pay(self):
        # Where nothing pays the best is the one that sends most, which pays last.
        given = with_codec(case(bits_per_second=None), "large", payload=1.9)
        plan = plan_of(given)
        self.assertTrue(plan.best.startswith("large"), plan.best)
        gbit = answer.breaking_gbit(given, plan)
        self.assertTrue(plan_of(given.at_gbit(gbit / 1.05)).pays())
        self.assertFalse(plan_of(given.at_gbit(gbit * 1.05)).pays())
        self.assertIn(
            "bandwidth: it pays from %.3g Gbit/s down; the plan has an unshaped link" % gbit,
            answer.changes(given, plan, 64.0, gbit, None),
        )

    def test_what_pays_at_every_rate_says_so_of_an_unshaped_link(self):
        # bf16 takes long to encode, 1bit does not.
        given = with_codec(case(bits_per_second=None), "bf16", encode_ns=1000.0, payload=2.0)
        plan = plan_of(given)
        self.assertTrue(plan.pays())
        self.assertIn(
            "bandwidth: it pays at any rate from 10 Mbit/s to 400 Gbit/s",
            answer.changes(given, plan, 64.0, answer.breaking_gbit(given, plan), None),
        )

    def test_the_breaking_compute_and_batch_are_told_together(self):
        given = case(bits_per_second=8e8)
        plan = plan_of(given)
        times = answer.breaking_compute(given, plan)
        self.assertGreater(times, 1)
        self.assertTrue(plan_of(given.with_compute(times / 1.05)).pays())
        self.assertFalse(plan_of(given.with_compute(times * 1.05)).pays())
        said = answer.changes(given, plan, 64.0, None, times)
        self.assertIn("compute: it no longer pays from %.3g ms" % (6 * times), said[1])
        self.assertIn("batch: that is a batch of %.3g; the plan has 64" % (64 * times), said[2])

    def test_without_a_crossing_it_says_so(self):
        self.assertIsNone(answer.search(lambda value: True, 1, 100))
        self.assertAlmostEqual(10.0, answer.search(lambda value: value > 10, 1, 1000), delta=0.5)
        given = case(bits_per_second=8e8)
        said = answer.changes(given, plan_of(given), 64.0, None, None)
        self.assertIn("bandwidth: it pays at any rate", said[0])
        self.assertIn("compute: it pays at any time", said[1])

    def test_the_report_has_the_fields_to_the_letter(self):
        given = case(workers=2, bits_per_second=8e8)
        plan = plan_of(given)
        bandwidth = answer.bandwidth_for(given, plan.baseline)
        said = answer.report(plan, {"1bit": 5.0}, bandwidth, {"file": None})
        self.assertEqual(
            ["pays", "baseline", "best", "systems", "bandwidth_for", "calibration"], list(said)
        )
        self.assertIs(True, said["pays"])
        for row in said["systems"]:
            self.assertEqual(["system", "predicted_ms", "bound_ms", "measured_ms"], list(row))
            self.assertEqual(5.0 if row["system"] == "1bit" else None, row["measured_ms"])
        self.assertEqual([0.8, 0.9, 0.95], [row["efficiency"] for row in bandwidth])
        for row in bandwidth:
            reached = given.at_gbit(row["gbit"]).efficiency(plan.baseline)
            self.assertAlmostEqual(row["efficiency"], reached, delta=0.04)

    def test_bandwidth_for_tells_any_link_from_none(self):
        slow = case(model=small_jobs.model(64, forward=1e3))
        self.assertEqual(
            {answer.LOW_GBIT}, {row["gbit"] for row in answer.bandwidth_for(slow, "bf16")}
        )
        # Encoding alone takes longer than all compute.
        busy = with_codec(case(), "bf16", encode_ns=1000.0, payload=2.0)
        self.assertEqual({None}, {row["gbit"] for row in answer.bandwidth_for(busy, "bf16")})

    def test_the_table_has_errors_where_something_was_measured(self):
        plan = plan_of(case(workers=2))
        took = plan.of("1bit").predicted_ms
        lines = answer.table(plan, {"1bit": took / 1.1})
        self.assertIn("+10.0", next(line for line in lines if line.split()[0] == "1bit"))
        self.assertNotIn("measured", answer.table(plan, {})[0])

    def test_a_faster_ddp_is_mentioned(self):
        # All bytes of four workers go over one server's link; a ring shares them.
        slow = case(workers=4, bits_per_second=8e7)
        plan = plan_of(with_codec(slow, "1bit", payload=1.9))
        self.assertRegex(answer.beside(plan)[0], "^beside: PyTorch's ddp_")
        self.assertEqual([], answer.beside(plan_of(case(workers=1, bits_per_second=None))))


class SweepTest(unittest.TestCase):
    def test_bandwidth_takes_times_down(self):
        given = case(bits_per_second=8e8)
        sweep = what_if.make("bandwidth", given, plan_of(given), 64.0)
        self.assertEqual(what_if.GBITS, sweep.values)
        for column in zip(*sweep.times):
            rounded = [round(time, 6) for time in column]
            self.assertEqual(sorted(rounded, reverse=True), rounded)

    def test_compute_and_batch_take_times_up(self):
        given = case(bits_per_second=8e8)
        plan = plan_of(given)
        compute = what_if.make("compute", given, plan, 64.0)
        batch = what_if.make("batch", given, plan, 64.0)
        self.assertEqual(compute.times, batch.times)
        self.assertEqual([6 * times for times in what_if.TIMES], list(compute.values))
        self.assertEqual([64 * times for times in what_if.TIMES], list(batch.values))
        for column in zip(*compute.times):
            for less, more in zip(column, column[1:]):
                # With the backup model some rounds still pile up after the warm-up.
                self.assertLess(less, more * 1.03)
            self.assertGreaterEqual(column[-1], compute.values[-1])

    def test_a_ratio_changes_the_payload_alone(self):
        given = case(bits_per_second=8e8)
        plan = plan_of(given)
        sweep = what_if.make("ratio", given, plan, 64.0)
        base, at_ratio = zip(*sweep.times)
        self.assertEqual(1, len(set(base)))
        # At ratio 2 it is bf16; at 32 it is 1bit.
        self.assertAlmostEqual(base[0], at_ratio[0])
        self.assertAlmostEqual(
            plan.of(plan.best).predicted_ms, at_ratio[sweep.values.index(32.0)], places=6
        )

    def test_a_ratio_leaves_pulls_alone_where_the_codec_cannot_carry_weights(self):
        given = with_codec(case(bits_per_second=8e8), "qsgd", payload=0.5)
        plan = systems.make_plan(given.model, given.cluster, given.costs, ["qsgd"])
        sweep = what_if.make("ratio", given, plan, 64.0)
        self.assertAlmostEqual(
            plan.of("qsgd").predicted_ms, sweep.times[sweep.values.index(8.0)][-1], places=6
        )

    def test_table_and_picture_have_every_value(self):
        given = case(bits_per_second=8e8)
        sweep = what_if.make("bandwidth", given, plan_of(given), 64.0)
        lines = what_if.table(sweep)
        self.assertEqual(1 + len(sweep.values), len(lines))
        self.assertIn("Gbit/s", lines[0])
        drawn = what_if.picture(sweep, "a <title>", 0.8)
        self.assertEqual(len(sweep.values) * len(sweep.systems), drawn.count("<circle"))
        self.assertIn("a &lt;title&gt;", drawn)
        self.assertIn("stroke-dasharray", drawn)
        self.assertNotIn("stroke-dasharray", what_if.picture(sweep, "", None))


if __name__ == "__main__":
    unittest.main()
