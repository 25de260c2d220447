# SPDX-License-Identifier: Apache-2.0
"""slimps simulate with a program in its place that is told which seeds fail."""

import contextlib
import io
import json
import os
import unittest

import folder_case
from cli import simulate

# Seeds over 5 fail, with "first" those over 2, with "second" none. Seed 20 makes other choices each
# time.
PROGRAM = """#!/bin/sh
if [ "$1" = --list_mutants ]; then echo first; echo second; exit 0; fi
most=5
case "$*" in *--mutant\\ first*) most=2;; *--mutant\\ second*) most=1000;; esac
if [ "$2" -gt "$most" ]; then echo "FAILED: seed $2" >&2; exit 3; fi
if [ "$2" = 20 ]; then echo $$; else echo "a run"; fi
"""


class SimulateTest(folder_case.FolderCase):
    def setUp(self):
        super().setUp()
        os.makedirs(os.path.join(self.folder, os.path.dirname(simulate.PROGRAM)))
        self.put(simulate.PROGRAM, PROGRAM)
        os.chmod(self.path(simulate.PROGRAM), 0o755)

    def simulate(self, *arguments):
        """Returns (status, what was printed)."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                status = simulate.main(list(arguments) + ["--programs", self.folder])
            except SystemExit as ended:
                status = ended.code
        return status, printed.getvalue()

    def report(self, *arguments):
        self.simulate("--json", self.path("out.json"), *arguments)
        return json.loads(self.get("out.json"))

    def test_seeds_that_pass(self):
        status, printed = self.simulate("--seeds", "5")
        self.assertEqual((0, "5 seeds: 0 failed, 0 whose two runs differ\n"), (status, printed))

    def test_the_first_failure_is_shown_with_what_repeats_it(self):
        status, printed = self.simulate("--seeds", "8", "--workers", "2", "--servers", "1")
        self.assertEqual(1, status)
        self.assertIn("FAILED: seed 6\n", printed)
        self.assertIn("\nseed 7 failed: FAILED: seed 7\n", printed)
        self.assertEqual(1, printed.count("to repeat it"))
        self.assertIn(
            "tools/slimps simulate --seeds 1 --from 6 --workers 2 --servers 1 --trace\n", printed
        )
        self.assertIn("8 seeds: 3 failed", printed)

    def test_the_report(self):
        self.assertEqual(
            {
                "seeds": 2,
                "failed": 0,
                "trace_mismatches": 0,
                "faults": {},
                "mutants": [
                    {"name": "first", "seeds_until_caught": 3},
                    {"name": "second", "seeds_until_caught": None},
                ],
            },
            self.report("--seeds", "2", "--mutants"),
        )
        self.put(simulate.PROGRAM, PROGRAM.replace("a run", "fault torn write any 7"))
        self.assertEqual({"torn write": {"any": 21}}, self.report("--seeds", "3")["faults"])
        self.assertEqual(3, self.report("--seeds", "8")["failed"])

    def test_two_runs_that_differ_are_counted(self):
        status, printed = self.simulate("--mutant", "second", "--from", "20", "--seeds", "1")
        self.assertEqual(1, status)
        self.assertIn("seed 20: two runs made different choices", printed)

    def test_a_mutant_that_is_not_caught_is_a_failure(self):
        status, printed = self.simulate("--seeds", "1", "--mutants")
        self.assertEqual(1, status)
        self.assertIn("mutant first: caught by seed 3\nmutant second: NOT caught\n", printed)

    def test_what_the_program_printed_is_shown_with_its_status(self):
        self.put(simulate.PROGRAM, PROGRAM.replace("exit 3", "echo a node; exit 4"))
        printed = self.simulate("--from", "6", "--seeds", "1")[1]
        self.assertIn("a node\nFAILED: seed 6\nstatus 4\nseed 6 failed", printed)

    def test_what_cannot_be_is_refused(self):
        for arguments, why in (
            (["--workers", "3"], "expected a power of two, got 3"),
            (["--mutant", "third"], 'expected one of first, second, got "third"'),
            (["--seeds", "0"], "--seeds"),
            (["--trace"], "--trace: expected --seeds 1"),
            (["--json", self.path("no/folder/out.json")], "--json"),
        ):
            status, printed = self.simulate(*arguments)
            self.assertEqual(2, status, arguments)
            self.assertIn(why, printed)


if __name__ == "__main__":
    unittest.main()
