# SPDX-License-Identifier: Apache-2.0
"""How codecs exchange a tensor: what they take, how they cut it, phases, bytes, work. Pure.

    codecs = Codecs(system, costs)
    codec = codecs.push(tensor)
    codec.encode_ms(tensor, partition)

Most codecs see a partition as so many elements. Those of low rank see a matrix, so their bytes and
their work depend on its shape. Codecs with phases first have their servers combine auxiliary keys.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Mapping, Optional, Sequence

from plan.terms import PARTITION_ELEMENTS, RAW, CodecCosts, Costs, Model, Partition, System, Tensor

BLOCK = 4096  # compress/codec/codec.h: kBlockElements
LOW_RANK_HEADER = 32  # bytes, compress/format/low_rank.h
MAX_PARTITION_ELEMENTS = 62 << 18  # proto/partition_limits.h
MAX_FACTOR_ELEMENTS = 12 << 20  # compress/codec/lowrank/powersgd.cc


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One codec, by elements alone."""

    costs: CodecCosts
    copy_ns: float

    needs_shapes = False

    def takes(self, tensor: Tensor) -> bool:
        """False: the tensor travels as it would without the codec."""
        del tensor
        return True

    def cut(self, tensor: Tensor, servers: int) -> int:
        """Returns the elements of a partition."""
        del tensor, servers
        return PARTITION_ELEMENTS

    def keys(self, tensor: Tensor) -> Sequence[int]:
        """Returns the elements of each phase's auxiliary key."""
        del tensor
        return ()

    def senders(self, workers: int) -> int:
        """Returns how many workers send a payload for a partition."""
        return workers

    def phase_ms(self, tensor: Tensor) -> float:
        """Returns the worker's time for one phase."""
        del tensor
        return 0.0

    def payload_bytes(self, tensor: Tensor, partition: Partition) -> float:
        del tensor
        if self.costs.ratio is not None:
            return 4.0 * partition.elements / self.costs.ratio
        return self.costs.payload(partition.elements)

    def encode_ms(self, tensor: Tensor, partition: Partition) -> float:
        del tensor
        return self.costs.encode(partition.elements)

    def sum_ms(self, tensor: Tensor, partition: Partition, payloads: int) -> float:
        """Returns the server's time to add up so many payloads."""
        del tensor
        first = self.costs.decode(partition.elements)
        further = first if self.costs.further is None else self.costs.further(partition.elements)
        return first + (payloads - 1) * further

    def merge_ms(self, tensor: Tensor, partition: Partition) -> float:
        """Returns the worker's time to take an answer."""
        return self.sum_ms(tensor, partition, 1)


class Raw(Exchange):
    """fp32 as it is: nothing is encoded, and answers are copied."""

    def payload_bytes(self, tensor: Tensor, partition: Partition) -> float:
        return 4.0 * partition.elements

    def encode_ms(self, tensor: Tensor, partition: Partition) -> float:
        return 0.0

    def merge_ms(self, tensor: Tensor, partition: Partition) -> float:
        return 4.0 * partition.elements * self.copy_ns * 1e-6


class Lent(Raw):
    """fp32 from memory that is lent: a copy is sent."""

    def encode_ms(self, tensor: Tensor, partition: Partition) -> float:
        return self.merge_ms(tensor, partition)


