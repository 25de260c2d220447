# SPDX-License-Identifier: Apache-2.0
"""Calls a local store's updater from the library, on the thread that pushes.

    updating = Updating()
    check(lib.slimps_set_updater(store, updating.callback(updater), None))
    lib.slimps_push_list(store, ...)
    raised = updating.take_raised()             # what the updater has raised on this thread

A signal's handler may raise before the callback's first line or behind its last one. Then ctypes
tells sys.unraisablehook, and the library takes for a status what the memory holds. It may also
raise while Python frees an earlier call's handle, and Python tells the hook, too.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, Callable, Dict, Optional, Set

import numpy as np

from slimps.native import structs
from slimps.native.arrays import Name

# updater(key, gradient, weight): both arrays are valid during the call only.
Updater = Callable[[Name, np.ndarray, np.ndarray], None]

_raised: Dict[int, BaseException] = {}  # by thread
# Functions of this package whose exceptions nobody else can raise.
_DROPPED = ("Updating.callback.<locals>.call", "Call.__del__")
_KEEPS = "_keep_what_is_dropped.<locals>.keep"


class Updating:
    """The updaters of one store. Thread-safe.

    threads  idents of the threads that run the store's updater
    """

    def __init__(self) -> None:
        self.threads: Set[int] = set()

    def callback(self, updater: Updater) -> Any:
        """Returns the C function that calls `updater`. It must live as long as the store has it."""
        _keep_what_is_dropped()

        def call(_: Any, key: structs.Key, gradient: int, weight: int, elements: int) -> int:
            try:
                self.threads.add(threading.get_ident())
                name = key.number if key.kind == structs.KEY_INT else key.text.decode("utf-8")
                updater(name, _floats(gradient, elements), _floats(weight, elements))
            except BaseException as error:  # C must not see it
                _raised[threading.get_ident()] = error
                return structs.UNKNOWN
            finally:
                self.threads.discard(threading.get_ident())
            return 0

        return structs.Updater(call)

    def take_raised(self) -> Optional[BaseException]:
        """Returns what this thread's newest updater raised or Python dropped, once; None: nothing.

        The thread runs no updater of the store any more.
        """
        self.threads.discard(threading.get_ident())
        return _raised.pop(threading.get_ident(), None)


def _keep_what_is_dropped() -> None:
    before = sys.unraisablehook
    if getattr(before, "__qualname__", "") == _KEEPS:
        return

    def keep(unraisable: Any) -> None:
        # Python 3.13 names the function in the message only.
        said = "%r %s" % (unraisable.object, unraisable.err_msg)
        if any(name in said for name in _DROPPED):
            _raised[threading.get_ident()] = unraisable.exc_value
        else:
            before(unraisable)

    sys.unraisablehook = keep


def _floats(address: int, elements: int) -> np.ndarray:
    memory = (ctypes.c_float * elements).from_address(address)
    return np.frombuffer(memoryview(memory), np.float32)
