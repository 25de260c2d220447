# SPDX-License-Identifier: Apache-2.0
"""What a plan is made of: a model, a system, a cluster and what its machines' work costs. Pure."""

from __future__ import annotations

import bisect
import dataclasses
from typing import Mapping, Optional, Sequence

RAW = "none"  # the codec that sends fp32 as it is
PARTITION_ELEMENTS = 1 << 18  # worker/kvstore.h: partition_bytes


@dataclasses.dataclass(frozen=True)
class Tensor:
    """`shape`: () if it is not known, as from a trace."""

    name: str
    elements: int
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Layer:
    """Tensors [first, first + tensors) whose gradients are ready together. Times in ms."""

    first: int
    tensors: int
    forward: float
    backward: float


@dataclasses.dataclass(frozen=True)
class Model:
    """Tensors and layers in forward order. `ratio`: fp32 communication / compute, if published."""

    name: str
    tensors: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    ratio: Optional[float] = None

    def gradient_bytes(self) -> int:
        return 4 * sum(tensor.elements for tensor in self.tensors)

    def compute_ms(self) -> float:
        return sum(layer.forward + layer.backward for layer in self.layers)

    def scaled(self, compute_ms: float) -> Model:
        """Returns the model with this compute time, divided among its layers as before.

        ValueError: it has no compute time that could be scaled.
        """
        before = self.compute_ms()
        if before <= 0:
            raise ValueError("model %s has no compute time to scale" % self.name)
        by = compute_ms / before
        return dataclasses.replace(
            self,
            layers=tuple(
                dataclasses.replace(layer, forward=layer.forward * by, backward=layer.backward * by)
                for layer in self.layers
            ),
        )


@dataclasses.dataclass(frozen=True)
class System:
    """Options of a job. A tensor of at least `threshold` fp32 bytes is compressed."""

    name: str
    push: str = RAW
    pull: str = RAW
    backup: bool = False
    threshold: int = 0
    pull_threshold: int = 0
    coalesce: bool = True
    prioritise: bool = True

    def push_codec(self, tensor: Tensor) -> str:
        return self.push if 4 * tensor.elements >= self.threshold else RAW

    def pull_codec(self, tensor: Tensor) -> str:
        return self.pull if 4 * tensor.elements >= self.pull_threshold else RAW


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Machines and their links.

    together        a worker and a server share a node; else each has a node of its own
    hosts           instead: each server's node, then each worker's, as places.hosts has them
    bits_per_second of each link, each way; None: links cost nothing
    efficiency      fraction of the link's bits that carry messages
    cores           of a node, or of the machine if one machine stands for all nodes
    one_machine     all nodes share the cores, as in slimps bench cluster
    shared_memory   a worker and a server of one node pass payloads by reference
    ahead_bytes     what a sender has handed over to one link, beyond the reach of priorities
    """

    workers: int = 2
    servers: int = 2
    together: bool = True
    bits_per_second: Optional[float] = 1e9
    round_trip_ms: float = 0.0
    efficiency: float = 0.95
    cores: float = 2.0
    one_machine: bool = False
    shared_memory: bool = True
    ahead_bytes: float = 3e6
    hosts: tuple[int, ...] = ()

    def places(self) -> tuple[int, ...]:
        """Returns the number of each server's node, then of each worker's."""
        if self.hosts:
            return self.hosts
        first = 0 if self.together else self.servers
        return tuple(range(self.servers)) + tuple(range(first, first + self.workers))

    def bytes_per_ms(self) -> Optional[float]:
        return (
            None if self.bits_per_second is None else self.bits_per_second * self.efficiency / 8e3
        )


class Curve:
    """Milliseconds by elements: straight lines between measured points, and on beyond them."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        self.points = sorted(points)

    def __call__(self, elements: float) -> float:
        first = self.points[0]
        if elements <= first[0] or len(self.points) == 1:
            return first[1] * elements / first[0]
        at = bisect.bisect_left(self.points, (elements, 0.0), 1, len(self.points) - 1)
        (low, low_ms), (high, high_ms) = self.points[at - 1], self.points[at]
        return low_ms + (high_ms - low_ms) * (elements - low) / (high - low)


@dataclasses.dataclass(frozen=True)
class CodecCosts:
    """One codec on one core: encoding with feedback, adding one payload to a sum, payload bytes.

    spec     as the product takes it; its codec says what a tensor's exchange is (exchanges.py)
    phases   what all phases before the payload take a worker, if there are any
    further  adding each further payload to a sum, where that takes less than the first
    ratio    of fp32's bytes to the payload's, instead of what the codec sends
    """

    encode: Curve
    decode: Curve
    payload: Curve  # bytes instead of milliseconds
    spec: str = ""
    phases: Optional[Curve] = None
    further: Optional[Curve] = None
    ratio: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Costs:
    """What the machines' work takes, in ms of one core."""

    codecs: Mapping[str, CodecCosts]
    copy_ns: float  # a byte: read and written
    step_ns: float  # an element: the optimizer's step from a sum
    local_ns: float  # an element: the backup model's local step
    message_ms: float  # a message, at each of its ends
    item_ms: float  # a partition's push or answer, at each end: the way between its threads
    wire_ns: float  # a byte at one end of the network: the kernel's copy, the checksum

    def copy_ms(self, size: float) -> float:
        return size * self.copy_ns * 1e-6

    def local_ms(self, partitions: int) -> float:
        """Returns the CPU time of one end of a message within a node, whose bytes stay in place."""
        return self.message_ms + partitions * self.item_ms

    def wire_ms(self, partitions: int, size: float) -> float:
        """Returns the CPU time of one end of a message on the network."""
        return self.local_ms(partitions) + size * self.wire_ns * 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Elements [first, first + elements) of a tensor, or the auxiliary key of one of its phases.

    Each is an object of its own: they compare by identity.
    """

    tensor: int
    elements: int
    server: int
    first: int = 0
    phase: int = -1  # -1: of the tensor itself
