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
from typing import Any, Callable, Dict, List, Optional

from slimps.errors import FailedPreconditionError
from slimps.native.library import check, lib, made_by
from slimps.native.structs import UNDER_WAY

# A waiting thread looks this often whether a signal came: the kernel may have given it to another.
SIGNAL_INTERVAL_MS = 50
# A call that is made to end only has to notify its own threads.
PATIENCE_MS = 5000

# What calls under way use. A call that never ends stays here.
_lent: Dict[Call, Any] = {}


class Call:
    """One slimps_call, and the handle of a store by which functions return at once.

    One thread at a time may use it. In a forked child it does nothing.

    handle      of the store that was given
    descriptor  is readable from the end of a call that was under way until finish()
    """

    _UNDER_WAY = [UNDER_WAY]

    def __init__(self, store: Optional[int] = None, memory: Any = None) -> None:
        """`memory` stays alive as long as a call is under way."""
        self._memory = memory
        self._process = os.getpid()
        self._returned: List[int] = []  # by the newest call's function and, once it ended, finish()
        self.handle: Optional[int] = None
        self.pointer = made_by(lib.slimps_call_create)
        descriptor = ctypes.c_int()
        check(lib.slimps_call_descriptor(self.pointer, ctypes.byref(descriptor)))
        self.descriptor = descriptor.value
        self._ended = select.poll()
        self._ended.register(self.descriptor, select.POLLIN)
        if store is not None:
            self.handle = made_by(lib.slimps_in_background, store, self.pointer)

    @property
    def is_under_way(self) -> bool:
        return self._returned == self._UNDER_WAY

    def start(self, function: Callable[..., int], *arguments: Any, lent: Any = None) -> int:
        """Returns the status of `function(*arguments)`, which may be UNDER_WAY.

        Arguments and `lent` stay alive until finish().
        """
        if self.is_under_way:
            raise FailedPreconditionError("another call is under way, which a signal interrupted")
        returned: List[int] = []
        self._returned = returned
        _lent[self] = arguments, lent
        try:
            # By map, so that no signal handler can run before the status is noted.
            returned.extend(map(function, *zip(arguments)))
        finally:
            if not self.is_under_way:
                del _lent[self]
        return returned[0]

    def finish(self) -> int:
        """Waits for the end of the call under way and returns its status."""
        try:
            self._returned.extend(map(lib.slimps_call_finish, (self.pointer,)))
        finally:
            if not self.is_under_way:
                _lent.pop(self, None)
        return self._returned[-1]

    def run(
        self,
        interrupt: Callable[[], None],
        function: Callable[..., int],
        *arguments: Any,
        lent: Any = None,
    ) -> int:
        """Same as start(), then finish().

        `interrupt` must make the call end. It is called if a signal handler raises meanwhile.
        """
        try:
            status = self.start(function, *arguments, lent=lent)
            while self.is_under_way:
                if self._ended.poll(SIGNAL_INTERVAL_MS):
                    status = self.finish()
            return status
        except BaseException:
            self.give_up(interrupt)
            raise

    def give_up(self, interrupt: Callable[[], None]) -> None:
        """Ends the call under way, if one is, by `interrupt`."""
        if self.is_under_way:
            interrupt()
            if self._ended.poll(PATIENCE_MS):
                self.finish()

    def __del__(self, _lib: Any = lib, _getpid: Callable[[], int] = os.getpid) -> None:
        if not hasattr(self, "pointer") or self.is_under_way or _getpid() != self._process:
            return
        _lib.slimps_destroy(self.handle)
        _lib.slimps_call_destroy(self.pointer)
