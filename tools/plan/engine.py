# SPDX-License-Identifier: Apache-2.0
"""Discrete events: a clock, cores that threads share, threads with priorities, links. Pure.

    engine = Engine()
    cores = Cores(engine, 2)
    push = Threads(cores, 2)
    push.submit(priority=-3, work=1.5, done=lambda: ...)   # 1.5 ms of one core, if it gets one
    engine.run()

Times are milliseconds. Everything belongs to the thread that calls run.
"""

from __future__ import annotations

import collections
import heapq
from typing import Callable, Optional

Action = Callable[[], None]


class Engine:
    """A clock that jumps from event to event. Events of one time keep the order of their calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._sequence = 0

    def at(self, time: float, action: Action) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (max(time, self.now), self._sequence, action))

    def after(self, delay: float, action: Action) -> None:
        self.at(self.now + delay, action)

    def run(self) -> None:
        """Runs events until none is left."""
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()


class Cores:
    """`count` cores. If more tasks run than there are cores, each gets the same share."""

    def __init__(self, engine: Engine, count: float) -> None:
        self.engine = engine
        self.count = count
        self.used = 0.0  # core milliseconds so far
        self._tasks: list[tuple[float, int, Action]] = []  # by the service at which they end
        self._served = 0.0  # what a task that ran from the start would have got
        self._since = 0.0
        self._sequence = 0

    def run(self, work: float, done: Action) -> None:
        """Runs a task of so many milliseconds of one core, then calls done."""
        if work <= 0:
            self.engine.after(0.0, done)
            return
        self._advance()
        self._sequence += 1
        heapq.heappush(self._tasks, (self._served + work, self._sequence, done))
        self._schedule()

    def _share(self) -> float:
        return min(1.0, self.count / len(self._tasks))

    def _advance(self) -> None:
        if self._tasks:
            got = (self.engine.now - self._since) * self._share()
            self._served += got
            self.used += got * len(self._tasks)
        self._since = self.engine.now

    def _schedule(self) -> None:
        if not self._tasks:
            return
        sequence = self._sequence
        left = max(0.0, self._tasks[0][0] - self._served) / self._share()
        self.engine.after(left, lambda: self._end(sequence))

    def _end(self, sequence: int) -> None:
        if sequence != self._sequence:
            return  # a later event knows better
        self._advance()
        # The event is the end of the first task, however the clock rounds: at large times what is
        # left of a task may be less than the clock can tell.
        self._served = self._tasks[0][0]
        ended = []
        while self._tasks and self._tasks[0][0] <= self._served + 1e-9:
            ended.append(heapq.heappop(self._tasks)[2])
        self._sequence += 1
        self._schedule()
        for done in ended:
            done()


class Threads:
    """Threads of one queue: each takes the highest priority next, then the earliest."""

    def __init__(self, cores: Cores, count: int = 1) -> None:
        self._cores = cores
        self._idle = count
        self._waiting: list[tuple[int, int, float, Action]] = []
        self._sequence = 0

    def __len__(self) -> int:
        """Returns how many tasks wait."""
        return len(self._waiting)

    def submit(self, priority: int, work: float, done: Action) -> None:
        self._sequence += 1
        heapq.heappush(self._waiting, (-priority, self._sequence, work, done))
        if self._idle > 0:
            self._idle -= 1
            self._next()

    def _next(self) -> None:
        _, _, work, done = heapq.heappop(self._waiting)
        self._cores.run(work, lambda: self._end(done))

    def _end(self, done: Action) -> None:
        done()
        if self._waiting:
            self._next()
        else:
            self._idle += 1


class Lane:
    """What one sender has for a link. Once handed over, up to `ahead` bytes keep their order."""

    def __init__(self, link: Link, ahead: float) -> None:
        self._link = link
        self._ahead = ahead
        self._waiting: list[tuple[int, int, float, Callable[[float], None]]] = []
        self._handed: collections.deque[tuple[float, Callable[[float], None]]] = collections.deque()
        self._handed_bytes = 0.0
        self._sequence = 0

    def send(self, priority: int, size: float, begins: Callable[[float], None]) -> None:
        """Queues a message. begins(when its last byte leaves) is called as it begins to leave."""
        self._sequence += 1
        heapq.heappush(self._waiting, (-priority, self._sequence, size, begins))
        self._hand_over()
        self._link.wake()

    def _hand_over(self) -> None:
        while self._waiting and self._handed_bytes < self._ahead:
            _, _, size, begins = heapq.heappop(self._waiting)
            self._handed.append((size, begins))
            self._handed_bytes += size

    def take(self) -> Optional[tuple[float, Callable[[float], None]]]:
        if self._handed:
            return self._handed.popleft()
        if not self._waiting:
            return None
        _, _, size, begins = heapq.heappop(self._waiting)
        self._handed_bytes += size
        return size, begins

    def left(self, size: float) -> None:
        self._handed_bytes -= size
        self._hand_over()


class Link:
    """One direction of a node's link: its lanes in turn, a message at a time.

    `bytes_per_ms` None: everything passes at once.
    """

    def __init__(self, engine: Engine, bytes_per_ms: Optional[float]) -> None:
        self._engine = engine
        self._rate = bytes_per_ms
        self._lanes: list[Lane] = []
        self._turn = 0
        self._busy = False
        self._free_at = 0.0  # as a receiver
        self.carried = 0.0  # bytes

    def lane(self, ahead: float) -> Lane:
        self._lanes.append(Lane(self, ahead))
        return self._lanes[-1]

    def passage(self, size: float) -> float:
        return 0.0 if self._rate is None else size / self._rate

    def wake(self) -> None:
        """Begins the next message if the link is free."""
        if self._busy:
            return
        for step in range(len(self._lanes)):
            lane = self._lanes[(self._turn + step) % len(self._lanes)]
            message = lane.take()
            if message is None:
                continue
            self._turn = (self._turn + step + 1) % len(self._lanes)
            self._busy = True
            size, begins = message
            self.carried += size
            end = self._engine.now + self.passage(size)
            begins(end)
            self._engine.at(end, lambda: self._end(lane, size))
            return

    def _end(self, lane: Lane, size: float) -> None:
        self._busy = False
        lane.left(size)
        self.wake()

    def receive(self, size: float, sent_at: float) -> float:
        """Takes a message whose first byte comes now and whose last one leaves at sent_at.

        Returns when it has arrived. Messages arrive in the order in which they began to leave.
        """
        begin = max(self._engine.now, self._free_at)
        self._free_at = max(sent_at, begin + self.passage(size))
        return self._free_at
