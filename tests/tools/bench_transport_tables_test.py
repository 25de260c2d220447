# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of slimps bench transport."""

import json
import os
import subprocess
import tempfile
import unittest

from bench import report_tables
from bench.transport import transport_runs as runs
from bench.transport import transport_tables as tables

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")


def row(op="push_pull", **changes):
    fields = {
        "transport": "tcp",
        "workers": 1,
        "servers": 1,
        "bytes": 1 << 20,
        "op": op,
        "goodput_gbps": 1.0,
        "raw_zmq_gbps": 1.25,
        "fraction_of_raw": 0.8,
        "p50_us": 10.0,
        "p99_us": 20.0,
    }
    if op == "push_pull":
        fields.update(
            goodput_checksums_gbps=0.9, fraction_of_raw_checksums=0.72, raw_zmq_one_way_gbps=2.5
        )
    elif op == "latency":
        fields.update(
            raw_p50_us=8.0,
            raw_p99_us=9.0,
            p50_to_raw=1.25,
            paced_p50_us=100.0,
            raw_paced_p50_us=80.0,
            paced_p50_to_raw=1.25,
        )
    elif op == "curve":
        fields.update(
            tensors="4 MiB",
            codec="none",
            link="",
            plain_gbps=1.0,
            curve_gbps=0.5,
            curve_to_plain=0.5,
            plain_cpu_ns_per_byte=0.5,
            curve_cpu_ns_per_byte=2.5,
        )
    elif op == "lending":
        fields.update(
            tensors="1 MiB", codec="none", copied_gbps=1.0, lent_gbps=1.1, lent_to_copied=1.1
        )
    else:
        fields.update(model="resnet50", round_ms=50.0, round_4mib_ms=45.0, ratio_to_4mib=1.11)
        del fields["bytes"]
    fields.update(changes)
    return fields


class FigureTest(unittest.TestCase):
    def test_percentiles_are_of_the_nearest_rank(self):
        values = list(range(100, 0, -1))
        self.assertEqual(
            (50, 99, 1, 100), tuple(runs.percentile(values, part) for part in (0.5, 0.99, 0.0, 1.0))
        )
        self.assertEqual((7, 7), (runs.percentile([7], 0.5), runs.percentile([7], 0.99)))
        self.assertEqual((1, 2), (runs.percentile([2, 1], 0.5), runs.percentile([2, 1], 0.51)))

    def test_bytes_in_flight_are_the_same_for_both(self):
        for size in (512, 4 << 10, 1 << 20, 4 << 20, 5 << 20, 64 << 20):
            keys, message, window = runs.in_flight(size)
            self.assertTrue(runs.FEWEST_KEYS <= keys <= runs.MOST_KEYS)
            self.assertLessEqual(message, runs.PART_BYTES)
            self.assertTrue(0 <= window * message - keys * size < keys * message, size)

    def test_a_side_runs_as_long_as_it_is_told_and_its_median_counts(self):
        class Party:
            asked = []

            def ask(self, command):
                self.asked.append(int(command.split("=")[1]))
                return [{"seconds": 1e-3 * self.asked[-1], "samples_us": [1.0, 2.0]}] * 2

        side = runs.Side(Party(), "x units=%d", 5000, 4)
        side.calibrate(1.0)
        self.assertEqual([4, 4], Party.asked)
        side.run()
        self.assertEqual(1000, Party.asked[-1])
        side.rates += [9.0, 0.001]
        self.assertAlmostEqual(0.005, side.gbps())
        self.assertEqual({"p50_us": 1.0, "p99_us": 2.0}, runs.times_of(side))


