# SPDX-License-Identifier: Apache-2.0
"""One worker of a simulated job: its accelerator, its threads, what has arrived. Pure."""

from __future__ import annotations

import functools
from typing import Callable, Sequence

from plan import server_model
from plan.engine import Thread
from plan.exchanges import Codecs, Exchange, Layout
from plan.node import Batch, Batches, Node, Process, send_priority
from plan.terms import Cluster, Costs, Model, Partition, System, Tensor


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
        self._caller = Thread(node.cores)
        self._phases = Thread(node.cores)
        self._push = Thread(node.cores)
        self._pull = Thread(node.cores)
        self._updater = Thread(node.cores)
        self._batches: Batches[tuple[Partition, int]] = Batches(system.coalesce)
        self._key_batches: Batches[tuple[Partition, int]] = Batches(coalesce=True)
        count = len(model.tensors)
        self._missing = [0] * count  # partitions of the newest pull
        self._pushed = [0] * count  # newest iteration
        self._arrived = [0] * count  # newest version
        self._ready = [0] * count  # the newest iteration for which the forward pass has weights
        self._to_write = 0  # parameters that lack the next iteration's weights
        self._iteration = 1
        self._layer = 0
        self._waits = False  # the training thread, for the step's end

    def connect(self, servers: Sequence[server_model.ServerModel]) -> None:
        self.servers = servers

    def start(self) -> None:
        self._ready = [1] * len(self._ready)
        self._forward()

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
            self._end_iteration()
            return
        layer = self.model.layers[index]

        def computed() -> None:
            for tensor in reversed(range(layer.first, layer.first + layer.tensors)):
                self._copy(tensor, self._iteration)
            self._backward(index - 1)

        self.engine.after(layer.backward, computed)

    def _end_iteration(self) -> None:
        self.ends.append(self.engine.now)
        if self._iteration == self.total:
            return
        self._waits = True
        self._to_write = len(self._ready)
        for tensor, iteration in enumerate(self._ready):
            if iteration > self._iteration:
                self._write(tensor)

    def _write(self, tensor: int) -> None:
        """Writes a parameter, as the step's end does with what is there and with what comes."""
        work = self.costs.copy_ms(4.0 * self.model.tensors[tensor].elements)
        self._updater.submit(-tensor, work, self._written)

    def _written(self) -> None:
        self._to_write -= 1
        if self._to_write == 0:
            self._waits = False
            self._iteration += 1
            self._layer = 0
            self._forward()

    # ---- pushes ----------------------------------------------------------------------------------

    def _priority(self, tensor: int) -> int:
        return -tensor if self.system.prioritise else 0

    def _copy(self, tensor: int, round_: int) -> None:
        work = self.costs.copy_ms(4.0 * self.model.tensors[tensor].elements)
        self._caller.submit(0, work, functools.partial(self._submit, tensor, round_))

    def _submit(self, tensor: int, round_: int) -> None:
        if self.keys[tensor]:
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

    def _dispatch(self, leaving: Sequence[Batch[tuple[Partition, int]]]) -> None:
        for batch in leaving:
            server = self.servers[batch.to]
            self.send(server, batch, functools.partial(server.pushed, batch.items))

    # ---- phases ----------------------------------------------------------------------------------

    def _contribute(self, key: Partition, round_: int) -> None:
        """As worker/phases/phased_pushes.h: one thread, earlier rounds and front layers first."""
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
            self._send_keys_if_idle()

        self._phases.submit(
            send_priority(round_, self._priority(key.tensor)),
            sum(codec.encode_ms(tensor, part) for part in self.partitions[key.tensor]),
            written,
        )

    def _send_keys_if_idle(self) -> None:
        """Sends what waits for company if no work of this thread waits that may bring some."""
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
            self._make_ready(tensor, version + 1)

    def _make_ready(self, tensor: int, iteration: int) -> None:
        self._ready[tensor] = iteration
        if self._waits:
            self._write(tensor)

    # ---- the backup model ------------------------------------------------------------------------

    def _step_if_due(self, tensor: int) -> None:
        """As worker/exchange/next_weights.h: one round of lag, front layers first."""
        round_ = self._pushed[tensor]
        if round_ != self._arrived[tensor] + 1:
            return
        work = self.model.tensors[tensor].elements * self.costs.local_ns * 1e-6

        def stepped() -> None:
            self._request(tensor, round_)
            self._make_ready(tensor, round_ + 1)

        self._updater.submit(-tensor, work, stepped)
