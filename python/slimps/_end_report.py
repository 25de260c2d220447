# SPDX-License-Identifier: Apache-2.0
"""What this process says to its launcher of the exception by which it ends.

Python prints the traceback, too, but lines are for people: the launcher tells from this report who
made a job fail (slimps_launch/blame.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from typing import Optional

from slimps import _whole_file
from slimps.errors import Error

MOST = 64 << 10  # characters of a traceback
# Taken out: what this process runs may fail without its own failing.
_PATH = os.environ.pop("SLIMPS_REPORT_FILE", "")


def write(error: BaseException) -> None:
    """Writes the file that SLIMPS_REPORT_FILE named, if it was set. Never fails."""
    if not _PATH:
        return
    with contextlib.suppress(Exception):
        kind = type(error)
        lines = "".join(traceback.format_exception_only(kind, error)).splitlines()
        report = {
            # Of a SyntaxError, the place comes first.
            "error": next((line for line in lines if not line.startswith(" ")), kind.__name__),
            "traceback": "".join(traceback.format_exception(kind, error, error.__traceback__))[
                -MOST:
            ],
        }
        cause: Optional[BaseException] = error
        while cause is not None and not isinstance(cause, Error):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            report.update(code=cause.code, cause=str(cause))
        _whole_file.write(_PATH, json.dumps(report).encode("ascii"), str(os.getpid()))
