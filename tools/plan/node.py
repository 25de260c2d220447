# SPDX-License-Identifier: Apache-2.0
"""A node and the messages between two processes. Pure."""

from __future__ import annotations

import dataclasses
from typing import Generic, Protocol, TypeVar

from plan.engine import Action, Cores, Lane, Link, Threads
from plan.terms import Cluster, Costs

ITEM_BYTES = 64  # about an item's part of a header
MESSAGE_BYTES = 128  # a frame without items, and its answer
ROUND = 1 << 32  # as proto/net/send_priority.h: an earlier round goes first
SMALL_BYTES = 64 << 10  # worker/courier/coalescer.h: a larger item travels alone
FULL_BYTES = 256 << 10  # a batch of so many bytes leaves
FULL_ITEMS = 256

Content = TypeVar("Content")


@dataclasses.dataclass(eq=False)
class Node:
    cores: Cores
    up: Link
    down: Link
    ahead_bytes: float


class Peer(Protocol):
    """A process: where it is, and its transport's thread."""

    node: Node
    io: Threads
    lane: Lane


class Process:
    """A process with a transport. Its messages share its node's link with the node's others."""

    def __init__(self, node: Node, cluster: Cluster, costs: Costs) -> None:
        self.node = node
        self.cluster = cluster
        self.costs = costs
        self.engine = node.cores.engine
        self.io = Threads(node.cores)
        self.lane = node.up.lane(node.ahead_bytes)

    def send(self, to: Peer, batch: Batch[Content], arrived: Action) -> None:
        """Sends a message. arrived() is called on the receiver's I/O thread."""
        size, priority = batch.message_bytes(), batch.priority
        work = self.costs.wire_ms(batch.partitions, size)
        if to.node is self.node:
            # By reference if both share memory; else through a local socket, which no link slows.
            if self.cluster.shared_memory:
                work = self.costs.local_ms(batch.partitions)
            self.io.submit(priority, work, lambda: to.io.submit(0, work, arrived))
            return
        delay = self.cluster.round_trip_ms / 2

        def begins(sent_at: float) -> None:
            there = to.node.down.receive(size, sent_at) + delay
            to.node.down.carried += size
            self.engine.at(there, lambda: to.io.submit(0, work, arrived))

        self.io.submit(priority, work, lambda: self.lane.send(priority, size, begins))


class Batches(Generic[Content]):
    """Groups small items for one receiver, as worker/courier/coalescer.h and the servers do."""

    def __init__(self, coalesce: bool) -> None:
        self._coalesce = coalesce
        self._open: dict[int, Batch[Content]] = {}

    def add(
        self, to: int, item: Content, size: float, priority: int, auxiliary: bool = False
    ) -> list[Batch[Content]]:
        """Returns what must leave now."""
        own = 0 if auxiliary else 1
        if not self._coalesce or size > SMALL_BYTES:
            before = [self._open.pop(to)] if to in self._open else []
            return before + [Batch(to, priority, size, [item], own)]
        batch = self._open.setdefault(to, Batch(to, priority, 0.0, [], 0))
        batch.priority = max(batch.priority, priority)
        batch.size += size
        batch.partitions += own
        batch.items.append(item)
        if batch.size >= FULL_BYTES or len(batch.items) >= FULL_ITEMS:
            return [self._open.pop(to)]
        return []

    def take_all(self) -> list[Batch[Content]]:
        batches, self._open = self._open, {}
        return [batches[to] for to in sorted(batches)]


@dataclasses.dataclass
class Batch(Generic[Content]):
    to: int
    priority: int
    size: float
    items: list[Content]
    partitions: int  # of the items. Auxiliary keys are made and read by one thread each

    def message_bytes(self) -> float:
        return self.size + MESSAGE_BYTES + ITEM_BYTES * len(self.items)


def send_priority(round_: int, priority: int) -> int:
    return -round_ * ROUND + priority
