# SPDX-License-Identifier: Apache-2.0
"""Tells those who watch the job where the main thread stands in the training program.

    watch = Watch(pointer)     # of a store; looks once per second, on a thread of its own
    watch.end()                # before the store is destroyed
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading

from slimps.native.library import at_once

INTERVAL_S = 1.0
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep


def _is_library(path: str) -> bool:
    """True for files of Python itself and of installed packages, where no user's loop stands."""
    installed = any(folder in path for folder in ("/site-packages/", "/dist-packages/"))
    return installed or path.startswith((_STANDARD_LIBRARY, "<frozen "))


def of_main_thread() -> str:
    """Returns "train.py:12", the innermost line of the program; "" if there is none.

    If all lines are of libraries, it is the innermost one outside of this package.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    outside = []
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_PACKAGE):
            outside.append((path, frame.f_lineno or 0))
        frame = frame.f_back
    program = [place for place in outside if not _is_library(place[0])]
    for path, line in program or outside:
        return "%s:%d" % (os.path.basename(path), line)
    return ""


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
