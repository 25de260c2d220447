# SPDX-License-Identifier: Apache-2.0
"""NodeExchange: an exchange of which one worker of each node takes part, with the node's gradients.

    gradients --pack--> buckets --sum over the node--> the leader pushes, the servers step
    weights   <-unpack- buckets <--leader's weights--- the leader pulls

Buckets lie on the node's device: the host, or each worker's GPU.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np
import torch

from slimps import _said_once, native
from slimps.pytorch import gpu, params
from slimps.pytorch.node import Node

_BUCKET = 1 << 18  # elements: a sum is worth its messages, and the link need not wait for long


class Bucket:
    """Tensors' values in one tensor, which also marks those that have a gradient.

    values  a flat tensor for each, over the bucket's memory
    marks   how many workers gave a gradient; a multiple of that after the sum is scaled
    """

    def __init__(self, indices: List[int], sizes: List[int], device: torch.device) -> None:
        self.indices = indices
        self.tensor = torch.zeros(sum(sizes) + len(sizes), device=device)
        *self.values, self.marks = torch.split(self.tensor, [*sizes, len(sizes)])
        self.work: Any = None
        self.clear()

    def fill(self, place: int, gradient: torch.Tensor) -> None:
        """Takes a gradient, on its GPU's current stream."""
        self.values[place].copy_(gradient.detach().reshape(-1))
        self.marks[place] = 1
        self._filled_on.add(gpu.current_stream(self.tensor))

    def await_filling(self) -> None:
        """Lets the current stream wait for the streams that have filled the bucket.

        Layers of a model may run on several streams, and backward uses theirs.
        """
        here = gpu.current_stream(self.tensor)
        for stream in self._filled_on - {here}:
            here.wait_stream(stream)

    def clear(self) -> None:
        self.tensor.zero_()
        self._filled_on: Set[Any] = set()  # streams; None on the host
        self.missing = len(self.indices)  # gradients that have not come


class NodeExchange:
    """Has native.Exchange's methods, over the leader's exchange. Gradients are tensors.

    arrays  the parameters' own memory on the host, which holds the weights

    Sums are started in the same order by all members, from the last parameter to the first as
    backward goes, each as soon as it and those before it are complete. end_step starts the rest.
    """

    def __init__(
        self,
        exchange: native.Exchange,
        node: Node,
        names: Sequence[str],
        arrays: Sequence[np.ndarray],
        settings: native.ExchangeSettings,
    ) -> None:
        self._exchange = exchange
        self._node = node
        self._names = names
        self._weights = [torch.from_numpy(array).view(-1) for array in arrays]
        self._settings = settings
        self._buckets: List[Bucket] = []
        self._home: Dict[int, Tuple[Bucket, int]] = {}  # by parameter: its bucket and place there
        indices: List[int] = []
        for index in reversed(range(len(arrays))):
            indices.append(index)
            sizes = [arrays[one].size for one in indices]
            if index == 0 or sum(sizes) >= _BUCKET:
                self._buckets.append(Bucket(indices, sizes, node.device))
                self._home.update((one, (self._buckets[-1], i)) for i, one in enumerate(indices))
                indices = []
        self._started = self._pushed = 0  # buckets of this step
        self._clipping = native.Clipping()
        node.leave_rounds_to_leader()

    def begin_step(self) -> None:
        with self._node.ended_by_errors():
            if self._node.leads:
                self._exchange.begin_step()
            self._share_weights()
        self._started = self._pushed = 0

    def on_gradient(self, index: int, gradient: torch.Tensor) -> None:
        with self._node.ended_by_errors():
            self._on_gradient(index, gradient)

    def _on_gradient(self, index: int, gradient: torch.Tensor) -> None:
        bucket, place = self._home[index]
        bucket.missing -= 1
        if self._settings.skip_non_finite and not gradient.isfinite().all():
            _said_once.warn(
                "non_finite",
                "gradient of %s: has NaN or infinity, and this worker contributes nothing to this "
                "round (said once)" % self._names[index],
            )
        else:
            bucket.fill(place, gradient)
        while self._started < len(self._buckets) and not self._buckets[self._started].missing:
            self._start()
        while self._pushed < self._started and self._node.is_done(self._buckets[self._pushed].work):
            self._push()

    def end_step(self) -> None:
        with self._node.ended_by_errors():
            while self._started < len(self._buckets):
                self._start()
            while self._pushed < self._started:
                self._push()
            if self._node.leads:
                self._exchange.end_step()
            if self._settings.clip_norm is not None:
                self._share_clipping()

    def set_hyper(
        self, index: int, learning_rate: float, weight_decay: float, momentum: float
    ) -> None:
        if self._node.leads:
            self._exchange.set_hyper(index, learning_rate, weight_decay, momentum)

    def set_clip_norm(self, clip_norm: Optional[float]) -> None:
        self._settings.clip_norm = clip_norm
        if self._node.leads:
            self._exchange.set_clip_norm(clip_norm)

    def clipping(self) -> native.Clipping:
        return self._clipping

    def _share_clipping(self) -> None:
        found = self._exchange.clipping()
        told = [found.norm, found.scale, found.skipped_steps]
        shared = torch.tensor(told, dtype=torch.float64, device=self._node.device)
        self._node.wait(self._node.share(shared))
        norm, scale, skipped = shared.tolist()
        self._clipping = native.Clipping(norm, scale, int(skipped))

    def drain(self) -> None:
        """Waits as native.Exchange's. With the backup model all workers of the node call it."""
        with self._node.ended_by_errors():
            self._exchange.drain()
            if self._settings.backup_model:
                self._share_weights()

    def times(self) -> Dict[str, float]:
        return self._exchange.times()

    def _start(self) -> None:
        bucket = self._buckets[self._started]
        bucket.await_filling()
        bucket.work = self._node.sum(bucket.tensor)
        self._started += 1

    def _push(self) -> None:
        """Waits for the sum of the next bucket. The leader pushes it."""
        bucket = self._buckets[self._pushed]
        self._node.wait(bucket.work)
        self._pushed += 1
        if not self._node.leads:
            return
        # A worker that is alone on its node has filled the bucket on the current stream.
        alone = bucket.work is None
        with contextlib.nullcontext() if alone else gpu.beside_other_work(bucket.tensor):
            bucket.tensor.mul_(self._node.share_of_mean)
            for index, values, mark in zip(bucket.indices, bucket.values, bucket.marks.tolist()):
                if mark > 0:
                    memory = params.gradient_memory(values, self._names[index])
                    self._exchange.on_gradient(index, memory)

    def _share_weights(self) -> None:
        """Copies the leader's weights into the arrays of the others. Clears the buckets."""
        for bucket in self._buckets:
            if self._node.leads and not self._node.is_alone:
                for index, values in zip(bucket.indices, bucket.values):
                    values.copy_(self._weights[index], non_blocking=True)
            bucket.work = self._node.share(bucket.tensor)
        for bucket in self._buckets:
            self._node.wait(bucket.work)
            if not self._node.leads:
                for index, values in zip(bucket.indices, bucket.values):
                    self._weights[index].copy_(values)
            bucket.clear()
