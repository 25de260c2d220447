# SPDX-License-Identifier: Apache-2.0
"""slimps bench codec: its JSON, and what it says to wrong flags.

No figure is judged here.
"""

import json
import os
import signal
import subprocess
import tempfile
import unittest

from eventually import eventually

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")
PROGRAM = os.path.abspath("tools/bench/codec/bench_codec")  # in the runfiles, where tests start

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


def bench_json(*arguments):
    """Returns (the JSON, the process) of slimps bench codec."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        result = bench("codec", "--json", path, *arguments)
        if result.returncode != 0:
            raise AssertionError("status %d\n%s" % (result.returncode, result.stderr))
        with open(path, encoding="utf-8") as text:
            return json.load(text), result


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
            "drive",
            "thc",
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

    def test_levels_are_those_of_topk(self):
        levels = [entry for entry in self.rows if entry["op"] == "levels"]
        self.assertEqual({"topk"}, {entry["codec"] for entry in levels})
        encoded = {
            entry["payload_bytes"]
            for entry in self.rows
            if entry["op"] == "encode" and entry["codec"] == "topk"
        }
        for entry in levels:  # the strongest is the setting; indices may be coded otherwise
            self.assertAlmostEqual(1, entry["payload_bytes"] / min(encoded), delta=0.05)

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

    def test_codecs_with_phases_are_told_from_others(self):
        codecs = self.report["codecs"]
        self.assertTrue(codecs["powersgd"]["has_phases"])
        self.assertFalse(codecs["1bit"]["has_phases"])

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
            "4097,300Ki",
            "--threads",
            "1,2",
            "--isa",
            "scalar",
        )[0]["results"]
        self.assertEqual(
            {"1bit:scaling=none,threshold=0.25", "2bit"}, {entry["codec"] for entry in results}
        )
        self.assertEqual(
            {
                (op, elements, threads, "scalar")
                for op in ("encode", "decode_add")
                for elements, threads in ((4097, 1), (300 << 10, 1), (300 << 10, 2))
            },
            {(entry["op"], entry["elements"], entry["threads"], entry["isa"]) for entry in results},
        )
        self.assertEqual(12, len(results))

    def test_several_threads_take_partitions_of_256_ki_elements(self):
        results = bench_json(
            *["--quick", "--codecs", "1bit", "--ops", "encode,encode_ef,decode_add,aggregate"],
            *["--elements", "600Ki", "--threads", "1,2", "--isa", "scalar", "--workers", "2"],
        )[0]["results"]
        self.assertEqual(8, len(results))
        blocks = 600 // 4
        for entry in results:
            headers = 16 * (1 if entry["threads"] == 1 else 3)
            self.assertEqual((600 << 10) // 8 + 4 * blocks + headers, entry["payload_bytes"])
        self.assertIn(
            'several --threads take tensors of over 256Ki elements',
            self.refused("--quick", "--elements", "256Ki", "--threads", "2"),
        )

    def test_phases_are_measured_of_codecs_that_have_them(self):
        arguments = ["--quick", "--codecs", "1bit,thc,powersgd:rank=2", "--ops", "phases"]
        arguments += ["--elements", "16Ki", "--isa", "scalar"]
        results = bench_json(*arguments, "--matrix")[0]["results"]
        # Norms of four blocks; factors of a matrix of 128 x 128.
        self.assertEqual(
            {"thc": 4 * 4, "powersgd:rank=2": 4 * 2 * (128 + 128)},
            {entry["codec"]: entry["payload_bytes"] for entry in results},
        )
        flat = bench("codec", *arguments)
        self.assertIn("has no phases for 16384 rows of 1 elements", flat.stderr)

    def test_low_rank_codecs_see_matrices_if_asked_to(self):
        sizes = [
            bench_json(
                *["--quick", "--codecs", "atomo", "--ops", "encode", "--elements", "16Ki"],
                *["--isa", "scalar", *matrix],
            )[0]["results"][0]["payload_bytes"]
            for matrix in ([], ["--matrix"])
        ]
        self.assertEqual(32 + 4 * (1 + 16384), sizes[0])
        self.assertLess(sizes[1], 32 + 4 * 4 * 256)

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
        model, result = bench_json(
            "--quick", "--table", "resnet50", "--codecs", "signsgd,topk,threshold"
        )
        self.assertEqual(
            {"name": "resnet50", "elements": 25557032, "partitions": 228}, model["table"]
        )
        self.assertEqual(
            [
                (codec, gradient)
                for gradient in ("drawn", "recorded")
                for codec in ("signsgd", "topk", "threshold")
            ],
            [(entry["codec"], entry["gradient"]) for entry in model["results"]],
        )
        for entry in model["results"]:
            self.assertEqual(
                ["codec", "spec", "gradient", "threads", "isa"]
                + ["encode_ms", "decode_ms", "payload_bytes"],
                list(entry),
            )
            self.assertGreater(entry["encode_ms"], 0)
            self.assertGreater(entry["decode_ms"], 0)
        self.assertIn(" 273 ", result.stdout)  # top-k on a V100
        # What a threshold sends depends on the values; signs always take one bit each.
        sizes = [entry["payload_bytes"] for entry in model["results"]]
        self.assertEqual(sizes[0], sizes[3])
        self.assertNotAlmostEqual(1, sizes[5] / sizes[2], delta=0.05)

    def test_other_models_have_theirs(self):
        model = bench_json("--quick", "--table", "alexnet", "--codecs", "signsgd")[0]
        self.assertEqual(
            {"name": "alexnet", "elements": 61100840, "partitions": 245}, model["table"]
        )


if __name__ == "__main__":
    unittest.main()
