# SPDX-License-Identifier: Apache-2.0
"""A folder of fake commands, first in PATH, which record their calls.

    with FakeCommands() as fake:
        fake.add("apt-get", "exit 1")          # a shell script's text
        ...
        fake.calls                             # [["apt-get", "-q", "update"]]
"""

import json
import os
import tempfile

NOTE = """#!/bin/sh
/usr/bin/python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "${0##*/}" "$@" >> "%s"
"""


class FakeCommands:
    def __init__(self, only=False):
        self.only = only  # nothing else is in PATH
        self.folder = None
        self.path = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="slimps-fake-")
        self.path = os.environ.get("PATH")
        os.environ["PATH"] = self.folder.name + ("" if self.only else ":" + (self.path or ""))
        return self

    def __exit__(self, *_):
        os.environ["PATH"] = self.path
        self.folder.cleanup()

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def add(self, name, script=""):
        with open(self.at(name), "w", encoding="utf-8") as out:
            out.write(NOTE % self.at(".calls") + script + "\n")
        os.chmod(self.at(name), 0o755)
        return self.at(name)

    @property
    def calls(self):
        if not os.path.exists(self.at(".calls")):
            return []
        with open(self.at(".calls"), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
