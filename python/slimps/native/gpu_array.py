# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU, as slimps_place in slimps/c_api_calls.h has it."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple


GPU_BY_ADDRESS = -1  # as GpuArray.device: the GPU whose memory it is


# What a GpuArray is made of, as slimps_place.kind has it.
FLOAT32, FLOAT16, BFLOAT16 = 1, 3, 4


class GpuArray(NamedTuple):
    """Contiguous float32 on a GPU, or a gradient of halves. `owner` keeps the memory alive."""

    owner: Any
    address: int
    shape: Tuple[int, ...]
    device: int  # the GPU's number in this process, or GPU_BY_ADDRESS
    stream: int  # whose work makes the values or uses them; 0: the legacy default stream
    kind: int = FLOAT32  # halves: only for Exchange.on_gradient

    @property
    def size(self) -> int:
        """The number of elements."""
        elements = 1
        for extent in self.shape:
            elements *= extent
        return elements

    @property
    def nbytes(self) -> int:
        return (4 if self.kind == FLOAT32 else 2) * self.size
