# SPDX-License-Identifier: Apache-2.0
"""Calls a local store's updater from the library, on the thread that pushes.

    updating = Updating()
    check(lib.slimps_set_updater(store, updating.callback(updater), None))
    if lib.slimps_push_list(store, ...):
        raised = updating.take_raised()             # what the updater has raised on this thread
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Dict, Optional, Set

import numpy as np

from slimps.native import structs
from slimps.native.arrays import Name

# updater(key, gradient, weight): both arrays are valid during the call only.
Updater = Callable[[Name, np.ndarray, np.ndarray], None]


class Updating:
    """The updaters of one store. Thread-safe.

    threads  idents of the threads that run the store's updater
    """

    def __init__(self) -> None:
        self.threads: Set[int] = set()
        self._raised: Dict[int, BaseException] = {}

    def callback(self, updater: Updater) -> Any:
        """Returns the C function that calls `updater`. It must live as long as the store has it."""

        def call(_: Any, key: structs.Key, gradient: int, weight: int, elements: int) -> int:
            thread = threading.get_ident()
            self.threads.add(thread)
            try:
                name = key.number if key.kind == structs.KEY_INT else key.text.decode("utf-8")
                updater(name, _floats(gradient, elements), _floats(weight, elements))
            except BaseException as error:  # C must not see it
                self._raised[thread] = error
                return structs.UNKNOWN
            finally:
                self.threads.discard(thread)
            return 0

        return structs.Updater(call)

    def take_raised(self) -> Optional[BaseException]:
        """Returns what this thread's newest updater raised, once; None: nothing."""
        return self._raised.pop(threading.get_ident(), None)


def _floats(address: int, elements: int) -> np.ndarray:
    memory = (ctypes.c_float * elements).from_address(address)
    return np.frombuffer(memoryview(memory), np.float32)
