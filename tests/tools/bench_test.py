# SPDX-License-Identifier: Apache-2.0
"""slimps bench: its JSON, its tables and bars, and what it says to wrong flags.

No figure is judged here.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")
PROGRAM = os.path.abspath("tools/bench/codec/bench_codec")  # in the runfiles, where tests start
sys.path.insert(0, TOOLS)

from bench import report_tables as tables  # noqa: E402

FIELDS = [
    "codec",
    "op",
    "workers",
    "elements",
    "threads",
    "isa",
    "gbps",
    "reference_gbps",
    "fraction_of_reference",
    "payload_bytes",
]


def bench(*arguments, program=PROGRAM):
    command = [os.path.join(TOOLS, "slimps"), "bench"] + list(arguments)
    if arguments and arguments[0] == "codec":
        command.append("--program=" + program)
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
    )


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def bench_json(*arguments):
    """Returns (the JSON, the process) of slimps bench codec."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        result = bench("codec", "--json", path, *arguments)
        if result.returncode != 0:
            raise AssertionError("status %d\n%s" % (result.returncode, result.stderr))
        with open(path, encoding="utf-8") as text:
            return json.load(text), result


def row(codec="1bit", op="encode_ef", fraction=0.9, gbps=9.0, **changes):
    fields = {
        "codec": codec,
        "op": op,
        "workers": 1,
        "elements": tables.LARGE,
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


class QuickTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report, cls.result = bench_json("--quick")
        cls.rows = cls.report["results"]

    def test_every_row_has_exactly_the_promised_fields(self):
        for entry in self.rows:
            self.assertEqual(FIELDS, list(entry))
            self.assertGreater(entry["gbps"], 0)
            self.assertGreater(entry["reference_gbps"], 0)
            self.assertGreater(entry["payload_bytes"], 0)
            self.assertAlmostEqual(
                entry["gbps"] / entry["reference_gbps"], entry["fraction_of_reference"]
            )

    def test_every_registered_codec_is_encoded_and_decoded(self):
        names = bench("codec", "--codecs", "none:x=1").stderr  # says nothing of names: an option
        self.assertIn("option of codec none", names)
        listed = bench("codec", "--codecs", "?").stderr.split("Valid are ")[1].strip().split(", ")
        for name in (
            "none",
            "fp16",
            "bf16",
            "1bit",
            "2bit",
            "signsgd",
            "terngrad",
            "qsgd",
            "dithering",
            "topk",
            "randomk",
            "mstopk",
            "redsync",
            "threshold",
            "adacomp",
            "local_selection",
            "dgc",
        ):
            self.assertIn(name, listed)
        for op in ("encode_ef", "encode", "decode_add"):
            measured = {entry["codec"] for entry in self.rows if entry["op"] == op}
            expected = {name for name in listed if op == "encode_ef" or not name.endswith("+check")}
            self.assertEqual(expected, measured)

    def test_the_sum_is_measured_for_several_numbers_of_workers(self):
        workers = {
            (entry["codec"], entry["workers"]) for entry in self.rows if entry["op"] == "aggregate"
        }
        self.assertEqual({("1bit", 1), ("1bit", 4)}, workers)
        self.assertEqual(
            {1}, {entry["workers"] for entry in self.rows if entry["op"] != "aggregate"}
        )

    def test_payloads_have_their_formulas_sizes(self):
        sizes = {
            entry["codec"]: entry["payload_bytes"] for entry in self.rows if entry["op"] == "encode"
        }
        n = 64 << 10
        self.assertEqual(
            (4 * n, 2 * n, n // 8 + 16 + 4 * 16, n // 4 + 16),
            (sizes["none"], sizes["fp16"], sizes["1bit"], sizes["2bit"]),
        )

    def test_data_are_such_that_sparse_codecs_send_about_one_percent(self):
        codecs = self.report["codecs"]
        for name in ("topk", "randomk", "mstopk", "redsync", "dgc", "threshold", "adacomp"):
            self.assertGreater(codecs[name]["sent_fraction"], 0.003, name)
            self.assertLess(codecs[name]["sent_fraction"], 0.03, name)

    def test_the_machine_is_described_without_its_name(self):
        self.assertEqual(
            {"cpu", "cores", "best_isa", "memory_bytes", "huge_pages"}, set(self.report["machine"])
        )

    def test_the_terminal_shows_every_codec_and_progress(self):
        for entry in self.rows:
            self.assertIn("\n  " + entry["codec"], self.result.stdout)
        self.assertIn("[%d/%d]" % (len(self.rows), len(self.rows)), self.result.stderr)


class FlagsTest(unittest.TestCase):
    def refused(self, *arguments):
        result = bench("codec", *arguments)
        self.assertEqual(2, result.returncode, result.stderr)
        return result.stderr

    def test_lists_choose_what_is_measured(self):
        results = bench_json(
            "--quick",
            "--codecs",
            "1bit:scaling=none,threshold=0.25,2bit",
            "--ops",
            "encode,decode_add",
            "--elements",
            "8Ki,4097",
            "--threads",
            "1,2",
            "--isa",
            "scalar",
        )[0]["results"]
        self.assertEqual(
            {"1bit:scaling=none,threshold=0.25", "2bit"}, {entry["codec"] for entry in results}
        )
        self.assertEqual(
            {("encode", 8192), ("encode", 4097), ("decode_add", 8192), ("decode_add", 4097)},
            {(entry["op"], entry["elements"]) for entry in results},
        )
        self.assertEqual(
            {(1, "scalar"), (2, "scalar")}, {(entry["threads"], entry["isa"]) for entry in results}
        )
        self.assertEqual(16, len(results))

    def test_wrong_names_are_refused_with_the_nearest(self):
        self.assertIn("did you mean 'topk'?", self.refused("--codecs", "topl"))
        self.assertIn("did you mean 'scaling'?", self.refused("--codecs", "1bit:scalin=l1"))
        self.assertIn("did you mean 'decode_add'?", self.refused("--ops", "decode_ad"))
        self.assertIn("did you mean 'avx2'?", self.refused("--isa", "avx"))
        self.assertIn("did you mean 'resnet50'?", self.refused("--table", "resnet5"))
        self.assertIn("did you mean --threads?", self.refused("--thread", "1"))
        self.assertIn("did you mean codec?", bench("codecs").stderr)

    def test_wrong_numbers_are_refused_with_the_flag(self):
        for flag in ("--elements", "--threads", "--workers"):
            for value in ("0", "-1", "many", "1Gi", "99999999999999999999", "1,,2"):
                self.assertIn(
                    "%s: expected numbers from 1 to" % flag, self.refused(flag + "=" + value)
                )

    def test_a_file_that_cannot_be_written_is_named(self):
        error = self.refused(
            "--quick", "--codecs", "none", "--ops", "encode", "--json", "/no/such/folder/x.json"
        )
        self.assertIn("cannot write /no/such/folder/x.json", error)
        self.assertNotIn("GB/s", error)  # before anything is measured
        error = self.refused(
            "--quick", "--table", "resnet50", "--codecs", "none", "--json", "/no/such/folder/x.json"
        )
        self.assertIn("cannot write /no/such/folder/x.json", error)
        self.assertNotIn("decode", error)

    def test_a_program_that_crashes_is_named_with_the_signal(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "crashes")
            with open(program, "w", encoding="utf-8") as script:
                script.write("#!/bin/sh\nkill -KILL $$\n")
            os.chmod(program, 0o755)
            result = bench("codec", program=program)
        self.assertEqual(1, result.returncode)
        self.assertIn("%s was killed by SIGKILL" % program, result.stderr)

    def script(self, folder, text):
        path = os.path.join(folder, "program")
        with open(path, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def test_a_program_that_leaves_no_figures_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, what in (
                ("exit 0", "cannot read it: No such file"),
                ("echo '{}' > ${1#--json=}", "machine: expected an object, got nothing"),
            ):
                program = self.script(folder, text)
                result = bench("codec", program=program)
                self.assertEqual(1, result.returncode)
                self.assertRegex(result.stderr, "^slimps: %s left no figures: %s" % (program, what))

    def test_a_program_ends_with_the_command(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            with tempfile.TemporaryDirectory() as folder:
                program = self.script(
                    folder, "echo $$ > %s/new; mv %s/new %s/pid; exec sleep 1000" % ((folder,) * 3)
                )
                run = subprocess.Popen(
                    [os.path.join(TOOLS, "slimps"), "bench", "codec", "--program", program]
                )
                self.assertTrue(eventually(lambda: os.path.exists(folder + "/pid")))
                run.send_signal(number)
                self.assertEqual(status, run.wait(60))
                with open(folder + "/pid", encoding="ascii") as text:
                    pid = int(text.read())
                self.assertTrue(eventually(lambda: not os.path.exists("/proc/%d" % pid)))

    def test_a_disk_that_is_full_by_then_is_told_after_the_tables(self):
        result = bench(
            "codec", "--quick", "--codecs", "none", "--ops", "encode", "--json", "/dev/full"
        )
        self.assertEqual(1, result.returncode)
        self.assertIn("\n  none ", result.stdout)
        self.assertIn("slimps: cannot write /dev/full: No space left on device", result.stderr)

    def test_figures_go_to_a_device_too(self):
        result = bench(
            "codec", "--quick", "--codecs", "none", "--ops", "encode", "--json", "/dev/stdout"
        )
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertEqual(
            "none", json.loads(result.stdout[result.stdout.index("{") :])["results"][0]["codec"]
        )

    def test_a_missing_program_is_named(self):
        result = bench("codec", program="/no/such/program")
        self.assertEqual(1, result.returncode)
        self.assertIn("cannot run /no/such/program", result.stderr)


class ModelTest(unittest.TestCase):
    def test_resnet50_has_its_known_size_and_every_row_its_times(self):
        model, result = bench_json("--quick", "--table", "resnet50", "--codecs", "signsgd,topk")
        self.assertEqual(
            {"name": "resnet50", "elements": 25557032, "partitions": 169}, model["table"]
        )
        self.assertEqual(["signsgd", "topk"], [entry["codec"] for entry in model["results"]])
        for entry in model["results"]:
            self.assertEqual(
                ["codec", "spec", "threads", "isa", "encode_ms", "decode_ms", "payload_bytes"],
                list(entry),
            )
            self.assertGreater(entry["encode_ms"], 0)
            self.assertGreater(entry["decode_ms"], 0)
        self.assertIn(" 273 ", result.stdout)  # top-k on a V100

    def test_other_models_have_theirs(self):
        model = bench_json("--quick", "--table", "alexnet", "--codecs", "signsgd")[0]
        self.assertEqual(
            {"name": "alexnet", "elements": 61100840, "partitions": 69}, model["table"]
        )


class TablesTest(unittest.TestCase):
    def remarks(self, *rows):
        return list(tables.bar_remarks(rows, rows[-1]))

    def test_bars_hold_for_one_thread_with_avx2_at_their_size(self):
        self.assertEqual(["0.80 met"], self.remarks(row(fraction=0.80)))
        self.assertEqual(["0.80 MISSED"], self.remarks(row(fraction=0.79)))
        self.assertEqual(["0.50 met"], self.remarks(row(fraction=0.79, elements=tables.SMALL)))
        self.assertEqual(
            [],
            self.remarks(row(isa="avx512"))
            + self.remarks(row(elements=1 << 20))
            + self.remarks(row("1bit+check"))
            + self.remarks(row(op="encode")),
        )

    def test_sparse_decoding_is_compared_with_raw_as_fractions_of_their_references(self):
        raw = row("none", "decode_add", fraction=0.5, gbps=5.0)
        met = row("topk", "decode_add", fraction=2.5, gbps=20.0)
        missed = row("topk", "decode_add", fraction=2.4, gbps=30.0)
        self.assertEqual(["5 x raw met"], self.remarks(raw, met))
        self.assertEqual(["5 x raw MISSED"], self.remarks(raw, missed))
        self.assertEqual(["4.8 x raw"], list(tables.ratios([raw], missed)))

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
            self.assertEqual(0, bench("render", source, "--into", page).returncode)
            with open(page, encoding="utf-8") as text:
                self.assertIn("| 1bit |", text.read())
            self.assertIn("| 1bit |", bench("render", source).stdout)
            self.assertIn("slimps: cannot render %s: not JSON" % page, bench("render", page).stderr)
            self.assertEqual(
                "slimps: cannot render %s: cannot read it: Is a directory\n" % folder,
                bench("render", folder).stderr,
            )
            self.assertIn(
                "--into: cannot write %s: not a file" % folder,
                bench("render", source, "--into", folder).stderr,
            )
            missing = os.path.join(folder, "none.md")
            self.assertEqual(
                "slimps: cannot read %s: No such file or directory\n" % missing,
                bench("render", source, "--into", missing).stderr,
            )
            self.assertEqual({"a.json", "page.md"}, set(os.listdir(folder)))

    def test_odd_reports_are_refused_with_the_field(self):
        model = {
            "machine": report()["machine"],
            "table": {"name": "m", "elements": 4, "partitions": 1},
            "results": [
                {
                    "codec": "a",
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
            result = bench("render", path)
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
