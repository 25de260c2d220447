# SPDX-License-Identifier: Apache-2.0
"""Tells those who watch the job where the main thread stands in the training program.

    watch = Watch(pointer)     # of a store; looks once per second, on a thread of its own
    watch.end()                # before the store is destroyed
"""

from __future__ import annotations

import os
import sys
import threading

from slimps.native.library import at_once

INTERVAL_S = 1.0
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def of_main_thread() -> str:
    """Returns "train.py:12", the innermost line outside of this package; "" if there is none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return ""
    return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno)


class Watch:
    """A thread that notes the position for one store. It does not keep Python from ending."""

    def __init__(self, store: int) -> None:
        self._store = store
        self._ended = threading.Event()
        # The garbage collector may end the store on the watch's own thread.
        self._lock = threading.RLock()
        threading.Thread(target=self._run, name="slimps-position", daemon=True).start()

    def end(self) -> None:
        """After this the store is not used any more."""
        with self._lock:
            self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            where = of_main_thread().encode("utf-8", "replace")
            with self._lock:
                if not self._ended.is_set():
                    at_once.slimps_note_position(self._store, where)
