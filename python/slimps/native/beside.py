# SPDX-License-Identifier: Apache-2.0
"""Waits for functions that hear no signals themselves."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Optional, Tuple

from slimps.native.calls import SIGNAL_INTERVAL_MS


def run_beside(function: Callable[[], Any], timeout_s: Optional[float] = None) -> Any:
    """Returns what `function` returns, or raises what it raises. It runs on a thread of its own.

    Signal handlers run meanwhile. If one raises, as Ctrl-C's does, or if time is up, the function
    goes on without anybody who waits, and what it refers to stays alive until it ends.

    TimeoutError: it has not ended after `timeout_s`.
    """
    ended: queue.SimpleQueue[Tuple[Any, Optional[BaseException]]] = queue.SimpleQueue()

    def run() -> None:
        try:
            ended.put((function(), None))
        except BaseException as error:
            ended.put((None, error))

    threading.Thread(target=run, name="slimps beside", daemon=True).start()
    began = time.monotonic()
    while True:
        try:
            result, error = ended.get(timeout=SIGNAL_INTERVAL_MS / 1000)
        except queue.Empty:
            if timeout_s is not None and time.monotonic() > began + timeout_s:
                raise TimeoutError("not done after %g s" % timeout_s) from None
            continue
        if error is not None:
            raise error
        return result
