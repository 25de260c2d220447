# SPDX-License-Identifier: Apache-2.0
"""What black (pyproject.toml) and flake8 (.flake8) find in Python sources."""

import os
import re
import subprocess
import tempfile

from cli import setup

# Debian's, since another version may format otherwise.
BLACK, FLAKE8 = "/usr/bin/black", "/usr/bin/flake8"
REFORMAT = re.compile(r"would reformat (.*)")


def python_files(paths):
    return sorted(path for path in paths if path.endswith((".py", ".pyi")))


def python_findings(paths):
    """Returns one line per finding in the files `paths`, which are relative to the repository.

    Empty: the files are formatted and lint-clean.
    """
    if not paths:
        return []
    with tempfile.TemporaryDirectory(prefix="slimps-") as cache:
        # black's cache would trust a file's time.
        black = _run(
            [BLACK, "--check", "--config", "pyproject.toml", *paths], BLACK_CACHE_DIR=cache
        )
    said = [line for line in black.stderr.splitlines() if line.startswith(("would ", "error: "))]
    findings = [REFORMAT.sub(r"\1: run: %s \1" % BLACK, line) for line in said]
    flake8 = _run([FLAKE8, "--config", ".flake8", *paths])
    findings += flake8.stdout.splitlines()
    for result in (black, flake8):
        if result.returncode != 0 and not findings:
            findings = ["%s: %s" % (result.args[0], result.stderr.strip())]
    return findings


def _run(command, **environment):
    return subprocess.run(
        command,
        cwd=setup.REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
