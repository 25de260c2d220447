# SPDX-License-Identifier: Apache-2.0
import unittest

import comments
import source_tree

GOOD = "// SPDX-License-Identifier: Apache-2.0\n// Returns the sum.\nint Sum();\n"


class Comments(unittest.TestCase):
    def test_every_cpp_file_keeps_the_rules(self):
        paths = source_tree.cpp_files()
        self.assertIn("proto/base/key.h", paths)
        complaints = [
            complaint
            for path in paths
            for complaint in comments.check_cpp(path, source_tree.read(path))
        ]
        self.assertEqual([], complaints)

    def test_planted_violations_are_found(self):
        self.assertEqual([], comments.check_cpp("a.h", GOOD))
        for planted in (
            GOOD.split("\n", 1)[1],
            GOOD + "// " + "x" * 98,
            GOOD + "  // Of the sum.",
            GOOD + " * Whether there is one.",
        ):
            self.assertEqual(1, len(comments.check_cpp("a.h", planted)), planted)


if __name__ == "__main__":
    unittest.main()