class Thc(Exchange):
    """One phase, in which the workers agree on a norm for each block."""

    def keys(self, tensor: Tensor) -> Sequence[int]:
        return (-(-tensor.elements // BLOCK),)

    def phase_ms(self, tensor: Tensor) -> float:
        assert self.costs.phases is not None
        return self.costs.phases(tensor.elements)


class LowRank(Exchange):
    """A matrix: the first dimension has its rows, all others are one row."""

    needs_shapes = True

    def rank(self) -> int:
        raise NotImplementedError

    def takes(self, tensor: Tensor) -> bool:
        if len(tensor.shape) < 2:
            return False
        return is_worthwhile(tensor.elements, tensor.shape[0], columns_of(tensor), self.rank())

    def payload_bytes(self, tensor: Tensor, partition: Partition) -> float:
        if self.costs.ratio is not None:
            return 4.0 * partition.elements / self.costs.ratio
        rows, columns = rows_of(tensor, partition), columns_of(tensor)
        if not is_worthwhile(partition.elements, rows, columns, self.rank()):
            return LOW_RANK_HEADER + 4.0 * (1 + partition.elements)  # one row, whole
        return LOW_RANK_HEADER + 4.0 * self.rank() * (rows + columns)


class Atomo(LowRank):
    """Singular vectors of each partition, about as many as its budget."""

    def rank(self) -> int:
        return math.ceil(float(option(self.costs.spec, "s", "3")))

    def encode_ms(self, tensor: Tensor, partition: Partition) -> float:
        rows, columns = rows_of(tensor, partition), columns_of(tensor)
        if not is_worthwhile(partition.elements, rows, columns, self.rank()):
            return 8.0 * partition.elements * self.copy_ns * 1e-6
        # Decomposing takes rows * columns * min(rows, columns) steps; square ones were measured.
        side = (rows * columns * min(rows, columns)) ** (1 / 3)
        return self.costs.encode(side * side)


class PowerSgd(LowRank):
    """Factors of the whole tensor in two phases. Then one worker sends their product, cut at rows.

    Its payload is a copy of factors that are there already.
    """

    def rank(self) -> int:
        return int(option(self.costs.spec, "rank", "4"))

    def takes(self, tensor: Tensor) -> bool:
        return super().takes(tensor) and max(self.keys(tensor)) <= MAX_FACTOR_ELEMENTS

    def cut(self, tensor: Tensor, servers: int) -> int:
        columns = columns_of(tensor)
        each = (tensor.shape[0] - 1) // servers + 1
        return min(each, max(1, MAX_PARTITION_ELEMENTS // columns)) * columns

    def keys(self, tensor: Tensor) -> Sequence[int]:
        return self.rank() * tensor.shape[0], self.rank() * columns_of(tensor)

    def senders(self, workers: int) -> int:
        return 1

    def phase_ms(self, tensor: Tensor) -> float:
        assert self.costs.phases is not None
        return self.costs.phases(tensor.elements) / 2

    def encode_ms(self, tensor: Tensor, partition: Partition) -> float:
        return self.payload_bytes(tensor, partition) * self.copy_ns * 1e-6


FAMILIES = {"thc": Thc, "atomo": Atomo, "powersgd": PowerSgd}


def family_of(spec: str) -> type[Exchange]:
    return FAMILIES.get(spec.partition(":")[0], Exchange)


def option(spec: str, name: str, default: str) -> str:
    """Returns an option of a codec's spec, such as rank of "powersgd:rank=4"."""
    words = [word.partition("=") for word in spec.partition(":")[2].split(",")]
    return next((value for key, _, value in words if key == name), default)


def is_worthwhile(elements: int, rows: int, columns: int, rank: int) -> bool:
    """As compress/codec/lowrank/matrix.h."""
    return rows > 1 and elements // 2 // (rows + columns) >= rank


def columns_of(tensor: Tensor) -> int:
    return max(1, tensor.elements // tensor.shape[0])


def rows_of(tensor: Tensor, partition: Partition) -> int:
    """Returns how many rows have a part in the partition."""
    columns = columns_of(tensor)
    return -(-(partition.first % columns + partition.elements) // columns)


class Codecs:
    """The codecs of one system. KeyError: `costs` has no codec of this name."""

    def __init__(self, system: System, costs: Costs) -> None:
        self._system = system
        self._raw = Raw(costs.codecs[RAW], costs.copy_ns)
        # Gradients are lent if a codec may read them (worker/store: TensorTraffic::TakesLoans).
        self.lends = system.push != RAW
        self._raw_push = Lent(costs.codecs[RAW], costs.copy_ns) if self.lends else self._raw
        self._known: dict[str, Exchange] = {}
        for name in {system.push, system.pull} - {RAW}:
            known = costs.codecs[name]
            self._known[name] = family_of(known.spec)(known, costs.copy_ns)

    def push(self, tensor: Tensor) -> Exchange:
        return self._of(self._system.push_codec(tensor), tensor, self._raw_push)

    def pull(self, tensor: Tensor) -> Exchange:
        return self._of(self._system.pull_codec(tensor), tensor, self._raw)

    def _of(self, name: str, tensor: Tensor, raw: Exchange) -> Exchange:
        codec = self._known.get(name, raw)
        return codec if codec.takes(tensor) else raw


def has_shapes(model: Model) -> bool:
    return all(tensor.shape for tensor in model.tensors)


def needs_shapes(costs: Costs, codec: str) -> bool:
    """True if the codec cannot be planned for a model whose shapes are unknown."""
    return codec in costs.codecs and family_of(costs.codecs[codec].spec).needs_shapes


# ---- where partitions lie ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Layout:
    """By tensor: its partitions, and the auxiliary keys of its phases."""

    partitions: Sequence[Sequence[Partition]]
    keys: Sequence[Sequence[Partition]]


def layout_of(model: Model, servers: int, codecs: Optional[Codecs] = None) -> Layout:
    """Returns each tensor's partitions, placed as scheduler/placement.cc does.

    The largest goes first, to the server with the fewest bytes. Without codecs: of raw tensors.
    """
    pieces: list[tuple[int, str, int, int, int]] = []  # -elements, name, first, tensor, phase
    for index, tensor in enumerate(model.tensors):
        codec = None if codecs is None else codecs.push(tensor)
        size = PARTITION_ELEMENTS if codec is None else codec.cut(tensor, servers)
        for first in range(0, tensor.elements, size):
            elements = min(size, tensor.elements - first)
            pieces.append((-elements, tensor.name, first, index, -1))
        for phase, elements in enumerate(() if codec is None else codec.keys(tensor)):
            pieces.append((-elements, "#%d:%s" % (phase, tensor.name), 0, index, phase))
    load = [0] * servers
    partitions: list[dict[int, Partition]] = [{} for _ in model.tensors]
    keys: list[dict[int, Partition]] = [{} for _ in model.tensors]
    for minus_elements, _, first, index, phase in sorted(pieces):
        server = load.index(min(load))
        load[server] -= minus_elements
        placed = Partition(index, -minus_elements, server, first, phase)
        if phase < 0:
            partitions[index][first] = placed
        else:
            keys[index][phase] = placed
    return Layout(by_number(partitions), by_number(keys))


def by_number(found: Sequence[Mapping[int, Partition]]) -> list[list[Partition]]:
    return [[each[number] for number in sorted(each)] for each in found]


def pushed_bytes(model: Model, system: System, servers: int, costs: Costs) -> float:
    """Returns the payload bytes that a worker pushes in an iteration, those of phases too."""
    codecs = Codecs(system, costs)
    layout = layout_of(model, servers, codecs)
    total = 0.0
    for tensor, parts, keys in zip(model.tensors, layout.partitions, layout.keys):
        codec = codecs.push(tensor)
        total += sum(codec.payload_bytes(tensor, part) for part in parts)
        total += sum(4.0 * key.elements for key in keys)
    return total
