# SPDX-License-Identifier: Apache-2.0
"""slimps bench low_rank: short real runs of both sides, and wrong flags. Speed is not judged."""

import contextlib
import io
import json
import os
import unittest

import folder_case
from bench.low_rank import low_rank_bench
from cli import setup

PROGRAMS = "--programs=" + os.path.abspath(".")  # the runfiles, where tests start
SMALL = (PROGRAMS, "--rows=96", "--columns=80", "--runs=2", "--turns=2")


class LowRankTest(folder_case.FolderCase):
    def bench(self, *arguments):
        said, complained = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            try:
                status = low_rank_bench.main(list(arguments))
            except SystemExit as ended:
                status = ended.code
        return status, said.getvalue(), complained.getvalue()

    def test_both_are_timed_in_one_run(self):
        status, said, complained = self.bench(*SMALL, "--json", self.path("report.json"))
        self.assertEqual(0, status, complained)
        report = json.loads(self.get("report.json"))
        self.assertAlmostEqual(report["slimps_ms"] / report["torch_ms"], report["of_torch"])
        for side in ("slimps", "torch"):
            low, high = report[side + "_range_ms"]
            self.assertLess(0, low)
            self.assertTrue(low <= report[side + "_ms"] <= high)
        self.assertIn("powersgd rank 4, 96 x 80, one thread", said)
        self.assertIn("torch, " + report["library"], said)

    def test_a_rank_that_does_not_shrink_the_matrix_is_refused(self):
        with self.assertRaisesRegex(
            setup.SetupError, "rank 64 does not shrink a matrix of 96 x 80"
        ):
            self.bench(*SMALL, "--rank=64")

    def test_a_python_without_torch_is_named(self):
        with self.assertRaisesRegex(setup.SetupError, "cannot run /no/python"):
            self.bench(*SMALL, "--python=/no/python")

    def test_wrong_flags_are_refused_by_name(self):
        for arguments, words in (
            (("--rank=0",), '--rank: expected 1 to 64, got "0"'),
            (("--row=5",), "did you mean --rows?"),
            (("--json=/no/such/folder/x.json",), "--json: cannot write /no/such/folder/x.json"),
        ):
            status, _, complained = self.bench(*arguments)
            self.assertEqual(2, status)
            self.assertIn(words, complained)


if __name__ == "__main__":
    unittest.main()
