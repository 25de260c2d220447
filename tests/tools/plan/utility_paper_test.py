# SPDX-License-Identifier: Apache-2.0
"""The figures of "On the Utility of Gradient Compression" that its published constants reach."""

import dataclasses
import unittest

from plan import utility_paper as paper

RESNET50 = paper.Setup(paper.RESNET50)


class PublishedConstantsTest(unittest.TestCase):
    """ResNet-50 on 64 machines; nothing is fitted."""

    def test_figure_18_at_10_gbit_less_than_4_times_is_enough(self):
        for batch in (16, 32, 64):
            there = dataclasses.replace(RESNET50, batch=batch)
            ratio = paper.required_ratio(there)
            self.assertLess(ratio, 4.0, batch)
            # So much, and no less, hides all buckets but the last.
            before, last = there.buckets()
            hidden = paper.GAMMA * there.backward_ms() + there.ring_ms(last / ratio)
            self.assertAlmostEqual(hidden, there.sync_ms(ratio))
        self.assertGreater(paper.required_ratio(dataclasses.replace(RESNET50, batch=16)), 3.0)

    def test_figure_19_powersgd_stops_to_pay_at_9_gbit(self):
        self.assertAlmostEqual(9.0, paper.crossover_gbit(RESNET50), delta=0.1)
        for gbit in (1, 3, 5, 7):
            self.assertGreater(dataclasses.replace(RESNET50, gbit=gbit).gain_percent(), 5.0)
        for gbit in (10, 20, 30):
            self.assertLess(dataclasses.replace(RESNET50, gbit=gbit).gain_percent(), 0.0)

    def test_figure_20_faster_compute_makes_powersgd_pay(self):
        gains = [
            dataclasses.replace(RESNET50, compute_speed=speed).gain_percent()
            for speed in (1, 1.5, 2, 2.5, 3, 3.5, 4)
        ]
        self.assertLess(gains[0], 0)
        self.assertEqual(sorted(gains), gains)
        # The text has 1.75 times at 3.5; docs/planning.md lists this as a contradiction.
        faster = dataclasses.replace(RESNET50, compute_speed=3.5)
        self.assertGreater(faster.sync_ms() / faster.powersgd_ms(), 1.75)
        self.assertEqual(
            faster.sync_ms(), dataclasses.replace(RESNET50, compute_speed=4).sync_ms(), "link-bound"
        )

    def test_figure_21_faster_encoding_helps_although_more_is_sent(self):
        for k in (2, 3, 4):
            for factor in (1, 2, 3):
                traded = dataclasses.replace(RESNET50, encode_speed=k, growth=k * factor)
                self.assertLess(traded.powersgd_ms(), RESNET50.powersgd_ms(), (k, factor))


class FittedTest(unittest.TestCase):
    """One backward time of each network is fitted to one point, which its row says."""

    def test_figure_3_resnet101_stops_to_pay_at_8_2_gbit(self):
        deep = paper.resnet101()
        self.assertIn("8.2", deep.fitted)
        self.assertAlmostEqual(8.2, paper.crossover_gbit(paper.Setup(deep)), places=3)
        # ResNet-101 has 1.9 times the multiply-adds of ResNet-50.
        self.assertAlmostEqual(1.9, deep.compute_ms / paper.RESNET50.compute_ms, delta=0.1)

    def test_figure_19_bert_stops_to_pay_at_15_gbit(self):
        bert = paper.bert_base()
        self.assertIn("15", bert.fitted)
        self.assertAlmostEqual(15.0, paper.crossover_gbit(paper.Setup(bert)), places=3)

    def test_figure_9_follows_from_figure_3s_fit(self):
        for batch, said in ((16, 42.5), (32, 25.7), (64, -6.3)):
            got = paper.Setup(paper.resnet101(), workers=96, batch=batch).gain_percent()
            self.assertAlmostEqual(said, got, delta=6.0, msg=batch)
            self.assertEqual(said > 0, got > 0)

    def test_what_cannot_be_fitted_is_refused(self):
        with self.assertRaisesRegex(ValueError, "x: no backward time crosses at 400 Gbit/s"):
            paper.fit_compute(paper.scaled("x", 97e6), 400.0, "")


class ComparisonTest(unittest.TestCase):
    def test_every_row_says_whether_it_is_fitted(self):
        rows = paper.comparison()
        self.assertEqual({"3", "9", "18", "19", "20", "21"}, {row.figure for row in rows})
        for row in rows:
            self.assertEqual("ResNet-50" not in row.what, bool(row.fitted), row)


if __name__ == "__main__":
    unittest.main()
