# SPDX-License-Identifier: Apache-2.0
"""slimps bench python: its flags, its figures and tables, and a short run."""

import contextlib
import io
import json
import os
import unittest

import folder_case
from bench.torch import python_bench as bench
from bench import report_tables


def start(cpp, python, own, by_tensor, cpp_push=10.0, push=11.5):
    """Returns the medians of one start, in the form that measure gives."""
    return dict(
        zip(bench.WORKERS, ([cpp, cpp_push], [python, None], [own, None], [by_tensor, push]))
    )


class FiguresTest(unittest.TestCase):
    def results(self, *starts):
        return {row["worker"]: row for row in bench.results_of(starts)}

    def test_starts_are_compared_with_themselves(self):
        rows = self.results(start(50, 51, 52, 53), start(60, 60.5, 66, 61), start(40, 44, 42, 47))
        self.assertEqual(50, rows["C++"]["round_ms"])
        self.assertIsNone(rows["C++"]["more_ms"])
        self.assertEqual([1, 0.5, 4], rows["Python"]["more_ms_of_starts"])
        self.assertEqual(1, rows["Python"]["more_ms"])
        self.assertEqual(2, rows["Python, numpy's memory"]["more_ms"])
        self.assertEqual(3, rows["Python, tensor by tensor"]["more_ms"])

    def test_pushes_are_compared_where_they_were_taken(self):
        rows = self.results(
            start(50, 51, 52, 53, push=11.5),
            start(50, 51, 52, 53, push=13.5),
            start(50, 51, 52, 53, push=12.5),
        )
        self.assertIsNone(rows["Python"]["more_push_ms"])
        self.assertEqual(2.5, rows["Python, tensor by tensor"]["more_push_ms"])
        self.assertEqual(12.5, rows["Python, tensor by tensor"]["push_ms"])

    def test_tables_say_what_is_met(self):
        report = {
            "bench": "python",
            "same_host": "shm",
            "rounds": 5,
            "repeats": 3,
            "starts": 1,
            "results": bench.results_of([start(50, 51.9, 52.1, 53)]),
        }
        text = bench.text(report)
        self.assertIn("1 starts of 3 times 5 rounds", text)
        lines = {line.split("  ")[1]: line for line in text.splitlines()[2:]}
        self.assertIn("at most 2 ms met", lines["Python"])
        self.assertIn("at most 2 ms MISSED", lines["Python, numpy's memory"])
        self.assertIn("at most 2 ms MISSED", lines["Python, tensor by tensor"])
        self.assertIn("11.50", lines["Python, tensor by tensor"])
        self.assertIn("at most 2 ms met", lines["Python, tensor by tensor"])  # its pushes
        report_tables.check(report)
        self.assertEqual(text.count("MISSED"), report_tables.markdown(report).count("MISSED"))


class RunTest(folder_case.FolderCase):
    def test_a_short_run(self):
        path = os.path.join(self.folder, "python.json")
        arguments = ["--starts=1", "--repeats=1", "--rounds=1", "--same_host=ipc", "--json=" + path]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(0, bench.main(arguments + ["--programs=" + os.getcwd()]))
        self.assertIn("tensor by tensor", said.getvalue())
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["results"]
        self.assertEqual(bench.WORKERS, [row["worker"] for row in rows])
        self.assertTrue(all(row["round_ms"] > 0 for row in rows))
        self.assertGreater(rows[0]["push_ms"], 0)

    def test_a_wrong_flag_is_named(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            bench.main(["--starts=0"])
        self.assertEqual(2, ended.exception.code)
        self.assertIn("--starts: ", said.getvalue())


if __name__ == "__main__":
    unittest.main()
