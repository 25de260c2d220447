# SPDX-License-Identifier: Apache-2.0
"""This worker's part of the trace of a job, which `slimps launch --trace FILE` merges."""

from __future__ import annotations

import os
import sys
from typing import Optional

from slimps import _job, errors, native

_recorded: Optional[_job.Job] = None  # what is recorded: one job at a time
_recorder = 0  # the process that records it; its forks have a copy of this module


def start(job: _job.Job) -> bool:
    """Begins to record if the job is traced and no other one is. Returns whether it has begun.

    UnavailableError: nothing can be written at the trace's path.
    """
    global _recorded, _recorder
    if not job.trace or _recorded is not None:
        return False
    if not native.trace.is_on:  # on: another job was given up
        native.trace.start(job.trace)
    _recorded, _recorder = job, os.getpid()
    return True


def give_up() -> None:
    """Forgets the job that start() has begun to record. The next one may be recorded."""
    global _recorded
    _recorded = None


def finish(job: Optional[_job.Job], rank: int) -> None:
    """Writes the part of worker `rank`, if `job` is recorded. Says so on stderr if it cannot."""
    global _recorded
    if job is None or job != _recorded or _recorder != os.getpid():
        return
    _recorded = None
    try:
        native.trace.finish(job.trace, rank)
    except errors.Error as error:
        print("slimps: %s" % error, file=sys.stderr)
