# SPDX-License-Identifier: Apache-2.0
"""A thread that waits for the ends of calls that nobody else waits for."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from typing import Any, Callable, Dict, List, Tuple

from slimps.native.calls import Call
from slimps.native.structs import UNDER_WAY

# Runs on the completions' thread with the call's status.
Then = Callable[[int], None]

_JOIN_SECONDS = 5.0


class Completions:
    """A store's calls that the thread, which is a daemon, waits for. Thread-safe.

    The thread ends after end(), with the last call. It knows no store, so that a store that nobody
    has any more can be freed.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        ending, self._end = os.pipe()
        self._epoll.register(ending, select.EPOLLIN)
        self._waiting: Dict[int, Tuple[Call, Then]] = {}  # by descriptor
        self._free: List[Call] = []  # registered
        # Calls whose start was interrupted. The thread may know of the end of one, so it keeps its
        # descriptor from others until it has looked.
        self._given_up: List[Call] = []
        self._thread = threading.Thread(
            target=_work,
            args=(self._epoll, ending, self._waiting, self._free, self._given_up),
            name="slimps completions",
            daemon=True,
        )
        self._thread.start()

    def run(
        self,
        new_call: Callable[[], Call],
        interrupt: Callable[[], None],
        function: Callable[..., int],
        *arguments: Any,
        lent: Any,
        then: Then,
    ) -> None:
        """Starts `function` with a call's handle and `arguments`, and calls `then` at its end.

        `then` runs before this returns if nothing has to be waited for. Otherwise as Call.run.
        """
        try:
            call = self._free.pop()
        except IndexError:
            call = new_call()
            self._epoll.register(call.descriptor, select.EPOLLIN)
        try:
            # First, since the thread must not see the end of a call that it does not find.
            self._waiting[call.descriptor] = call, then
            call.lend((arguments, lent))
            status = function(call.handle, *arguments)
            if status == UNDER_WAY:
                return
        except BaseException:
            if self._waiting.pop(call.descriptor, None) is not None:
                with contextlib.suppress(ValueError):  # the thread has ended
                    self._epoll.unregister(call.descriptor)
                self._given_up.append(call)
                call.give_up(interrupt, (arguments, lent))
            raise
        del self._waiting[call.descriptor]
        call.forget()
        self._free.append(call)
        then(status)

    def end(self) -> None:
        os.close(self._end)

    def join(self) -> None:
        """Waits for the thread, unless this is the thread, but not for ever."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)


def _work(
    epoll: select.epoll,
    ending: int,
    waiting: Dict[int, Tuple[Call, Then]],
    free: List[Call],
    given_up: List[Call],
) -> None:
    is_ending = False
    while waiting or not is_ending:
        given_up.clear()
        for descriptor, _ in epoll.poll():
            if descriptor == ending:
                epoll.unregister(ending)
                is_ending = True
                continue
            found = waiting.pop(descriptor, None)
            if found is None:
                continue
            call, then = found
            status = call.finish()
            free.append(call)
            then(status)
            del call, found, then
    epoll.close()
    os.close(ending)


def say_uncaught() -> None:
    """Shows the exception that is being handled, as one that ends a thread is shown."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
