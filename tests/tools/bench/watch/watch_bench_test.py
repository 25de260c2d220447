# SPDX-License-Identifier: Apache-2.0
"""slimps bench watch: flags, arithmetic, and a short real run. No figure of time is judged."""

import argparse
import contextlib
import io
import json
import os
import unittest
from unittest import mock

import folder_case
from bench.watch import watch_bench
from bench.watch import watched_job
from cli import setup

PROGRAMS = os.path.abspath(".")  # the runfiles, where tests start
DIRECT = {
    "scrapes": 3,
    "scrape_ms": 2.0,
    "scrape_cpu_ms": 0.5,
    "scrape_share": 0.002,
    "scheduler_cpu_share_quiet": 0.01,
    "scheduler_cpu_share_watched": 0.02,
}


def window(steps_per_s, scrapes=0, events=0):
    return watched_job.Window(steps_per_s, 0.0, scrapes, events)


class WatchCase(folder_case.FolderCase):
    def bench(self, *arguments):
        """Returns (exit status, stdout, stderr)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = watch_bench.main(["--programs=" + PROGRAMS, *arguments])
            except SystemExit as end:
                status = end.code
        return status, out.getvalue(), err.getvalue()


class FlagsTest(WatchCase):
    def test_wrong_flags_are_refused_by_name(self):
        for flag, words in (
            ("--scrapes=0", '--scrapes: expected 1 to 1000000, got "0"'),
            ("--repeats=1001", '--repeats: expected 1 to 1000, got "1001"'),
            ("--seconds=0.5", '--seconds: expected 1 to 3600, got "0.5"'),
            ("--repeat=2", "did you mean --repeats?"),
            ("--json=/no/such/folder/x.json", "--json: cannot write /no/such/folder/x.json"),
        ):
            status, _, said = self.bench(flag)
            self.assertEqual(2, status, flag)
            self.assertIn(words, said)


class FiguresTest(WatchCase):
    def test_a_pair_is_the_watched_speed_over_the_other(self):
        self.assertEqual(
            {
                "unwatched_steps_per_s": 200.0,
                "watched_steps_per_s": 190.0,
                "ratio": 0.95,
                "scrapes": 14,
                "events": 13,
            },
            watch_bench.pair_of(window(200.0), window(190.0, 14, 13)),
        )

    def test_a_job_without_a_step_is_no_pair(self):
        with self.assertRaisesRegex(setup.SetupError, "no step in --seconds"):
            watch_bench.pair_of(window(0.0), window(190.0))

    def test_the_scatter_is_the_median_distance_from_the_median(self):
        pairs = [watch_bench.pair_of(window(100.0), window(speed)) for speed in (90, 99, 101)]
        report = watch_bench.report_of(argparse.Namespace(seconds=14), DIRECT, pairs)
        self.assertAlmostEqual(0.99, report["median_ratio"])
        self.assertAlmostEqual(0.02, report["mad"])
        text = watch_bench.text(report)
        self.assertIn("median ratio 0.9900 (median absolute deviation 0.0200)", text)
        self.assertIn("one scrape: 2.000 ms (median of 3), so 0.200 % of each second", text)
        self.assertIn("1.000 % of a core, watched 2.000 %", text)

    def test_the_jobs_of_pairs_take_turns_at_being_first(self):
        order = []

        def job_of(name):
            return lambda *_: order.append(name) or window(100.0)

        with mock.patch.object(
            watch_bench, "measure_watched", job_of("watched")
        ), mock.patch.object(watch_bench, "measure_unwatched", job_of("unwatched")):
            for number in range(2):
                watch_bench.measure_pair(None, None, number)
        self.assertEqual(["unwatched", "watched", "watched", "unwatched"], order)


class RunTest(WatchCase):
    def test_every_pair_is_scraped_each_second_and_brings_events(self):
        path = self.path("out.json")
        status, out, err = self.bench("--scrapes=3", "--repeats=2", "--seconds=2", "--json=" + path)
        self.assertEqual(0, status, err)
        report = json.loads(self.get("out.json"))
        self.assertEqual(out, watch_bench.text(report) + "\n")
        self.assertLessEqual(DIRECT.keys() | {"median_ratio", "mad"}, report.keys())
        self.assertEqual(3, report["scrapes"])
        self.assertEqual(report["scrape_ms"] / 1000, report["scrape_share"])
        self.assertEqual([2, 2], [pair["scrapes"] for pair in report["pairs"]])
        for pair in report["pairs"]:
            self.assertGreater(pair["events"], 0)
            self.assertGreater(pair["watched_steps_per_s"], 0)

    def test_an_address_where_nothing_is_served_is_an_error(self):
        with self.assertRaisesRegex(setup.SetupError, "http://127.0.0.1:1: no answer"):
            watched_job.get("127.0.0.1:1", "/metrics")


if __name__ == "__main__":
    unittest.main()
