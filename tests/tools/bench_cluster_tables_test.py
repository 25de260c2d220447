# SPDX-License-Identifier: Apache-2.0
"""The tables of slimps bench cluster.

Figures and medians, the table's choice beside fixed thresholds, odd reports.
"""

import argparse
import contextlib
import io
import unittest

from bench.cluster import cluster_bench as cluster
from bench.cluster import cluster_rows
from bench.cluster import cluster_options as flags_of
from bench.cluster import systems
from bench.cluster import cluster_tables as tables
from bench import report_tables

FIELDS = [
    "system",
    "model",
    "link",
    "iteration_ms",
    "compute_ms",
    "encode_ms",
    "encode_exposed_ms",
    "overlap_ms",
    "wire_bytes_out",
    "wire_bytes_in",
    "wire_ms_at_link_rate",
    "bound_ms",
    "fraction_of_bound",
    "speedup_over_1bit",
    "speedup_over_fp32",
    "threshold_bytes",
]
ROW_FIELDS = cluster.MEANS + (
    "wire_bytes_out",
    "wire_bytes_in",
    "cpu_ms",
    "pull_threshold_bytes",
    "threshold_bytes",
    "max_rss_bytes",
    "borrowed_rss_bytes",
    "workers_are_identical",
    "decisions",
)


def report(*rows):
    return {
        "bench": "cluster 1gbit",
        "nodes": 2,
        "placement": "together",
        "same_host": "shm",
        "iterations": 3,
        "repeats": 1,
        "congestion": "cubic",
        "cores": 2,
        "results": list(rows),
    }


def row(system="1bit", model="resnet50", **changes):
    fields = dict.fromkeys(FIELDS[3:], 1.0)
    fields.update(system=system, model=model, link="1gbit", cpu_ms=1.0, threshold_bytes=8192)
    fields.update(changes)
    return fields