class TablesTest(unittest.TestCase):
    def test_streams_have_their_bar_from_one_mebibyte_on(self):
        self.assertEqual("0.80 met", tables.bar_of(row()))
        self.assertEqual("0.80 MISSED", tables.bar_of(row(transport="ipc", fraction_of_raw=0.79)))
        self.assertEqual("", tables.bar_of(row(bytes=(1 << 20) - 4)))
        self.assertEqual("2.00 met", tables.bar_of(row(transport="shm", fraction_of_raw=2.0)))
        self.assertEqual("2.00 MISSED", tables.bar_of(row(transport="shm", fraction_of_raw=1.99)))

    def test_latency_must_hold_with_and_without_pauses(self):
        self.assertEqual(
            "1.5 x met", tables.bar_of(row("latency", p50_to_raw=1.5, paced_p50_to_raw=1.5))
        )
        self.assertEqual("1.5 x MISSED", tables.bar_of(row("latency", p50_to_raw=1.51)))
        self.assertEqual("1.5 x MISSED", tables.bar_of(row("latency", paced_p50_to_raw=1.51)))

    def test_resnet50_alone_has_a_bar_for_its_rounds(self):
        self.assertEqual("1.15 x met", tables.bar_of(row("model_round", ratio_to_4mib=1.15)))
        self.assertEqual("1.15 x MISSED", tables.bar_of(row("model_round", ratio_to_4mib=1.16)))
        self.assertEqual("", tables.bar_of(row("model_round", model="vgg16", ratio_to_4mib=9.0)))

    def test_lent_gradients_have_their_bar_by_tcp_and_are_slower_nowhere(self):
        self.assertEqual("1.08 met", tables.bar_of(row("lending", lent_to_copied=1.08)))
        self.assertEqual("1.08 MISSED", tables.bar_of(row("lending", lent_to_copied=1.07)))
        shared = row("lending", transport="shm", lent_to_copied=1.0)
        self.assertEqual("", tables.bar_of(shared))
        self.assertEqual("1.00 met", tables.bar_of(dict(shared, codec="1bit")))
        model = row("lending", lent_to_copied=0.99)
        del model["bytes"]
        self.assertEqual("1.00 MISSED", tables.bar_of(model))

    def test_curve_has_its_bar_on_a_link(self):
        self.assertEqual("", tables.bar_of(row("curve")))
        linked = row("curve", link="1gbit", curve_to_plain=0.97)
        self.assertEqual("0.97 met", tables.bar_of(linked))
        self.assertEqual("0.97 MISSED", tables.bar_of(dict(linked, curve_to_plain=0.96)))

    def test_every_kind_of_row_has_a_cell_under_each_heading(self):
        for op, headings in tables.HEADINGS.items():
            self.assertEqual(len(headings), len(tables.cells(row(op))), op)
            self.assertIn(op, tables.line([1], row(op)))

    def test_odd_reports_are_refused_with_the_field(self):
        machine = {"cpu": "A CPU", "cores": 2, "memory_bytes": 8e9, "congestion_control": "cubic"}
        report = {
            "bench": "transport",
            "results": [row(), row("latency"), row("model_round")],
            "machine": machine,
        }
        report_tables.check(report)
        for entry in report["results"]:
            for field in set(entry) - {"p50_us", "p99_us"} | (
                {"p50_us"} if entry["op"] == "latency" else set()
            ):
                odd = {name: value for name, value in entry.items() if name != field}
                with self.assertRaisesRegex(
                    ValueError, r"^results\[1\].%s: expected .*, got nothing$" % field
                ):
                    report_tables.check(dict(report, results=[row(), odd]))
        with self.assertRaisesRegex(ValueError, "machine.congestion_control: expected text, got 1"):
            report_tables.check(dict(report, machine=dict(machine, congestion_control=1)))

    def test_render_writes_into_a_page(self):
        report = {
            "bench": "transport",
            "results": [row(), row("latency"), row("model_round")],
            "machine": {
                "cpu": "A CPU",
                "cores": 2,
                "memory_bytes": 8e9,
                "congestion_control": "cubic",
            },
        }
        with tempfile.TemporaryDirectory() as folder:
            source, page = os.path.join(folder, "a.json"), os.path.join(folder, "page.md")
            with open(source, "w", encoding="utf-8") as out:
                json.dump(report, out)
            with open(page, "w", encoding="utf-8") as out:
                out.write("<!-- bench transport -->\n<!-- end transport -->\n")
            command = [os.path.join(TOOLS, "slimps"), "bench", "render", source, "--into", page]
            self.assertEqual(0, subprocess.run(command, check=False).returncode)
            with open(page, encoding="utf-8") as text:
                document = text.read()
        self.assertIn("TCP congestion control cubic.", document)
        self.assertIn(
            "| tcp | 1x1 | 1 MiB | 1.000 | 1.250 | 0.80 | 0.900 | 0.72 | 2.500 | 0.80 met |",
            document,
        )
        self.assertIn("| resnet50 | 50.0 | 45.0 | 1.11 |", document)


if __name__ == "__main__":
    unittest.main()
