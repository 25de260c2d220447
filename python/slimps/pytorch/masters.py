# SPDX-License-Identifier: Apache-2.0
"""Masters: where the exchange writes a torch model's weights, and how the parameters get them."""

from __future__ import annotations

from typing import Any, List, Optional, Protocol

import numpy as np
import torch

from slimps.pytorch import gpu, params


class TakesMemory(Protocol):
    def set_memory(self, indices: List[int], arrays: List[np.ndarray]) -> None:
        ...


class Masters:
    """Float32 arrays that the servers know: a parameter's memory, or memory beside it on the host.

    A contiguous float32 parameter on the CPU has two memories by turns: it computes on one, the
    other is its master, and publish() exchanges them. If anything else in this process uses the
    parameter's memory (a state_dict() that is kept, a view in a graph, a tied tensor), or it is not
    torch's own (shared, of numpy, moved), publish() copies, so that those see the new weights.
    Other parameters have copies, which are contiguous: half-precision ones, those on a GPU, those
    of another layout (channels_last).

        masters = Masters(names, parameters)
        masters.add_spares()       # else a parameter's memory is its master, where it can be
        masters.exchange = Exchange(masters.arrays, masters.are_spare)
        masters.publish()          # the parameters get their masters' values
        masters.settle()           # before the arrays change

    InvalidArgumentError: a parameter is not a dense tensor of floats on the CPU or GPU.
    """

    def __init__(self, names: List[str], parameters: List[torch.Tensor]) -> None:
        for name, parameter in zip(names, parameters):
            params.check(parameter, "parameter %s" % name, params.FLOATS)
        self.exchange: Optional[TakesMemory] = None  # told of each exchange of memory
        self._parameters = parameters
        self._masters = [
            gpu.master_of(parameter) if _needs_copy(parameter) else parameter.detach()
            for parameter in parameters
        ]
        self._may_have_spares = [
            not _needs_copy(parameter) and _is_torchs_own(parameter) for parameter in parameters
        ]
        self.arrays = [params.floats(master) for master in self._masters]
        # What the parameters hold, in the masters or in the other of two memories.
        self._shown, self._shown_arrays = list(self._masters), list(self.arrays)
        self.are_spare = [False] * len(parameters)
        self._published: List[Any] = []  # events of GPUs

    def add_spares(self) -> None:
        """Gives a second memory to each parameter that is its own master."""
        for index, may_have_spare in enumerate(self._may_have_spares):
            if may_have_spare:
                self._masters[index] = self._masters[index].clone()
                self.arrays[index] = params.floats(self._masters[index])
                self.are_spare[index] = True

    def publish(self, index: Optional[int] = None) -> None:
        """Gives the parameters, or one, their masters' values, rounded. torch counts a change.

        A backward pass through an older graph then raises torch's error. GPUs' copies go on; what
        their current streams are given from then on comes after them.
        """
        on_gpus, exchanged = [], []
        for one in range(len(self._parameters)) if index is None else (index,):
            parameter, master = self._parameters[one], self._masters[one]
            if gpu.is_on(parameter):
                on_gpus.append((parameter, master))
            elif self._may_exchange(one):
                exchanged.append(one)
            elif parameter.data_ptr() != master.data_ptr():
                if self._shown[one] is not master:
                    self._shown[one].copy_(master)
                if parameter.data_ptr() != self._shown[one].data_ptr():
                    np.copyto(params.bits_of(parameter), params.bits_of(master.to(parameter.dtype)))
            _count_change(parameter)
        self._published += gpu.start_writing(on_gpus)
        if exchanged and self.exchange is not None:
            self.exchange.set_memory(exchanged, [self._shown_arrays[one] for one in exchanged])
        for one in exchanged:
            self._parameters[one].data = self._masters[one]
            self._exchange(one)

    def count_changes(self) -> None:
        """Lets torch count changes of the parameters that are not published yet."""
        for parameter in self._parameters:
            _count_change(parameter)

    def settle(self) -> None:
        """Waits until no copy reads the masters."""
        while self._published:
            self._published.pop().synchronize()

    def copies(self) -> List[np.ndarray]:
        """Returns copies of what was published, for restore()."""
        # Not of the arrays: share_memory_() gives a tensor other memory, and frees the former.
        return [params.floats(shown).copy() for shown in self._shown]

    def restore(self, copies: List[np.ndarray]) -> None:
        """Gives the masters the values that were published at copies(); none for an empty list."""
        for array, values in zip(self.arrays, copies):
            np.copyto(array, values)

    def agree_with(self, index: int) -> bool:
        """Returns True if a parameter has the published values, in memory of its own.

        That becomes the first of its two memories.
        """
        parameter, shown = self._parameters[index], self._shown[index]
        may_be_one = _is_torchs_own(parameter) and not _needs_copy(parameter)  # before bits_of
        agrees = parameter.data_ptr() != shown.data_ptr() and np.array_equal(
            params.bits_of(gpu.on_host(parameter)), params.bits_of(shown.to(parameter.dtype))
        )
        if agrees and may_be_one and shown is not self._masters[index]:
            self._shown[index] = parameter.detach()
            self._shown_arrays[index] = params.floats(self._shown[index])
        return agrees

    def array_of(self, index: int) -> Optional[np.ndarray]:
        """Returns the array that lies where a parameter does; None: its memory is not known."""
        array = self._shown_arrays[index]
        return array if self._parameters[index].data_ptr() == array.ctypes.data else None

    def _may_exchange(self, index: int) -> bool:
        """Returns True if a parameter has a second memory, and nobody else uses the first."""
        master, shown = self._masters[index], self._shown[index]
        return (
            master is not shown
            and self.array_of(index) is not None
            and _users_of(shown) == _users_of(master) + 1
        )

    def _exchange(self, one: int) -> None:
        self._masters[one], self._shown[one] = self._shown[one], self._masters[one]
        self.arrays[one], self._shown_arrays[one] = self._shown_arrays[one], self.arrays[one]


def _needs_copy(parameter: torch.Tensor) -> bool:
    return parameter.dtype in params.HALVES or gpu.is_on(parameter) or not parameter.is_contiguous()


_count_change: Any = getattr(torch.autograd.graph, "increment_version")


def _is_torchs_own(tensor: Any) -> bool:
    """Returns True if torch allocated a tensor's memory, and no process or numpy shares it."""
    return bool(tensor.untyped_storage().resizable() and not tensor.is_shared())


def _users_of(tensor: Any) -> int:
    """Returns how many tensors of this process have the tensor's memory."""
    count: Any = getattr(torch._C, "_storage_Use_Count")
    return int(count(tensor.untyped_storage()._cdata))
