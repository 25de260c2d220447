# SPDX-License-Identifier: Apache-2.0
"""Calls that wait, without a thread inside the library: Python polls a file descriptor.

    call = Call(store)
    check(call.run(interrupt, lib.slimps_barrier, call.handle))

Signal handlers and other threads run meanwhile. If a handler raises, as Ctrl-C's does, the call is
made to end, and the exception goes on. What was lent to a call stays alive until the call has
ended; for ever if it does not end.
"""

from __future__ import annotations

import ctypes
import os
import select
from typing import Any, Callable, Dict, Optional

from slimps.native import trace
from slimps.native.library import at_once, check, lib, made_by
from slimps.native.structs import FAILED_PRECONDITION, UNDER_WAY

# A waiting thread looks this often whether a signal came: the kernel may have given it to another.
SIGNAL_INTERVAL_MS = 50
# A call that is made to end only has to notify its own threads.
PATIENCE_MS = 5000

# What calls under way use. A call that never ends stays here.
_lent: Dict[Call, Any] = {}


def _name_of(function: Callable[..., int]) -> str:
    """Returns "push_list" of slimps_push_list."""
    return function.__name__.replace("slimps_", "").replace("_in_background", "")


class Call:
    """One slimps_call, and the handle of a store by which functions return at once.

    One thread at a time may use it. In a forked child it does nothing.

    handle        of the store that was given
    descriptor    is readable from the end of a call that was under way until finish()
    is_under_way  finish() must come
    """

    def __init__(self, store: Optional[int] = None, memory: Any = None) -> None:
        """`memory` stays alive as long as a call is under way."""
        self._memory = memory
        self._process = os.getpid()
        self.is_under_way = False
        self.handle: Optional[int] = None
        self.pointer = made_by(lib.slimps_call_create)
        descriptor = ctypes.c_int()
        check(lib.slimps_call_descriptor(self.pointer, ctypes.byref(descriptor)))
        self.descriptor = descriptor.value
        self._ended = select.poll()
        self._ended.register(self.descriptor, select.POLLIN)
        if store is not None:
            self.handle = made_by(lib.slimps_in_background, store, self.pointer)

    def run(
        self,
        interrupt: Callable[[], None],
        function: Callable[..., int],
        *arguments: Any,
        lent: Any = None,
    ) -> int:
        """Returns the status of `function(*arguments)`, at its end.

        Arguments and `lent` stay alive until then. `interrupt` must make the call end. It is called
        if a signal handler raises meanwhile.
        """
        began_ns = trace.now() if trace.is_on else 0
        try:
            status = function(*arguments)
            if status == UNDER_WAY:
                self.lend((arguments, lent))
                while not self._ended.poll(SIGNAL_INTERVAL_MS):
                    pass
                status = self.finish()
            return status
        except BaseException:
            self.give_up(interrupt, (arguments, lent))
            raise
        finally:
            if began_ns:
                trace.add(trace.CALL, _name_of(function), began_ns)

    def lend(self, lent: Any) -> None:
        """Notes that a call is under way, which uses `lent`."""
        _lent[self] = lent
        self.is_under_way = True

    def finish(self) -> int:
        """Returns the status of the call that was under way. `descriptor` has told its end."""
        status: int = at_once.slimps_call_finish(self.pointer)
        self.forget()
        return status

    def forget(self) -> None:
        """Notes that no call is under way."""
        self.is_under_way = False
        del _lent[self]

    def give_up(self, interrupt: Callable[[], None], lent: Any) -> None:
        """Ends a call that may be under way, if it is, by `interrupt`.

        A handler may have raised before anything of the call was noted, so the library is asked.
        """
        self.lend(lent)  # first, since another handler may raise
        if self.handle is None:  # a create, which `interrupt` cancels
            interrupt()
            lib.slimps_call_finish(self.pointer)  # refuses at once if there was none
        elif lib.slimps_pull_list(self.handle, None, 0, 0) == FAILED_PRECONDITION:
            interrupt()
            if not self._ended.poll(PATIENCE_MS):
                return  # it stays lent
            at_once.slimps_call_finish(self.pointer)
        self.forget()

    def __del__(self, _lib: Any = lib, _getpid: Callable[[], int] = os.getpid) -> None:
        if not hasattr(self, "pointer") or self.is_under_way or _getpid() != self._process:
            return
        _lib.slimps_destroy(self.handle)
        _lib.slimps_call_destroy(self.pointer)
