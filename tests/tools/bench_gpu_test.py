# SPDX-License-Identifier: Apache-2.0
"""slimps bench gpu: its flags, a machine without a GPU, its tables.

tests/python/pytorch/torch_gpu_bench_test.py runs its jobs.
"""

import contextlib
import io
import json
import os
import unittest

import folder_case
from bench import report_tables
from bench.gpu import gpu_bench as bench
from bench.gpu import gpu_tables
from cli import setup


def run(*arguments):
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            status = bench.main(list(arguments))
        except SystemExit as ended:
            status = ended.code
    return status, said.getvalue(), complained.getvalue()


class FlagsTest(unittest.TestCase):
    def test_what_makes_no_sense_is_named(self):
        for arguments, words in (
            (["--models=vgg16"], '--models: expected some of resnet50,transformer,small_resnet'),
            (["--systems=alone,horovod"], "--systems: expected some of alone,device_1bit"),
            (["--systems=alone,alone"], "is there twice"),
            (["--steps=0"], "expected 1 to 100000"),
            (["--thresold=5"], "did you mean --threshold?"),
            (["--json=/no/such/x.json"], "--json: cannot write /no/such/x.json"),
        ):
            status, _, complained = run(*arguments)
            self.assertEqual(2, status)
            self.assertIn(words, complained)

    def test_quick_is_small(self):
        parser = bench.make_parser()
        options = parser.parse_args(["--quick"])
        bench.settle(parser, options)
        self.assertEqual(["small_resnet", "small_transformer"], options.models)
        jobs = bench.jobs_of(options)
        self.assertIn(bench.Job("small_resnet", "device_2bit", 1), jobs)
        self.assertNotIn(bench.Job("small_resnet", "device_2bit", 2), jobs)


class NoGpuTest(folder_case.FolderCase):
    def python_that(self, does):
        path = self.put("python", "#!/bin/sh\n%s\n" % does)
        os.chmod(path, 0o700)
        return "--python=" + path

    def test_a_machine_without_one_says_so_and_ends_well(self):
        for does, reason in (
            ("""echo '{"why_not": "torch 2 finds no CUDA device"}'""", "torch 2 finds no CUDA"),
            ("echo \"No module named 'torch'\" >&2; exit 1", "python: No module named 'torch'"),
        ):
            status, said, _ = run(self.python_that(does), "--json=" + self.path("report.json"))
            self.assertEqual(0, status)
            self.assertRegex(said, "^no GPU is here: .*" + reason)
            self.assertEqual(1, len(said.splitlines()))
            report = json.loads(self.get("report.json"))
            self.assertIsNone(report["gpu"])
            report_tables.check(report)
            self.assertIn(reason, report_tables.markdown(report))

    def test_a_python_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(setup.SetupError, "cannot run /no/python"):
            run("--python=/no/python")


def answer(step_ms, peak, **figures):
    return {
        "step_ms_of_repeats": [step_ms, step_ms + 1, step_ms - 1],
        "peak_bytes": peak << 20,
        "bytes_in_use": 2 * peak << 20,
        **figures,
    }


COPIES = {"copies_ms": 6.0, "encode_ms": 4.0, "wait_ms": 1.0}
ANSWERS = {
    ("alone", 1): [answer(50.0, 1000)],
    ("device_1bit", 1): [answer(51.0, 1100, kernels_ms=0.25)],
    ("slimps_1bit", 1): [answer(52.5, 1000, **COPIES)],
    ("ddp_fp32", 2): [answer(90.0, 1200), answer(100.0, 1201)],
    ("ddp_bf16", 2): [{"why_not": "Invalid scalar type"}] * 2,
    ("slimps_1bit", 2): [answer(80.0, 1000, **COPIES), answer(70.0, 1000, **COPIES)],
}
REPORT = {
    "bench": "gpu",
    **{"gpu": "Some GPU", "gpus": 1, "driver": "580.1", "cuda": "13.0", "torch": "2.13.0"},
    **{"backend": "gloo", "batch": 32, "steps": 20, "repeats": 3, "threshold": 4096},
    "results": [
        bench.row_of(bench.Job("resnet50", system, workers), answers)
        for (system, workers), answers in ANSWERS.items()
    ],
}


class FiguresTest(unittest.TestCase):
    def test_of_several_workers_the_slowest_and_the_largest_count(self):
        row = REPORT["results"][3]
        self.assertEqual((100.0, 1201 << 20), (row["step_ms"], row["peak_bytes"]))
        self.assertIsNone(row["kernels_ms"])

    def test_what_hides(self):
        alone, slow, fast = {"step_ms": 50.0}, {"step_ms": 70.0}, {"step_ms": 49.0}
        work = {"copies_ms": 6.0, "encode_ms": 4.0}
        self.assertEqual(0.0, gpu_tables.hidden_part({**slow, **work}, alone))
        self.assertEqual(1.0, gpu_tables.hidden_part({**fast, **work}, alone))
        nothing = {"copies_ms": 0.0, "encode_ms": 0.0}
        self.assertIsNone(gpu_tables.hidden_part({**fast, **nothing}, alone))

    def test_tables(self):
        report_tables.check(REPORT)
        page = report_tables.markdown(REPORT)
        for line in (
            "| device_1bit | 1100.0 | 100.0 | 2200.0 |",
            "| device_1bit | 0.250 |  |",
            "| slimps_1bit |  | 6.000 |",
            "| slimps_1bit | 6.00 | 4.00 | 52.50 | 2.50 | 75 % |",
            "### resnet50, 2 workers, DDP over gloo",
            "| slimps_1bit | 80.00 | 1.25 |",
        ):
            self.assertIn(line, page)
        self.assertIn("Some GPU (1 here), driver 580.1, CUDA 13.0, torch 2.13.0, batch 32", page)
        self.assertIn("ddp_bf16 of resnet50 could not run (Invalid scalar type).", page)

    def test_a_field_that_is_wrong_is_named(self):
        wrong = json.loads(json.dumps(REPORT))
        wrong["results"][0]["system"] = "horovod"
        with self.assertRaisesRegex(ValueError, r"results\[0\].system: expected one of alone"):
            report_tables.check(wrong)


if __name__ == "__main__":
    unittest.main()
