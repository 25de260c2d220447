# SPDX-License-Identifier: Apache-2.0
"""The programs in README.md run as printed there."""

import io
import os
import re
import tempfile
import unittest

import readme_blocks
from slimps_launch import job_launch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

README = os.path.join(ROOT, "README.md")
ENVIRONMENT = {
    "PYTHONPATH": os.path.join(os.getcwd(), "python", "package"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def launched(command, folder):
    """Runs a job of two workers in `folder`. Returns what it printed."""
    out = io.StringIO()
    job = job_launch.Job(
        ["scheduler/slimps_scheduler"],
        ["server/slimps_server"],
        ["/bin/sh", "-c", "cd %s && exec \"$@\"" % folder, "sh"] + command,
        2,
        2,
        ENVIRONMENT,
    )
    status = job_launch.Launcher(job, out=out).run()
    return status, out.getvalue()


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def run_well(self, *command):
        status, said = launched(list(command), self.folder)
        self.assertEqual(0, status, said)
        self.assertNotIn("Warning", said)
        return said

    def test_python(self):
        programs = readme_blocks.blocks(README, "python")
        self.assertEqual(2, len(programs), "the store's, and torch's")
        for program in programs:
            path = os.path.join(self.folder, "program.py")
            with open(path, "w", encoding="utf-8") as script:
                script.write(program)
            said = self.run_well(os.environ["SLIMPS_TORCH2_PYTHON"], "-u", path)
            printed = [
                float(number)
                for number in re.findall(r"worker0\| step \d+: .* ([\d.]+)$", said, re.MULTILINE)
            ]
            self.assertEqual(4, len(printed), said)
            self.assertLess(printed[-1], 0.5 * printed[0], "it learns")
        self.assertEqual({"program.py", "saved.pt"}, set(os.listdir(self.folder)))

    def test_cpp(self):
        said = self.run_well(os.path.abspath("tests/examples/readme_program"))
        found = re.findall(r"worker0\| w\[0\] is ([\d.]+), best is 1", said)
        self.assertEqual(1, len(found), said)
        self.assertAlmostEqual(1, float(found[0]), delta=1e-3)


if __name__ == "__main__":
    unittest.main()
