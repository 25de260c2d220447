#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Runs a unittest file with Debian's python3: its path from the workspace's root is the argument.

The file sees what is beside it, tests/repo, and the packages in python/ and tools/. A runfile that
is a link into the source tree is run from there, so that it sees the tree around it.
"""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

path = os.path.realpath(sys.argv[1])
sys.path[:1] = [
    os.path.dirname(path),
    HERE,
    os.path.join(ROOT, "python"),
    os.path.join(ROOT, "tools"),
]
sys.argv = [path, "-v"]
runpy.run_path(path, run_name="__main__")
