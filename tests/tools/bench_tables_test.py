# SPDX-License-Identifier: Apache-2.0
"""The tables and bars of slimps bench codec. No figure is judged here."""

import json
import os
import subprocess
import tempfile
import unittest

from bench import report_tables as tables
from bench.codec import codec_bars
from bench.codec import codec_tables

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")


def render(*arguments):
    command = [os.path.join(TOOLS, "slimps"), "bench", "render"] + list(arguments)
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
    )


def row(codec="1bit", op="encode_ef", fraction=0.9, gbps=9.0, **changes):
    fields = {
        "codec": codec,
        "op": op,
        "workers": 1,
        "elements": codec_bars.LARGE,
        "threads": 1,
        "isa": "avx2",
        "gbps": gbps,
        "reference_gbps": gbps / fraction,
        "fraction_of_reference": fraction,
        "payload_bytes": 1 << 21,
    }
    fields.update(changes)
    return fields


def report(*rows):
    machine = {
        "cpu": "A CPU",
        "cores": 2,
        "best_isa": "avx2",
        "memory_bytes": 8e9,
        "huge_pages": "always",
    }
    return {"machine": machine, "codecs": {}, "results": list(rows)}


class TablesTest(unittest.TestCase):
    def remarks(self, *rows):
        return list(codec_bars.bar_remarks(rows, rows[-1]))

    def test_bars_hold_for_one_thread_with_avx2_at_their_size(self):
        self.assertEqual(["0.80 met"], self.remarks(row(fraction=0.80)))
        self.assertEqual(["0.80 MISSED"], self.remarks(row(fraction=0.79)))
        self.assertEqual(["0.50 met"], self.remarks(row(fraction=0.79, elements=codec_bars.SMALL)))
        self.assertEqual(
            [],
            self.remarks(row(isa="avx512"))
            + self.remarks(row(elements=1 << 20))
            + self.remarks(row("1bit+check"))
            + self.remarks(row(op="encode")),
        )

    def test_levels_have_a_table_and_a_bar_of_their_own(self):
        met = row("topk", "levels", fraction=1.6, gbps=1.6)
        self.assertEqual(["1.10 met"], self.remarks(met))
        self.assertEqual(["1.10 MISSED"], self.remarks(dict(met, fraction_of_reference=1.09)))
        page = tables.markdown(report(row("topk"), met))
        self.assertIn("| topk | 1.60 | 1.00 | 1.60 | 1.10 met |", page)
        self.assertEqual(1, page.count("encode_ef 0.40 met"))

    def test_sparse_decoding_is_compared_with_raw_as_fractions_of_their_references(self):
        raw = row("none", "decode_add", fraction=0.5, gbps=5.0)
        met = row("topk", "decode_add", fraction=2.5, gbps=20.0)
        missed = row("topk", "decode_add", fraction=2.4, gbps=30.0)
        self.assertEqual(["5 x raw met"], self.remarks(raw, met))
        self.assertEqual(["5 x raw MISSED"], self.remarks(raw, missed))
        self.assertEqual(["4.8 x raw"], list(codec_tables.ratios([raw], missed)))

    def test_sixteen_workers_may_take_three_times_as_long_as_one(self):
        one = row(op="aggregate", gbps=3.0)
        self.assertEqual(["3 x met"], self.remarks(one, row(op="aggregate", gbps=16.0, workers=16)))
        self.assertEqual(
            ["3 x MISSED"], self.remarks(one, row(op="aggregate", gbps=15.0, workers=16))
        )

    def test_two_threads_reach_their_ratio_or_their_reference(self):
        one = row(gbps=5.0)
        self.assertEqual(
            ["1.7 x 1 thread met"], self.remarks(one, row(gbps=8.5, threads=2, fraction=0.5))
        )
        self.assertEqual(
            ["1.7 x 1 thread met"], self.remarks(one, row(gbps=7.0, threads=2, fraction=1.0))
        )
        self.assertEqual(
            ["1.7 x 1 thread MISSED"], self.remarks(one, row(gbps=7.0, threads=2, fraction=0.5))
        )

    def test_rows_are_sorted_by_fraction_within_an_operation(self):
        lines = tables.text(
            report(row("2bit", fraction=0.5), row("1bit", fraction=0.7), row(op="encode"))
        ).splitlines()
        names = [line.split()[0] for line in lines if line.startswith("  ")]
        self.assertEqual(["codec", "1bit", "2bit", "codec", "1bit"], names)

    def test_markdown_replaces_what_is_between_its_markers(self):
        page = "before\n<!-- bench codec -->\nold\n<!-- end codec -->\nafter\n"
        new = tables.put_into(
            page, report(row(), row(op="decode_add"), row(op="aggregate", workers=4))
        )
        self.assertTrue(new.startswith("before\n<!-- bench codec -->\nA CPU, 2 cores, 8.0 GB"))
        self.assertTrue(new.endswith("\n<!-- end codec -->\nafter\n"))
        self.assertNotIn("old", new)
        self.assertEqual(
            new,
            tables.put_into(
                new, report(row(), row(op="decode_add"), row(op="aggregate", workers=4))
            ),
        )
        for wrong in ("nothing", page + page, page.replace("end codec", "end")):
            with self.assertRaisesRegex(ValueError, "<!-- bench codec -->"):
                tables.put_into(wrong, report(row()))

    def test_render_writes_into_a_page_and_names_what_it_cannot_read(self):
        with tempfile.TemporaryDirectory() as folder:
            source, page = os.path.join(folder, "a.json"), os.path.join(folder, "page.md")
            with open(source, "w", encoding="utf-8") as out:
                json.dump(report(row()), out)
            with open(page, "w", encoding="utf-8") as out:
                out.write("<!-- bench codec -->\n<!-- end codec -->\n")
            self.assertEqual(0, render(source, "--into", page).returncode)
            with open(page, encoding="utf-8") as text:
                self.assertIn("| 1bit |", text.read())
            self.assertIn("| 1bit |", render(source).stdout)
            self.assertIn("slimps: cannot render %s: not JSON" % page, render(page).stderr)
            self.assertEqual(
                "slimps: cannot render %s: cannot read it: Is a directory\n" % folder,
                render(folder).stderr,
            )
            self.assertIn(
                "--into: cannot write %s: not a file" % folder,
                render(source, "--into", folder).stderr,
            )
            missing = os.path.join(folder, "none.md")
            self.assertEqual(
                "slimps: cannot read %s: No such file or directory\n" % missing,
                render(source, "--into", missing).stderr,
            )
            self.assertEqual({"a.json", "page.md"}, set(os.listdir(folder)))

    def test_odd_reports_are_refused_with_the_field(self):
        model = {
            "machine": report()["machine"],
            "table": {"name": "m", "elements": 4, "partitions": 1},
            "results": [
                {
                    "codec": "a",
                    "gradient": "drawn",
                    "threads": 1,
                    "isa": "avx2",
                    "encode_ms": 1.0,
                    "decode_ms": 1.0,
                    "payload_bytes": 1,
                }
            ],
        }
        for good in (report(row()), model):
            tables.check(good)
            for field in good["results"][0]:
                odd = {name: value for name, value in good["results"][0].items() if name != field}
                with self.assertRaisesRegex(
                    ValueError, r"^results\[0\].%s: expected .*, got nothing$" % field
                ):
                    tables.check(dict(good, results=[odd]))
        for odd, what in (
            ([], "the whole: expected an object"),
            ({}, "machine: expected an object, got nothing"),
            (report(row(op="x")), r'results\[0\].op: expected one of encode_ef, .*, got "x"'),
            (
                report(row(fraction=1.0, gbps=1.0, elements=0)),
                r"results\[0\].elements: expected a whole",
            ),
            (dict(report(), bench=7), "bench: expected text, got 7"),
            (dict(report(), bench="codecs"), 'bench: expected transport, .*, got "codecs"'),
            (dict(report(), results=None), "results: expected a list, got null"),
            (dict(model, table=[]), r"table: expected an object, got \[\]"),
            (dict(model, results=[dict(model["results"][0], payload_bytes=0)]), "payload_bytes"),
        ):
            with self.assertRaisesRegex(ValueError, what):
                tables.check(odd)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.json")
            with open(path, "w", encoding="utf-8") as out:
                json.dump(report(row(threads="2")), out)
            result = render(path)
        self.assertEqual(
            (
                1,
                "slimps: cannot render %s: results[0].threads: expected a whole number from 1 on, "
                "got \"2\"\n" % path,
            ),
            (result.returncode, result.stderr),
        )


if __name__ == "__main__":
    unittest.main()
