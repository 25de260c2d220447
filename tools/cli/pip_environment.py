# SPDX-License-Identifier: Apache-2.0
"""Virtual environments for what Debian 12 lacks: "torch2", today's PyTorch, and "wheel", tools."""

import hashlib
import os
import shutil
import sys

from cli import setup


def requirements(name):
    return os.path.join(setup.REPOSITORY, "tools", name + "_requirements.txt")


def folder(name):
    """Returns where the environment is: its folder's name follows from the requirements."""
    with open(requirements(name), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "slimps", "%s-%s" % (name, digest))


def ensure(name):
    """Makes the environment if it is not there yet. Returns its Python.

    SetupError: pip cannot install the requirements, for example without a package index.
    """
    path = folder(name)
    python = os.path.join(path, "bin", "python")
    whole = os.path.join(path, "whole")
    if os.path.exists(whole):
        return python
    shutil.rmtree(path, ignore_errors=True)
    print("slimps: making a virtual environment in " + path, file=sys.stderr, flush=True)
    for command in (
        ["/usr/bin/python3", "-m", "venv", path],
        [python, "-m", "pip", "install", "-q", "-r", requirements(name)],
    ):
        setup.run(command)
    with open(whole, "w", encoding="utf-8"):
        return python
