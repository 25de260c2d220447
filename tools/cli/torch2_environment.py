# SPDX-License-Identifier: Apache-2.0
"""The virtual environment with today's PyTorch, for tests beside those with Debian's 1.13."""

import hashlib
import os
import shutil
import subprocess
import sys

from cli import setup

REQUIREMENTS = os.path.join(setup.REPOSITORY, "tools", "torch2_requirements.txt")


def folder():
    """Returns where the environment is: its name follows from the requirements."""
    with open(REQUIREMENTS, "rb") as file:
        name = "torch2-" + hashlib.sha256(file.read()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "slimps", name)


def ensure():
    """Makes the environment if it is not there yet. Returns its Python.

    SetupError: pip cannot install the requirements, for example without a package index.
    """
    path = folder()
    python = os.path.join(path, "bin", "python")
    whole = os.path.join(path, "whole")
    if os.path.exists(whole):
        return python
    shutil.rmtree(path, ignore_errors=True)
    print("slimps: making a virtual environment with today's PyTorch in " + path, flush=True)
    for command in (
        ["/usr/bin/python3", "-m", "venv", path],
        [python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS],
    ):
        # pip's output goes to stderr, since stdout belongs to the subcommand.
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            raise setup.SetupError("failed: %s" % " ".join(command))
    with open(whole, "w", encoding="utf-8"):
        return python
