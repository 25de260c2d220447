# SPDX-License-Identifier: Apache-2.0
"""One server of a simulated job: counts pushes, applies complete rounds, answers pulls. Pure."""

from __future__ import annotations

import functools
from typing import Protocol, Sequence

from plan.engine import Threads
from plan.exchanges import Codecs
from plan.node import SMALL_BYTES, Batch, Batches, Node, Peer, Process, send_priority
from plan.terms import Cluster, Costs, Model, Partition, System


class Asker(Peer, Protocol):
    """A worker as its servers see it."""

    def answered(self, partition: Partition, version: int) -> None:
        """Takes the weights of a version."""


class ServerModel(Process):
    def __init__(
        self,
        rank: int,
        node: Node,
        cluster: Cluster,
        system: System,
        costs: Costs,
        model: Model,
        codecs: Codecs,
    ) -> None:
        super().__init__(node, cluster, costs)
        self.rank = rank
        self.system = system
        self.model = model
        self.codecs = codecs
        self._workers: Sequence[Asker] = []
        self._shard = Threads(node.cores)
        self._counts: dict[tuple[Partition, int], int] = {}
        self._begun: dict[Partition, int] = {}  # the newest round that was complete
        self._versions: dict[Partition, int] = {}
        self._waiting: dict[Partition, list[tuple[int, int]]] = {}
        self._replies: Batches[tuple[Partition, int]] = Batches(system.coalesce)

    def connect(self, workers: Sequence[Asker]) -> None:
        self._workers = workers

    def pushed(self, items: Sequence[tuple[Partition, int]]) -> None:
        """Counts the pushes of one message: partitions and their rounds."""
        for partition, round_ in items:
            key = (partition, round_)
            self._counts[key] = self._counts.get(key, 0) + 1
            if self._counts[key] == len(self._workers):
                self._apply_complete(partition)

    def _apply_complete(self, partition: Partition) -> None:
        """Applies complete rounds in order: a small push may overtake that of the round before."""
        next_ = self._begun.get(partition, 0) + 1
        while self._counts.get((partition, next_)) == len(self._workers):
            del self._counts[partition, next_]
            self._begun[partition] = next_
            self._apply(partition, next_)
            next_ += 1

    def _apply(self, partition: Partition, round_: int) -> None:
        work = self._work(partition)
        own = -partition.tensor if self.system.prioritise else 0
        priority = send_priority(round_, own)
        self._shard.submit(
            priority, work, functools.partial(self._applied, partition, round_, priority)
        )

    def _work(self, partition: Partition) -> float:
        """Returns the time from a round's last push to its answer."""
        workers = len(self._workers)
        if partition.phase >= 0:  # the workers' numbers are combined, and answered as they are
            return (workers + 1) * self.costs.copy_ms(4.0 * partition.elements)
        tensor = self.model.tensors[partition.tensor]
        push, pull = self.codecs.push(tensor), self.codecs.pull(tensor)
        work = push.sum_ms(tensor, partition, push.senders(workers))
        work += partition.elements * self.costs.step_ns * 1e-6
        return work + pull.encode_ms(tensor, partition)

    def _applied(self, partition: Partition, round_: int, priority: int) -> None:
        self._versions[partition] = round_
        for worker, version in self._waiting.pop(partition, []):
            if version > round_:
                self._waiting.setdefault(partition, []).append((worker, version))
            else:
                self._answer(worker, partition, round_, priority)
        # Answers of small rounds wait for each other.
        if len(self._shard) == 0 or 4 * partition.elements > SMALL_BYTES:
            self._flush()

    def requested(self, worker: int, partition: Partition, version: int) -> None:
        if self._versions.get(partition, 0) < version:
            self._waiting.setdefault(partition, []).append((worker, version))
            return
        own = -partition.tensor if self.system.prioritise else 0
        self._answer(worker, partition, version, send_priority(version, own))
        self._flush()

    def _answer(self, worker: int, partition: Partition, version: int, priority: int) -> None:
        tensor = self.model.tensors[partition.tensor]
        size = 4.0 * partition.elements
        if partition.phase < 0:
            size = self.codecs.pull(tensor).payload_bytes(tensor, partition)
        auxiliary = partition.phase >= 0
        for batch in self._replies.add(worker, (partition, version), size, priority, auxiliary):
            self._send(batch)

    def _flush(self) -> None:
        for batch in self._replies.take_all():
            self._send(batch)

    def _send(self, batch: Batch[tuple[Partition, int]]) -> None:
        to = self._workers[batch.to]

        def arrived() -> None:
            for partition, version in batch.items:
                to.answered(partition, version)

        self.send(to, batch, arrived)
