# SPDX-License-Identifier: Apache-2.0
"""slimps bench cluster --budgets: which fixed codecs stand beside joint, and the table of them."""

import argparse
import unittest

from bench import report_tables
from bench.cluster import budgets
from bench.cluster import cluster_tables as tables
from bench.cluster import systems

ERRORS = {
    "fp16": 1e-7,
    "1bit": 0.4,
    "qsgd:bits=8,norm=max": 1e-4,
    "qsgd:bits=4,norm=max": 0.03,
    "qsgd:bits=2,norm=max": 0.9,
    "topk:ratio=0.05": 0.3,
    "topk:ratio=0.01": 0.6,
    "topk:ratio=0.001": 0.8,
    "powersgd:rank=4": 0.2,
}


def row(system, milliseconds, **more):
    return dict(
        dict.fromkeys(tables.TIMES + ("wire_bytes_out", "wire_bytes_in", "bound_ms"), 1.0),
        system=system,
        model="m",
        iteration_ms=milliseconds,
        fraction_of_bound=None,
        speedup_over_1bit=None,
        speedup_over_fp32=None,
        threshold_bytes=None,
        policy="p",
        **more,
    )


class BudgetsTest(unittest.TestCase):
    def test_the_list_has_bars_for_codecs_have_commas(self):
        self.assertEqual(
            ["1bit", "qsgd:bits=4,norm=max"], budgets.codec_list("1bit|qsgd:bits=4,norm=max")
        )
        for text in ("", "1bit|", "1bit|1bit"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "with | between them"):
                budgets.codec_list(text)

    def test_fixed_codecs_are_those_within_the_largest_budget(self):
        cell = budgets.Cell(["qsgd:bits=4,norm=max"], ERRORS)
        self.assertEqual(
            [
                "joint at qsgd:bits=4,norm=max",
                "none",
                "fp16",
                "qsgd:bits=8,norm=max",
                "qsgd:bits=4,norm=max",
            ],
            [entry.name for entry in cell.systems],
        )
        both = budgets.Cell(["1bit", "powersgd:rank=4"], ERRORS)
        names = [entry.name for entry in both.systems]
        self.assertEqual(["joint at 1bit", "joint at powersgd:rank=4", "none"], names[:3])
        self.assertIn("topk:ratio=0.05", names)
        self.assertIn("powersgd:rank=4", names)
        self.assertNotIn("topk:ratio=0.01", names)

    def test_systems_differ_in_what_chooses_codecs_alone(self):
        joint = budgets.joint("qsgd:bits=4,norm=max", 0.03)
        fixed = budgets.fixed("topk:ratio=0.01")
        self.assertEqual(
            "joint:every=%d,budget=qsgd:bits=4;norm=max" % systems.WINDOW, joint.policy
        )
        self.assertEqual(("topk:ratio=0.01",) * 2, (fixed.compression, fixed.pull))
        self.assertEqual(("1024",) * 2, (fixed.threshold, fixed.pull_threshold))
        self.assertEqual(
            {"name", "says", "compression", "threshold", "pull", "pull_threshold", "policy"},
            {field for field in joint._fields if getattr(joint, field) != getattr(fixed, field)},
        )
        # No policy can choose it, so its error is the budget.
        self.assertIn("budget=0.2", budgets.joint("powersgd:rank=4", 0.2).policy)
        self.assertEqual("powersgd:rank=4", budgets.fixed("powersgd:rank=4").compression)

    def test_the_table_takes_the_fastest_fixed_codec_within_each_budget(self):
        cell = budgets.Cell(["1bit", "qsgd:bits=4,norm=max"], ERRORS)
        times = {"1bit": 50.0, "qsgd:bits=4,norm=max": 90.0, "joint at 1bit": 52.0}
        rows = [row(entry.name, times.get(entry.name, 100.0)) for entry in cell.systems]
        cell.put_into(rows)
        compared = tables.within_budgets(rows)
        self.assertEqual(
            [("1bit", "0.4", "1bit", "1.040"), ("qsgd:bits=4,norm=max", "0.03", None, "1.111")],
            [
                (line[0], line[1], line[4] if line[0] == "1bit" else None, line[6])
                for line in compared
            ],
        )
        self.assertEqual("qsgd:bits=4,norm=max", compared[1][4])
        report = {
            "bench": "cluster 1gbit budgets",
            "nodes": 2,
            "placement": "together",
            "congestion": "cubic",
            "iterations": 3,
            "repeats": 1,
            "cores": 2,
            "results": rows,
        }
        report_tables.check(report)
        self.assertIn("m: joint beside fixed codecs within its budget", tables.text(report))


if __name__ == "__main__":
    unittest.main()
