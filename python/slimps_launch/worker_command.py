# SPDX-License-Identifier: Apache-2.0
"""The command of a job's workers, as the user gave it."""

import os
import re
import shutil


def is_python(command):
    """True if a command runs a Python."""
    return re.fullmatch(r"python(3(\.\d+)?)?", os.path.basename(command[0])) is not None


def resolve_command(command, programs):
    """Returns `command` with a daemon's name replaced by the path of the program that was built.

    Other commands stay as they are.
    FileNotFoundError: there is no such command, or it cannot be run.
    """
    name = command[0]
    if name in programs:
        return [programs[name]] + command[1:]
    if shutil.which(name) is None:
        what = "cannot be run" if os.path.sep in name and os.path.exists(name) else "not found"
        raise FileNotFoundError("command %s: %s" % (what, name))
    return command
