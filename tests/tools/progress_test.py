# SPDX-License-Identifier: Apache-2.0
"""Bars are on stderr where that is a terminal, and nowhere else."""

import os
import pty
import subprocess
import sys
import unittest

from cli import progress

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(progress.__file__)))
COUNT = """
from cli import progress
with progress.Bar(3, "seeds") as bar:
    for seed in range(3):
        progress.say("seed %d" % seed)
        progress.note("note %d" % seed)
        bar.advance("none failed")
"""
CASES = """
from cli import progress
with progress.Bar(None, "cases") as bar:
    bar.show("worker0| [1/2] 1bit encode: 2.00 GB/s\\n")
    bar.show("a warning\\n")
    bar.show("[2/2] 1bit decode: failed: no memory\\n")
"""
REACHED = """
from cli import progress
with progress.Bar(None, "steps") as bar:
    bar.reach(40, 900, "2 kills")
"""
WITHOUT_TQDM = "import sys; sys.modules['tqdm'] = None"


def run(program, stderr):
    """Returns what the program writes to stdout, and to stderr if that is a pipe."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": TOOLS + "/../python:" + TOOLS},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def run_in_terminal(program):
    """Returns what the program writes to stdout, a pipe, and to stderr, a terminal."""
    ours, theirs = pty.openpty()
    try:
        printed, _ = run(program, theirs)
        os.set_blocking(ours, False)
        return printed, os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@unittest.skipIf(progress.tqdm is None, "needs Debian's python3-tqdm")
class TerminalTest(unittest.TestCase):
    def test_a_terminal_shows_a_bar_and_a_pipe_the_lines_alone(self):
        printed, shown = run_in_terminal(COUNT)
        self.assertEqual("seed 0\nseed 1\nseed 2\n", printed)
        self.assertIn("0/3", shown)
        self.assertIn("note 2\r\n", shown)

    def test_a_case_of_bench_codec_is_in_the_bar_and_an_error_is_a_line(self):
        shown = run_in_terminal(CASES)[1]
        self.assertIn("1/2", shown)
        self.assertIn("1bit encode", shown)
        self.assertNotIn("GB/s", shown)
        self.assertIn("a warning\r\n", shown)
        self.assertIn("[2/2] 1bit decode: failed: no memory\r\n", shown)

    def test_what_is_reached_is_shown_with_its_total(self):
        shown = run_in_terminal(REACHED)[1]
        self.assertIn("40/900", shown)
        self.assertIn("2 kills", shown)


class PipeTest(unittest.TestCase):
    def test_without_a_terminal_there_are_the_lines_alone(self):
        for first in ("", WITHOUT_TQDM):
            with self.subTest(first):
                printed, noted = run(first + COUNT, subprocess.PIPE)
                self.assertEqual("seed 0\nseed 1\nseed 2\n", printed)
                self.assertEqual("note 0\nnote 1\nnote 2\n", noted)
                self.assertEqual(
                    "worker0| [1/2] 1bit encode: 2.00 GB/s\na warning\n"
                    "[2/2] 1bit decode: failed: no memory\n",
                    run(first + CASES, subprocess.PIPE)[1],
                )
                self.assertEqual(("", ""), run(first + REACHED, subprocess.PIPE))


if __name__ == "__main__":
    unittest.main()
