# SPDX-License-Identifier: Apache-2.0
"""The rows of this process's timeline that Python fills, as slimps/c_api_trace.h has them.

    with trace.span(trace.STEP, "step", round=7): ...

They are recorded between start() and finish(). Otherwise they cost a look at `is_on`.
"""

from __future__ import annotations

import contextlib
import time
from typing import Iterator

from slimps.native.library import at_once, check, lib, text

FORWARD, BACKWARD, STEP, CALL = range(4)

is_on = False
now = time.monotonic_ns  # the clock that the library reads, too


def start(path: str) -> None:
    """Begins to record what this process does.

    Raises
        UnavailableError: nothing can be written at `path`.
        FailedPreconditionError: this process records already.
    """
    global is_on
    check(lib.slimps_trace_start(text(path, "trace")))
    is_on = True


def finish(path: str, rank: int) -> None:
    """Stops recording and writes this worker's part. UnavailableError: it cannot be written."""
    global is_on
    is_on = False
    check(lib.slimps_trace_finish(text(path, "trace"), rank))


def add(row: int, name: str, began_ns: int, round: int = 0) -> None:
    """Records that this thread has been at something since `began_ns`."""
    at_once.slimps_trace_span(row, name.encode("utf-8", "replace"), round, began_ns, now())


@contextlib.contextmanager
def span(row: int, name: str, round: int = 0) -> Iterator[None]:
    """Records how long this thread is in the block, also if it raises."""
    began_ns = now() if is_on else 0
    try:
        yield
    finally:
        if began_ns:
            add(row, name, began_ns, round)
