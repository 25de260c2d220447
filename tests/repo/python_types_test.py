# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import tempfile
import unittest

import source_tree

MYPY = "/usr/bin/mypy"  # Debian's, since another version may find other things
PLANTED = "import slimps\n\nstore: int = slimps.kv.create(\"local\")\n"


def findings(path, *arguments):
    return subprocess.run(
        [MYPY, "--cache-dir", os.devnull, "--no-error-summary", *arguments],
        cwd=source_tree.REPOSITORY,
        env={**os.environ, "MYPYPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


class PythonTypes(unittest.TestCase):
    def test_annotations_hold_and_a_planted_mistake_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            planted = os.path.join(folder, "planted.py")
            with open(planted, "w", encoding="utf-8") as file:
                file.write(PLANTED)
            found = findings("python", "python/slimps", planted)
        [finding] = found.splitlines()
        self.assertTrue(finding.startswith(planted + ":3: error: "), finding)
        self.assertIn("has type \"KVStore\", variable has type \"int\"", finding)

    def test_annotations_of_the_planner_hold(self):
        self.assertEqual("", findings("python:tools", "--explicit-package-bases", "tools/plan"))


if __name__ == "__main__":
    unittest.main()
