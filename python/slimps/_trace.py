# SPDX-License-Identifier: Apache-2.0
"""This worker's part of the trace of a job, which `slimps launch --trace FILE` merges."""

from __future__ import annotations

import sys
from typing import Optional

from slimps import _job, errors, native

_recorded: Optional[_job.Job] = None  # what is recorded: one job at a time


def start(job: _job.Job) -> None:
    """Begins to record if the job is traced and no other one is.

    UnavailableError: nothing can be written at the trace's path.
    """
    global _recorded
    if job.trace and _recorded is None:
        native.trace.start(job.trace)
        _recorded = job


def finish(job: Optional[_job.Job], rank: int) -> None:
    """Writes the part of worker `rank`, if `job` is recorded. Says so on stderr if it cannot."""
    global _recorded
    if job is None or job != _recorded:
        return
    _recorded = None
    try:
        native.trace.finish(job.trace, rank)
    except errors.Error as error:
        print("slimps: %s" % error, file=sys.stderr)
