# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest
from unittest import mock

from cli import lint
from cli import setup

CLEAN = """#include <utility>
int* Take(int* from) { return std::exchange(from, nullptr); }
"""
MISTAKEN = (
    CLEAN
    + """struct Base { virtual ~Base() = default; virtual void Run() {} };
struct Derived : Base { virtual void Run() {} };
"""
)


class LintTest(unittest.TestCase):
    def test_bazels_compilations_become_clangs(self):
        words = ["/usr/bin/gcc", "-Werror", "-std=c++20", "-fno-canonical-system-headers", "-c"]
        actions = [
            {"arguments": words + [source, "-o", "out.o"]}
            for source in ("a/b.cc", "a/c.c", "bazel-out/k8/a.pb.cc")
        ]
        expected = ["clang++", "-Wno-unknown-warning-option", "-std=c++20", "-c", "a/b.cc"]
        self.assertEqual({"a/b.cc": expected + ["-o", "out.o"]}, lint.compile_commands(actions))

    def test_a_header_stands_for_its_source(self):
        sources = ["a/b.cc", "a/c.cc", "d.cc"]
        self.assertEqual(["a/b.cc", "d.cc"], lint.sources_of(["a/b.h", "d.cc", "a/c.md"], sources))

    def findings_in(self, text):
        """Returns what lint shows of a source of the tree's own checks."""
        shown = []
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "a.cc"), "w", encoding="utf-8") as file:
                file.write(text)
            os.symlink(
                os.path.join(setup.REPOSITORY, ".clang-tidy"), os.path.join(folder, ".clang-tidy")
            )
            with mock.patch.object(setup, "REPOSITORY", folder):
                bad = lint.lint(
                    ["a.cc"], {"a.cc": ["clang++", "-std=c++20", "-c", "a.cc"]}, shown.append
                )
        self.assertEqual(["a.cc"] if shown else [], bad)
        return "".join(shown)

    def test_a_clean_source(self):
        self.assertEqual("", self.findings_in(CLEAN))

    def test_a_bar_counts_the_sources(self):
        with mock.patch("cli.progress.Bar") as made:
            self.findings_in(CLEAN)
        made.assert_called_once_with(1, "sources")
        made.return_value.__enter__.return_value.advance.assert_called_once_with("a.cc")

    def test_a_planted_mistake(self):
        self.assertIn("modernize-use-override", self.findings_in(MISTAKEN))


if __name__ == "__main__":
    unittest.main()
