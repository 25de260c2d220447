# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest

import source_tree

from cli import lint_python

GOOD = "import os\n\nprint(os.sep)\n"


class PythonFormat(unittest.TestCase):
    def test_every_python_file_is_formatted_and_lint_clean(self):
        paths = lint_python.python_files(source_tree.files())
        self.assertIn("tests/repo/python_format_test.py", paths)
        self.assertIn("python/slimps/native/store.py", paths)
        self.assertEqual([], lint_python.python_findings(paths))

    def test_planted_mistakes_are_found(self):
        for text, finding in (
            (GOOD, None),
            (GOOD.replace("(os", "( os"), "run: /usr/bin/black "),
            (GOOD + "print(", "cannot format"),
            (GOOD + "import sys\n", "F401 'sys' imported but unused"),
            (GOOD + "# %s\n" % ("x " * 49 + "x"), "E501 line too long (101 > 100 characters)"),
        ):
            with self.subTest(finding), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "planted.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                found = "\n".join(lint_python.python_findings([path]))
                if finding is None:
                    self.assertEqual("", found)
                else:
                    self.assertIn(finding, found)
                    self.assertIn("planted.py", found)


if __name__ == "__main__":
    unittest.main()
