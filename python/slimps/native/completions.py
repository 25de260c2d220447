# SPDX-License-Identifier: Apache-2.0
"""A thread that waits for the ends of calls that nobody else waits for."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Callable, Dict, Tuple

from slimps.native.calls import Call

# Runs on the completions' thread with the call, which has ended, and its status.
Then = Callable[[Call, int], None]

_JOIN_SECONDS = 5.0


class Completions:
    """Calls under way, and the thread that waits for them, which is a daemon. Thread-safe.

    The thread ends after end(), with the last call.
    """

    def __init__(self) -> None:
        self._waiting: Dict[int, Tuple[Call, Then]] = {}  # by descriptor
        self._epoll = select.epoll()
        ending, self._end = os.pipe()
        self._epoll.register(ending, select.EPOLLIN)
        self._thread = threading.Thread(
            target=_work,
            args=(self._epoll, ending, self._waiting),
            name="slimps completions",
            daemon=True,
        )
        self._thread.start()

    def add(self, call: Call, then: Then) -> None:
        """Calls `then` on the thread once the call has ended."""
        self._waiting[call.descriptor] = call, then
        self._epoll.register(call.descriptor, select.EPOLLIN)

    def has(self, call: Call) -> bool:
        return call.descriptor in self._waiting

    def end(self) -> None:
        os.close(self._end)

    def join(self) -> None:
        """Waits for the thread, unless this is the thread, but not for ever."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)


def _work(epoll: select.epoll, ending: int, waiting: Dict[int, Tuple[Call, Then]]) -> None:
    """The thread. It knows no store, so that a store that nobody has any more can be freed."""
    is_ending = False
    while waiting or not is_ending:
        for descriptor, _ in epoll.poll():
            epoll.unregister(descriptor)
            if descriptor == ending:
                is_ending = True
                continue
            call, then = waiting.pop(descriptor)
            then(call, call.finish())
            del call, then
    epoll.close()
    os.close(ending)


def say_uncaught() -> None:
    """Shows the exception that is being handled, as one that ends a thread is shown."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
