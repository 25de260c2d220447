# SPDX-License-Identifier: Apache-2.0
import subprocess
import unittest

import source_tree


def complaints_about(paths):
    """Returns what clang-format would change in files of the repository."""
    return subprocess.run(
        ["clang-format", "--dry-run", "-Werror"] + paths,
        cwd=source_tree.REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


class Format(unittest.TestCase):
    def test_every_cpp_file_is_as_clang_format_leaves_it(self):
        paths = source_tree.cpp_files()
        self.assertIn("proto/base/key.h", paths)
        result = complaints_about(paths)
        wrong = sorted(
            {line.split(":")[0] for line in result.stdout.splitlines() if "error:" in line}
        )
        self.assertEqual([], wrong, "run: clang-format -i " + " ".join(wrong))
        self.assertEqual(0, result.returncode, result.stdout)

    def test_a_badly_formatted_file_is_refused(self):
        result = subprocess.run(
            ["clang-format", "--dry-run", "-Werror", "--assume-filename=a.cc"],
            input="int  main( ){return 0 ;}\n",
            cwd=source_tree.REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertNotEqual(0, result.returncode)


if __name__ == "__main__":
    unittest.main()
