# SPDX-License-Identifier: Apache-2.0
"""slimps bench torch: its flags, its figures and tables.

A short run where network namespaces can be made.
"""

import contextlib
import io
import json
import os
import subprocess
import unittest
from unittest import mock

import folder_case
from bench.cluster import net
from bench import report_tables
from bench.torch import torch_bench as bench
from cli import setup


def settled(*arguments):
    parser = bench.make_parser()
    options = parser.parse_args(arguments)
    bench.settle(parser, options)
    return options


def job(iteration_ms, **rest):
    return {"iteration_ms": iteration_ms, "median_iteration_ms": iteration_ms, **rest}


def report(options, measured):
    return {
        "bench": "torch 1gbit",
        "link": "1gbit",
        "nodes": 2,
        "steps": 12,
        "repeats": 3,
        "threshold": "4096",
        "cores": 2,
        "results": bench.results_of(options, measured),
    }


class FlagsTest(unittest.TestCase):
    def refused(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch.object(
            net, "run", side_effect=AssertionError
        ):
            with self.assertRaises(SystemExit) as ended:
                bench.main(list(arguments))
        self.assertEqual(2, ended.exception.code, said.getvalue())
        return said.getvalue().splitlines()[-1]

    def test_what_makes_no_sense_is_named(self):
        for arguments, complaint in (
            (["--link=fast"], "--link: expected a rate such as 1gbit"),
            (
                ["--systems=gloo,horovod"],
                "--systems: expected some of alone,gloo,powersgd,slimps_fp32",
            ),
            (["--systems=gloo,gloo"], "is there twice"),
            (["--batch=8,0"], "--batch: expected numbers from 1 to 65536, got \"0\""),
            (["--batch=many"], "got \"many\""),
            (["--threshold=-1"], "--threshold: expected bytes or auto, got \"-1\""),
            (["--steps=0"], "expected 1 to 100000"),
            (["--system=gloo"], "did you mean --systems?"),
            (["--json=/no/such/x.json"], "--json: cannot write /no/such/x.json"),
        ):
            self.assertIn(complaint, self.refused(*arguments))

    def test_defaults_are_what_the_figures_are_of(self):
        options = settled()
        self.assertEqual(
            ([8, 64], list(bench.SYSTEMS), "1gbit", 2),
            (options.batch, options.systems, options.link, options.nodes),
        )


class FiguresTest(unittest.TestCase):
    MEASURED = {
        ("gloo", 8): [job(400.0), job(420.0), job(410.0)],
        ("slimps_1bit_2way", 8): [
            job(200.0, bytes_pushed=1.4e6, bytes_pulled=1.5e6, wait_ms=3.0),
            job(204.0, bytes_pushed=1.4e6, bytes_pulled=1.5e6, wait_ms=4.0),
            job(300.0, bytes_pushed=1.4e6, bytes_pulled=1.5e6, wait_ms=5.0),
        ],
    }

    def test_medians_and_what_they_are_beside_gloo(self):
        alone = {("alone", 8): [job(170.0)]}
        _, gloo, ours = bench.results_of(settled(), alone | self.MEASURED)
        self.assertAlmostEqual(204 / 170, ours["of_alone"])
        self.assertEqual(
            (410.0, 1.0, None),
            (gloo["iteration_ms"], gloo["speedup_over_gloo"], gloo["bytes_pushed"]),
        )
        self.assertAlmostEqual(2 * 8 / 0.204, ours["samples_per_s"])
        self.assertAlmostEqual(410 / 204, ours["speedup_over_gloo"])
        self.assertEqual([200.0, 204.0, 300.0], ours["iteration_ms_of_repeats"])

    def test_without_gloo_there_is_nothing_to_compare_with(self):
        (ours,) = bench.results_of(settled(), {("slimps_fp32", 64): [job(900.0)]})
        self.assertIsNone(ours["speedup_over_gloo"])

    def test_the_bar_is_met_or_missed(self):
        made = report(settled(), self.MEASURED)
        self.assertIn("2.00 x met", report_tables.text(made))
        slow = dict(self.MEASURED)
        slow[("gloo", 8)] = [job(300.0)]
        page = report_tables.markdown(report(settled(), slow))
        self.assertIn(
            "| slimps_1bit_2way | 8 | 78.4 | 204.0 |  | 1.47 | 1.40 | 1.50 | 2.00 x MISSED |", page
        )
        report_tables.check(made)
        made["results"][0]["system"] = "horovod"
        with self.assertRaisesRegex(ValueError, r"results\[0\].system: expected one of alone"):
            report_tables.check(made)


class RunTest(folder_case.FolderCase):
    def test_all_systems_train(self):
        python = os.environ["SLIMPS_TORCH2_PYTHON"]
        if subprocess.run(
            [python, "-c", "import torchvision"], stderr=subprocess.DEVNULL
        ).returncode:
            self.skipTest("the environment of tests has no torchvision")
        reason = net.why_not("cubic")
        if reason:
            self.skipTest(reason)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = bench.main(
                [
                    "--batch=2",
                    "--steps=2",
                    "--warmup=1",
                    "--repeats=1",
                    "--programs=" + os.getcwd(),  # laid out as bazel-bin is
                    "--python=" + python,
                    "--json=" + self.path("t.json"),
                ]
            )
        self.assertEqual(0, status, out.getvalue())
        rows = {row["system"]: row for row in json.loads(self.get("t.json"))["results"]}
        self.assertEqual(list(bench.SYSTEMS), list(rows))
        raw = 4 * 11173962  # ResNet-18's parameters, of 10 classes, for images of 32 x 32
        # Two steps; one may be counted late.
        self.assertAlmostEqual(raw, rows["slimps_fp32"]["bytes_pushed"], delta=raw / 2)
        self.assertLess(rows["slimps_1bit"]["bytes_pushed"], raw / 15)
        self.assertLess(rows["slimps_1bit_2way"]["bytes_pulled"], raw / 10)
        self.assertGreater(rows["slimps_1bit"]["bytes_pulled"], raw / 3)

    def test_who_fails_is_named(self):
        reason = net.why_not("cubic")
        if reason:
            self.skipTest(reason)
        with mock.patch.object(
            bench, "WORKER", self.put("fails.py", "raise SystemExit('no such model')")
        ), contextlib.redirect_stderr(io.StringIO()):
            with self.assertRaisesRegex(setup.SetupError, "(?s)worker.*no such model"):
                bench.main(
                    [
                        "--systems=gloo",
                        "--batch=2",
                        "--repeats=1",
                        "--programs=" + os.getcwd(),
                        "--python=/usr/bin/python3",
                    ]
                )


if __name__ == "__main__":
    unittest.main()
