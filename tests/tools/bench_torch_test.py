# SPDX-License-Identifier: Apache-2.0
"""slimps bench torch: its flags, its figures and tables, and the model of --accelerator.

Short runs where network namespaces can be made.
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
from bench.torch import torch_systems
from bench.torch import torch_tables as tables
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
        "results": tables.results_of(options, measured),
    }


def waited_report(*jobs_of_systems):
    """Returns the report of --accelerator=161 at 1 Gbit/s, from (system, its jobs' reports)."""
    options = settled("--accelerator=161")
    measured = {
        (system, None): [tables.figures_of(reports, 161.0, options.bits, 2) for reports in jobs]
        for system, jobs in jobs_of_systems
    }
    return {**report(options, measured), "accelerator_ms": 161.0}


def worker(median_ms, sent=1e6, received=1e6, cpu_ms=20.0, **rest):
    return {
        "iteration_ms": median_ms + 1,
        "median_iteration_ms": median_ms,
        "wire_bytes_out": sent,
        "wire_bytes_in": received,
        "cpu_ms": cpu_ms,
        **rest,
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
            (["--accelerator=0"], "--accelerator: expected 1 to 3600000.0, got \"0\""),
            (["--accelerator=161", "--batch=8"], "--batch: expected none with --accelerator"),
            (
                ["--accelerator=161", "--systems=powersgd"],
                "--systems: expected some of alone,gloo,gloo_fp16,",
            ),
            (["--systems=powersgd_4"], "--systems: expected some of alone,gloo,powersgd,slimps"),
        ):
            self.assertIn(complaint, self.refused(*arguments))

    def test_defaults_are_what_the_figures_are_of(self):
        options = settled()
        self.assertEqual(
            ([8, 64], list(torch_systems.TRAINED), 12, 1e9, 2),
            (options.batch, options.systems, options.steps, options.bits, options.nodes),
        )
        options = settled("--accelerator=161", "--link=unshaped")
        self.assertEqual(
            ([None], list(torch_systems.WAITED_FOR), 30, None),
            (options.batch, options.systems, options.steps, options.bits),
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
        _, gloo, ours = tables.results_of(settled(), alone | self.MEASURED)
        self.assertAlmostEqual(204 / 170, ours["of_alone"])
        self.assertEqual(
            (410.0, 1.0, None),
            (gloo["iteration_ms"], gloo["speedup_over_gloo"], gloo["bytes_pushed"]),
        )
        self.assertAlmostEqual(2 * 8 / 0.204, ours["samples_per_s"])
        self.assertAlmostEqual(410 / 204, ours["speedup_over_gloo"])
        self.assertEqual([200.0, 204.0, 300.0], ours["iteration_ms_of_repeats"])

    def test_without_gloo_there_is_nothing_to_compare_with(self):
        (ours,) = tables.results_of(settled(), {("slimps_fp32", 64): [job(900.0)]})
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


class BoundTest(unittest.TestCase):
    def test_a_bound_is_the_largest_of_its_parts(self):
        for reports, parts in (
            ([worker(170.0), worker(180.0)], (8.0, 20.0, 161.0)),
            # The busiest node's slower direction counts.
            ([worker(900.0, 1e8, 2e7), worker(910.0, 5e7, 1.1e8)], (880.0, 20.0, 880.0)),
            # All processes' time is spread over both cores.
            ([worker(400.0, cpu_ms=500.0), worker(390.0, cpu_ms=100.0)], (8.0, 300.0, 300.0)),
        ):
            [row] = waited_report(("slimps_fp32", [reports]))["results"]
            self.assertEqual(
                (161.0,) + parts,
                (row["accelerator_ms"], row["wire_ms"], row["cores_ms"], row["bound_ms"]),
            )
            self.assertEqual(
                max(each["median_iteration_ms"] for each in reports), row["iteration_ms"]
            )

    def test_an_unshaped_link_takes_no_time(self):
        self.assertEqual(0.0, tables.figures_of([worker(1.0)], 161.0, None, 2)["wire_ms"])

    def test_starts_have_a_median_and_a_range(self):
        starts = [[worker(ms), worker(ms - 5)] for ms in (175.0, 240.0, 180.0)]
        [row] = waited_report(("slimgc_1bit_2way", starts))["results"]
        self.assertEqual(
            (180.0, 175.0, 240.0),
            (row["iteration_ms"], row["iteration_ms_min"], row["iteration_ms_max"]),
        )
        self.assertEqual([175.0, 240.0, 180.0], row["iteration_ms_of_repeats"])

    def test_powersgd_is_shown_as_run_and_with_its_arithmetic_charged(self):
        def start(ms, charged):
            return [worker(ms, cpu_ms=400.0, charged_iteration_ms=charged)] * 2

        made = waited_report(
            ("gloo", [[worker(900.0)] * 2]),
            ("powersgd_4", [start(500.0, 200.0), start(520.0, 180.0), start(480.0, 190.0)]),
        )
        report_tables.check(made)
        page = report_tables.markdown(made)
        beside = "| 500.0 | 480.0 to 520.0 | 400.0 | 1.25 | 161.0 | 8.0 | 400.0 | 1.80 |"
        self.assertIn("| powersgd_4 " + beside, page)
        beside = "| 190.0 | 180.0 to 200.0 | 161.0 | 1.18 | 161.0 | 8.0 |  | 4.74 |"
        self.assertIn("| powersgd_4, arithmetic charged " + beside, page)
        self.assertNotIn("gloo, arithmetic", page)
        made["results"][0]["wire_ms"] = None
        with self.assertRaisesRegex(ValueError, r"results\[0\].wire_ms: expected a number"):
            report_tables.check(made)


class RunTest(folder_case.FolderCase):
    KINDS = [
        "alone",
        "gloo",
        "gloo_fp16",
        "gloo_delayed",
        "powersgd_1",
        "slimps_bf16",
        "slimgc_1bit_2way",
        "slimps_powersgd_4_2way",
        "slimgc_powersgd_1_2way",
    ]

    def measured(self, *flags):
        """Returns what the bench reports of a real run of two steps."""
        reason = net.why_not("cubic")
        if reason:
            self.skipTest(reason)
        command = [
            *("--steps=2", "--repeats=1", "--json=" + self.path("t.json")),
            "--programs=" + os.getcwd(),  # laid out as bazel-bin is
            "--python=" + os.environ["SLIMPS_TORCH2_PYTHON"],
        ]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(0, bench.main([*command, *flags]), out.getvalue())
        return json.loads(self.get("t.json"))

    def test_all_systems_train(self):
        python = os.environ["SLIMPS_TORCH2_PYTHON"]
        if subprocess.run(
            [python, "-c", "import torchvision"], stderr=subprocess.DEVNULL
        ).returncode:
            self.skipTest("the environment of tests has no torchvision")
        rows = {row["system"]: row for row in self.measured("--batch=2", "--warmup=1")["results"]}
        self.assertEqual(list(torch_systems.TRAINED), list(rows))
        raw = 4 * 11173962  # ResNet-18's parameters, of 10 classes, for images of 32 x 32
        # Two steps; one may be counted late.
        self.assertAlmostEqual(raw, rows["slimps_fp32"]["bytes_pushed"], delta=raw / 2)
        self.assertLess(rows["slimps_1bit"]["bytes_pushed"], raw / 15)
        self.assertLess(rows["slimps_1bit_2way"]["bytes_pulled"], raw / 10)
        self.assertGreater(rows["slimps_1bit"]["bytes_pulled"], raw / 3)

    def test_beside_an_accelerator_each_kind_of_system_exchanges(self):
        systems = "--systems=" + ",".join(self.KINDS)
        made = self.measured("--accelerator=30", systems, "--link=unshaped", "--warmup=2")
        report_tables.check(made)
        rows = {row["system"]: row for row in made["results"]}
        self.assertEqual(self.KINDS, list(rows))
        for row in rows.values():
            self.assertGreaterEqual(row["iteration_ms"], 30.0, row["system"])
            self.assertGreater(row["cores_ms"], 0.0, row["system"])
            self.assertEqual("powersgd_" in row["system"][:9], "charged_iteration_ms" in row)
        raw = 4 * 25557032
        # slimps sends half of a push and, from the server beside it, half of a pull: the rest stays
        # on the node. Two workers of a ring send each half twice.
        for system, sent in (("gloo", raw), ("gloo_fp16", raw / 2), ("slimps_bf16", raw / 2)):
            self.assertAlmostEqual(sent, rows[system]["wire_bytes_out"], delta=raw / 4, msg=system)
        for system in ("powersgd_1", "slimps_powersgd_4_2way", "slimgc_1bit_2way"):
            self.assertLess(rows[system]["wire_bytes_out"], raw / 10, system)
        self.assertLess(rows["alone"]["wire_bytes_out"], raw / 1000)

    def test_four_nodes_exchange_over_links_with_a_round_trip(self):
        # Both wait for two trips after backward: for a push and its pull, and for two reductions.
        systems = ["slimps_1bit_2way", "powersgd_1"]
        made = self.measured(
            *("--nodes=4", "--accelerator=30", "--warmup=2", "--link=unshaped", "--rtt_ms=40"),
            "--systems=" + ",".join(systems),
        )
        report_tables.check(made)
        self.assertEqual(
            ("torch unshaped rtt 40ms accelerator 4 nodes", 40.0), (made["bench"], made["rtt_ms"])
        )
        self.assertGreaterEqual(made["measured_rtt_ms"], 40.0)
        self.assertEqual(systems, [row["system"] for row in made["results"]])
        for row in made["results"]:
            self.assertGreaterEqual(row["iteration_ms"], 30.0 + 40.0, row["system"])

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
