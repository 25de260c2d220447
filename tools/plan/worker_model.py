# SPDX-License-Identifier: Apache-2.0
"""One worker of a simulated job: its accelerator, its threads, what has arrived. Pure."""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Callable, Sequence

from plan import server_model
from plan.engine import Action, Threads
from plan.exchanges import Codecs, Exchange, Layout
from plan.node import Batch, Batches, Node, Process, send_priority
from plan.terms import Cluster, Costs, Model, Partition, System, Tensor

WRITE_CHUNK = 256 << 10  # elements; worker/exchange/next_weights.cc: kChunkElements
STEP_CHUNK = 64 << 10  # backup_model/local_updater.cc: kChunkElements


class WorkerModel(Process):
    """Runs `total` iterations.

    ends[i] is when iteration i's backward pass ended, rounds[i] when all its weights had arrived.
    """

    def __init__(
        self,
        rank: int,
        node: Node,
        cluster: Cluster,
        system: System,
        costs: Costs,
        model: Model,
        codecs: Codecs,
        layout: Layout,
        total: int,
    ) -> None:
        super().__init__(node, cluster, costs)
        self.rank = rank
        self.system = system
        self.model = model
        self.codecs = codecs
        self.partitions = layout.partitions
        self.keys = layout.keys
        self.total = total
        self.ends: list[float] = []
        self.rounds = [0.0] * total
        self.servers: Sequence[server_model.ServerModel] = []
        each = max(1, int(cluster.cores))  # worker/store_options.h: encode_threads
        self._caller = Threads(node.cores)
        self._phases = Threads(node.cores, each)
        self._push = Threads(node.cores, each)
        self._pull = Threads(node.cores, each)
        self._step = Threads(node.cores, each)  # its own, the caller's that waits, the arena's
        self._batches: Batches[tuple[Partition, int]] = Batches(system.coalesce)
        self._key_batches: Batches[tuple[Partition, int]] = Batches(coalesce=True)
        count = len(model.tensors)
        self._lends = [codecs.lends and not keys for keys in layout.keys]
        # The round whose phases are under way, then those that wait for it.
        self._phasing: list[collections.deque[int]] = [collections.deque() for _ in range(count)]
        self._missing = [0] * count  # partitions of the newest pull
        self._pushed = [0] * count  # newest iteration
        self._arrived = [0] * count  # newest version
        self._iteration = 0
        self._layer = 0
        # The step ends after its backward pass, each tensor's write and each partition on loan.
        self._parts = 1 + count
        self._parts += sum(map(len, itertools.compress(self.partitions, self._lends)))
        self._left = 0  # of them

    def connect(self, servers: Sequence[server_model.ServerModel]) -> None:
        self.servers = servers

    def start(self) -> None:
        self._iteration += 1
        self._layer = 0
        self._left = self._parts
        self._forward()

    def _end_part(self) -> None:
        """Begins the next iteration after all parts of this one. To exchange memory is no work."""
        self._left -= 1
        if self._left == 0 and self._iteration < self.total:
            self.start()

    # ---- the accelerator -------------------------------------------------------------------------

    def _forward(self) -> None:
        if self._layer == len(self.model.layers):
            self._backward(len(self.model.layers) - 1)
            return
        layer = self.model.layers[self._layer]
        self._layer += 1
        self.engine.after(layer.forward, self._forward)

    def _backward(self, index: int) -> None:
        if index < 0:
            self.ends.append(self.engine.now)
            self._end_part()
            return
        layer = self.model.layers[index]

        def computed() -> None:
            for tensor in reversed(range(layer.first, layer.first + layer.tensors)):
                self._give(tensor, self._iteration)
            self._backward(index - 1)

        self.engine.after(layer.backward, computed)

    # ---- pushes ----------------------------------------------------------------------------------

    def _priority(self, tensor: int) -> int:
        return -tensor if self.system.prioritise else 0

    def _give(self, tensor: int, round_: int) -> None:
        """Pushes a gradient. The caller copies what it does not lend."""
        work = 0.0 if self._lends[tensor] else self._copy_ms(tensor)
        self._caller.submit(0, work, functools.partial(self._submit, tensor, round_))

    def _copy_ms(self, tensor: int) -> float:
        return self.costs.copy_ms(4.0 * self.model.tensors[tensor].elements)

    def _submit(self, tensor: int, round_: int) -> None:
        if self.keys[tensor]:
            self._phasing[tensor].append(round_)
            if len(self._phasing[tensor]) == 1:
                self._contribute(self.keys[tensor][0], round_)
        else:
            self._push_payloads(tensor, round_, self._codec(tensor).encode_ms)
        self._pushed[tensor] = round_
        if self.system.backup:
            self._step_if_due(tensor)
        else:
            self._request(tensor, round_)

    def _codec(self, tensor: int) -> Exchange:
        return self.codecs.push(self.model.tensors[tensor])

    def _push_payloads(
        self, tensor: int, round_: int, work_ms: Callable[[Tensor, Partition], float]
    ) -> None:
        priority = send_priority(round_, self._priority(tensor))
        workers = self.cluster.workers
        for number, partition in enumerate(self.partitions[tensor]):
            turn = (number + round_ - self.rank) % workers
            sends = turn < self._codec(tensor).senders(workers)
            self._push.submit(
                priority,
                work_ms(self.model.tensors[tensor], partition),
                functools.partial(self._encoded, partition, round_, priority, sends),
            )

    def _encoded(self, partition: Partition, round_: int, priority: int, sends: bool) -> None:
        tensor = self.model.tensors[partition.tensor]
        codec = self._codec(partition.tensor)
        size = codec.payload_bytes(tensor, partition) if sends else 0.0
        leaving = self._batches.add(partition.server, (partition, round_), size, priority)
        if len(self._push) == 0:
            leaving += self._batches.take_all()
        self._dispatch(leaving)
        if self._lends[partition.tensor]:
            self._end_part()

    def _dispatch(self, leaving: Sequence[Batch[tuple[Partition, int]]]) -> None:
        for batch in leaving:
            server = self.servers[batch.to]
            self.send(server, batch, functools.partial(server.pushed, batch.items))

    # ---- phases ----------------------------------------------------------------------------------

    def _contribute(self, key: Partition, round_: int) -> None:
        """As worker/phases/phased_pushes.h: earlier rounds and front layers first."""
        priority = send_priority(round_, self._priority(key.tensor))

        def contributed() -> None:
            size = 4.0 * key.elements
            self._dispatch(
                self._key_batches.add(key.server, (key, round_), size, priority, auxiliary=True)
            )
            self._send_keys_if_idle()
            self._ask(key, round_)

        work = self._codec(key.tensor).phase_ms(self.model.tensors[key.tensor])
        self._phases.submit(priority, work, contributed)

    def _combined(self, key: Partition, round_: int) -> None:
        """Goes on with the next phase. After the last one, writes all of the tensor's payloads."""
        keys = self.keys[key.tensor]
        if key.phase + 1 < len(keys):
            self._contribute(keys[key.phase + 1], round_)
            return
        tensor = self.model.tensors[key.tensor]
        codec = self._codec(key.tensor)

        def written() -> None:
            self._push_payloads(key.tensor, round_, lambda *_: 0.0)
            rounds = self._phasing[key.tensor]
            rounds.popleft()
            if rounds:
                self._contribute(keys[0], rounds[0])
            self._send_keys_if_idle()

        self._phases.submit(
            send_priority(round_, self._priority(key.tensor)),
            sum(codec.encode_ms(tensor, part) for part in self.partitions[key.tensor]),
            written,
        )

    def _send_keys_if_idle(self) -> None:
        """Sends what waits for company if no work of these threads waits that may bring some."""
        if len(self._phases) == 0:
            self._dispatch(self._key_batches.take_all())

    # ---- pulls -----------------------------------------------------------------------------------

    def _request(self, tensor: int, version: int) -> None:
        """Asks for the weights. A request is small and goes before all, so only the way counts."""
        self._missing[tensor] = len(self.partitions[tensor])
        for partition in self.partitions[tensor]:
            self._ask(partition, version)

    def _ask(self, partition: Partition, version: int) -> None:
        server = self.servers[partition.server]
        delay = 0.0 if server.node is self.node else self.cluster.round_trip_ms / 2
        self.engine.after(delay, functools.partial(server.requested, self.rank, partition, version))

    def answered(self, partition: Partition, version: int) -> None:
        """Takes the weights of a partition, or what a phase came to, from the I/O thread."""
        if partition.phase >= 0:
            self._combined(partition, version)
            return
        tensor = self.model.tensors[partition.tensor]
        work = self.codecs.pull(tensor).merge_ms(tensor, partition)
        self._pull.submit(0, work, functools.partial(self._merged, partition.tensor, version))

    def _merged(self, tensor: int, version: int) -> None:
        self._missing[tensor] -= 1
        if self._missing[tensor] > 0:
            return
        self._arrived[tensor] = version
        self.rounds[version - 1] = self.engine.now
        if self.system.backup:
            self._step_if_due(tensor)
        else:
            self._write(tensor)

    # ---- the next iteration's weights ------------------------------------------------------------

    def _write(self, tensor: int) -> None:
        """Writes weights to the parameter's other memory, which nobody reads in this step."""
        self._spread(tensor, WRITE_CHUNK, self._copy_ms(tensor), self._end_part)

    def _step_if_due(self, tensor: int) -> None:
        """As worker/exchange/next_weights.h: one round of lag, front layers first.

        The step writes to the parameter's other memory.
        """
        round_ = self._pushed[tensor]
        if round_ != self._arrived[tensor] + 1:
            return
        work = self.model.tensors[tensor].elements * self.costs.local_ns * 1e-6

        def stepped() -> None:
            self._request(tensor, round_)
            self._end_part()

        self._spread(tensor, STEP_CHUNK, work, stepped)

    def _spread(self, tensor: int, chunk: int, work: float, done: Action) -> None:
        """Does work on a tensor, front layers first and a chunk at a time on each thread."""
        chunks = -(-self.model.tensors[tensor].elements // chunk)
        left = itertools.count(chunks - 1, -1)

        def ended() -> None:
            if next(left) == 0:
                done()

        for _ in range(chunks):
            self._step.submit(-tensor, work / chunks, ended)
