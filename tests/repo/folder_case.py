# SPDX-License-Identifier: Apache-2.0
"""A test case with a folder of its own."""

import os
import tempfile
import unittest


class FolderCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def get(self, name):
        with open(self.path(name), encoding="utf-8") as text:
            return text.read()
