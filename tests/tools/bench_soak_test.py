# SPDX-License-Identifier: Apache-2.0
"""slimps bench soak: what it says to wrong flags, its arithmetic, and short real runs.

The growth of memory in so few rounds is not judged here.
"""

import argparse
import json
import os
import subprocess
import tempfile
import unittest

from bench.soak import soak_bench as soak

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools")
PROGRAMS = os.path.abspath(".")  # the runfiles, where tests start

MIB = 2**20
SMALL = ("--tensors=1x65536,3x100", "--rounds=60", "--most_growth=1000")


def bench(*arguments):
    return subprocess.run(
        [os.path.join(TOOLS, "slimps"), "bench", "soak", "--programs=" + PROGRAMS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


class FlagsTest(unittest.TestCase):
    def refused(self, *arguments):
        result = bench(*arguments)
        self.assertEqual(2, result.returncode, result.stderr)
        return result.stderr

    def test_wrong_numbers_are_refused_with_the_flag(self):
        self.assertIn('--rounds: expected 1 to 1000000000, got "0"', self.refused("--rounds=0"))
        self.assertIn('--workers: expected 1 to 64, got "65"', self.refused("--workers=65"))
        self.assertIn('--servers: expected 1 to 64, got "-1"', self.refused("--servers=-1"))
        self.assertIn("--remeasure_every: expected 0 or 8 to", self.refused("--remeasure_every=7"))
        self.assertIn(
            "--threshold: expected bytes or auto, got '4K'", self.refused("--threshold=4K")
        )
        self.assertIn(
            '--most_growth: expected 0 to 1000000000.0, got "nan"',
            self.refused("--most_growth=nan"),
        )

    def test_an_unknown_flag_is_refused_with_the_nearest(self):
        self.assertIn("did you mean --rounds?", self.refused("--round=5"))

    def test_a_file_that_cannot_be_written_is_named_before_the_run(self):
        self.assertIn(
            "--json: cannot write /no/such/folder/x.json",
            self.refused("--json=/no/such/folder/x.json"),
        )

    def test_tensors_and_codecs_are_checked_by_the_worker_and_named(self):
        for tensors in ("5", "0x5", "5x0", "1x1,", "1x1x1", "ax5"):
            result = bench("--tensors=" + tensors, "--rounds=1")
            self.assertEqual(1, result.returncode)
            self.assertIn("--tensors=%s: expected COUNTxELEMENTS,..." % tensors, result.stderr)
        result = bench("--compression=3bit", "--rounds=1")
        self.assertEqual(1, result.returncode)
        self.assertIn("3bit", result.stderr)


class FiguresTest(unittest.TestCase):
    POINTS = [(100, 5 * MIB), (1000, 10 * MIB), (5000, 11 * MIB), (10000, 12 * MIB)]

    def test_growth_counts_from_a_tenth_of_the_rounds_on(self):
        row = soak.growth_of("worker0", self.POINTS, 10000)
        self.assertEqual(
            (1000, 10000, 2 * MIB), (row["from_round"], row["to_round"], row["growth_bytes"])
        )
        self.assertEqual(
            (10 * MIB, 12 * MIB, 12 * MIB),
            (row["start_bytes"], row["end_bytes"], row["most_bytes"]),
        )

    def test_the_slope_is_that_of_the_line_through_all(self):
        self.assertAlmostEqual(3.0, soak.slope([(0, 1), (1, 4), (2, 7)]))
        self.assertAlmostEqual(0.0, soak.slope([(0, 1), (1, 4), (2, 1)]))
        self.assertEqual(0.0, soak.slope([(5, 1)]))
        self.assertEqual(
            1000, soak.growth_of("x", [(10, 10), (20, 20)], 20)["bytes_per_1000_rounds"]
        )

    def test_a_round_takes_what_the_later_ones_took(self):
        self.assertEqual(20.0, soak.round_ms([(1, 0.0), (10, 5.0), (60, 6.0)], 60))
        self.assertIsNone(soak.round_ms([(1, 5.0)], 1))

    def judged(self, grown, identical=True, most=1.5):
        return soak.judge(
            {
                "results": [soak.growth_of("server0", [(10, 0), (100, grown)], 100)],
                "workers_are_identical": identical,
            },
            most,
        )

    def test_growth_beyond_the_bound_and_other_weights_are_told(self):
        self.assertEqual([], self.judged(1.5 * MIB))
        self.assertEqual(
            ["server0 grew by 1.6 MiB from round 10 to round 100, expected at most 1.5"],
            self.judged(int(1.6 * MIB)),
        )
        self.assertEqual(["the workers' weights differ"], self.judged(0, identical=False))

    def test_workers_are_told_what_was_asked_for(self):
        options = argparse.Namespace(
            tensors="1x1",
            compression="2bit",
            threshold="auto",
            remeasure_every=9,
            backup_model="false",
            same_host="ipc",
            rounds=7,
        )
        flags = soak.worker_flags(options, 3)
        for flag in (
            "--threshold=-1",
            "--compression=2bit",
            "--rounds=7",
            "--say_every=3",
            "--same_host=ipc",
        ):
            self.assertIn(flag, flags)
        options.threshold = "4096"
        self.assertIn("--threshold=4096", soak.worker_flags(options, 3))


class RunTest(unittest.TestCase):
    def report(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            result = bench(*SMALL, "--json", path, *arguments)
            self.assertEqual(0, result.returncode, result.stderr)
            with open(path, encoding="utf-8") as text:
                return json.load(text), result

    def test_each_process_is_looked_at_from_the_first_to_the_last_round(self):
        report, result = self.report("--threshold=4096", "--servers=2")
        self.assertEqual(
            ["scheduler", "server0", "server1", "worker0", "worker1"],
            [row["process"] for row in report["results"]],
        )
        for row in report["results"]:
            self.assertEqual(list(range(3, 61, 3)), [sample["round"] for sample in row["samples"]])
            self.assertGreater(row["start_bytes"], MIB)
            self.assertIn(row["process"], result.stdout)
        self.assertTrue(report["workers_are_identical"])

    def test_both_ways_are_compressed_and_large_payloads_shared(self):
        worker = self.report("--threshold=4096")[0]["worker0"]
        self.assertEqual(60 * 4 * (65536 + 300), worker["gradient_bytes"])
        self.assertLess(worker["bytes_pushed"], 0.1 * worker["gradient_bytes"])
        self.assertGreater(worker["changes_pulled"], 50)
        raw = self.report("--compression=none", "--threshold=0")[0]["worker0"]
        self.assertEqual(raw["gradient_bytes"], raw["bytes_pushed"])
        self.assertGreater(raw["bytes_shared"], 1.5 * raw["gradient_bytes"])
        self.assertEqual(
            0,
            self.report("--compression=none", "--threshold=0", "--same_host=tcp")[0]["worker0"][
                "bytes_shared"
            ],
        )

    def test_servers_may_write_snapshots(self):
        report, result = self.report("--snapshot_every=1", "--servers=2")
        self.assertTrue(report["workers_are_identical"])
        self.assertGreater(report["round_ms"], 0)
        self.assertIn("a snapshot every 1 s", result.stdout)

    def test_thresholds_are_measured_again_and_again(self):
        self.assertGreater(self.report("--remeasure_every=8")[0]["worker0"]["decisions"], 1)

    def test_a_single_round_is_a_run(self):
        result = bench("--tensors=1x100", "--rounds=1", "--workers=1", "--most_growth=0")
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertIn("1 rounds, 1 workers, 1 servers", result.stdout)


if __name__ == "__main__":
    unittest.main()