class TablesTest(unittest.TestCase):
    def test_each_model_has_its_table_and_each_system_its_row(self):
        lines = tables.text(
            report(row("fp32", speedup_over_1bit=None), row(), row(model="vgg16"))
        ).splitlines()
        self.assertEqual(
            ["resnet50", "vgg16"],
            [line for line in lines if line and line[0] != " " and "," not in line],
        )
        self.assertEqual(
            ["system", "fp32", "1bit", "system", "1bit"],
            [line.split()[0] for line in lines if line.startswith("  ")],
        )
        self.assertIn("compute is simulated by waiting", lines[0])

    def test_how_a_node_talks_to_itself_is_told(self):
        self.assertIn("worker and server together by shm, cubic", tables.text(report(row())))
        apart = report(row()) | {"placement": "apart"}
        self.assertIn("worker and server apart, cubic", tables.text(apart))

    def test_thresholds_are_readable(self):
        self.assertEqual("8 KiB, pulls 1 MiB", tables.cells(row(pull_threshold_bytes=1 << 20))[-1])
        self.assertEqual("none", tables.cells(row(threshold_bytes=None))[-1])
        self.assertEqual("", tables.cells(row("fp32"))[-1])

    def compared(self, choice, *fixed, name="slimgc_1bit"):
        """Returns rows of a system with the table's choice and with fixed thresholds, with the
        iteration ms of each."""
        rows = [
            row(
                name,
                iteration_ms=choice,
                threshold_setting="auto",
                iteration_ms_of_repeats=[choice - 1, choice + 2],
            )
        ]
        return rows + [
            row(
                "%s@%s" % (name, setting),
                iteration_ms=ms,
                threshold_setting=setting,
                threshold_bytes=None if setting == "none" else int(setting),
                pull_threshold_bytes=None,
            )
            for setting, ms in fixed
        ]

    def test_the_tables_choice_stands_beside_the_best_fixed_threshold(self):
        fixed = ("0", 110.0), ("65536", 100.0), ("none", 200.0)
        self.assertEqual(
            [
                [
                    "slimgc_1bit",
                    "the table's",
                    "8 KiB",
                    "105.0",
                    "104.0 to 107.0",
                    "1.050",
                    "1.05 met",
                ],
                ["slimgc_1bit", "0", "0 B", "110.0", "110.0 to 110.0", "1.100", ""],
                ["slimgc_1bit", "65536", "64 KiB", "100.0", "100.0 to 100.0", "1.000", ""],
                ["slimgc_1bit", "none", "none", "200.0", "200.0 to 200.0", "2.000", ""],
            ],
            tables.choices(self.compared(105.0, *fixed)),
        )
        self.assertEqual("1.05 MISSED", tables.choices(self.compared(105.1, *fixed))[0][-1])
        # The bound is also met by a choice that is better than all of them.
        self.assertEqual(["0.900", "1.05 met"], tables.choices(self.compared(90.0, *fixed))[0][-2:])

    def test_systems_are_compared_with_their_own_thresholds_alone(self):
        rows = (
            self.compared(10.0, ("0", 20.0))
            + self.compared(30.0, ("0", 25.0), name="slimgc_2bit")
            + [row("fp32")]
        )
        self.assertEqual(
            ["0.500", "1.000", "1.200", "1.000"], [line[-2] for line in tables.choices(rows)]
        )
        self.assertEqual([], tables.choices([row(), self.compared(10.0)[0]]))
        self.assertEqual([], tables.choices(self.compared(10.0, ("0", 20.0))[1:]))

    def test_comparisons_have_tables_and_markers_of_their_own(self):
        compared = dict(
            report(*self.compared(10.0, ("0", 20.0))), bench="cluster 100mbit thresholds", repeats=7
        )
        report_tables.check(compared)
        self.assertIn("slimgc_1bit  the table's", tables.text(compared))
        page = (
            "<!-- bench cluster 100mbit thresholds -->\n<!-- end cluster 100mbit thresholds -->\n"
        )
        new = report_tables.put_into(page, compared)
        self.assertIn("2 nodes, 100mbit, ", new)
        self.assertIn("medians of 7 runs", new)
        self.assertIn("### resnet50: the table's choice beside fixed thresholds", new)

    def test_snapshots_are_told(self):
        self.assertNotIn("snapshot", tables.text(report(row())))
        taken = dict(report(row()), snapshot_every=30)
        report_tables.check(taken)
        self.assertIn("2 cores, a snapshot every 30 s; ", tables.text(taken))

    def test_wrong_reports_are_refused_with_the_field(self):
        report_tables.check(report(row(), row("fp32", speedup_over_1bit=None)))
        for wrong, what in (
            (dict(report(), bench="cluster"), "bench: expected cluster LINK"),
            (dict(report(), bench="clutser 1gbit"), "bench: expected transport, cluster LINK"),
            (dict(report(), nodes="2"), 'nodes: expected a whole number from 1 on, got "2"'),
            (
                report(row(), row(bound_ms=None)),
                r"results\[1\].bound_ms: expected a number, got null",
            ),
            (report(row(threshold_bytes=-1)), "threshold_bytes: expected a whole number from 0"),
        ):
            with self.assertRaisesRegex(ValueError, what):
                report_tables.check(wrong)

    def test_markdown_goes_between_the_links_markers(self):
        page = "<!-- bench cluster 1gbit -->\nstale\n<!-- end cluster 1gbit -->\n"
        new = report_tables.put_into(page, report(row()))
        self.assertIn("| 1bit | 1.0 |", new)
        self.assertNotIn("stale", new)

    def test_each_system_runs_once_before_any_runs_again(self):
        entries = flags_of.with_fixed_thresholds(
            [systems.find("slimgc_1bit_2way")], ["0", "65536", "none"]
        )
        ran = []

        class Run:
            def measure(self, entry, model, milliseconds):
                ran.append((entry.name, entry.threshold, entry.pull_threshold, model, milliseconds))
                return {"iteration_ms": len(ran), "workers_are_identical": True}

        with contextlib.redirect_stderr(io.StringIO()):
            measured = cluster.measure_in_turn(Run(), entries, "m", 5.0, 7)
        self.assertEqual(7 * ran[:4], ran)
        self.assertEqual([("slimgc_1bit_2way@65536", "65536", "65536", "m", 5.0)], ran[2:3])
        self.assertEqual(
            [2, 6, 10, 14, 18, 22, 26],
            [entry["iteration_ms"] for entry in measured["slimgc_1bit_2way@0"]],
        )
        self.assertEqual(
            14, cluster_rows.median_row(measured["slimgc_1bit_2way@0"])["iteration_ms"]
        )

    def test_the_median_is_a_job_that_was(self):
        rows = [{"iteration_ms": value} for value in (5, 1, 9, 7)]
        self.assertEqual(5, cluster_rows.median_row(rows)["iteration_ms"])
        self.assertEqual(7, cluster_rows.median_row(rows + [{"iteration_ms": 8}])["iteration_ms"])

    def test_speedups_are_over_the_baselines_of_the_run(self):
        measured = {
            name: [
                dict.fromkeys(ROW_FIELDS, 0.0) | {"iteration_ms": ms, "wire_ms_at_link_rate": 50.0}
            ]
            for name, ms in (("1bit", 100.0), ("slimgc_1bit", 60.0))
        }
        entries = [systems.find(name) for name in measured]
        results = cluster_rows.results_of(
            argparse.Namespace(link="1gbit"), entries, "m", 40.0, measured
        )
        self.assertEqual(["0", "auto"], [entry["threshold_setting"] for entry in results])
        self.assertEqual([1.0, 100 / 60], [entry["speedup_over_1bit"] for entry in results])
        self.assertEqual([None, None], [entry["speedup_over_fp32"] for entry in results])
        self.assertEqual([2.0, 1.2], [entry["fraction_of_bound"] for entry in results])
        self.assertEqual(FIELDS, list(results[0])[: len(FIELDS)])


if __name__ == "__main__":
    unittest.main()
