"""What a script changed and the servers do not know: weights between two steps, gradients after they had gone."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch

from slimps.errors import FailedPreconditionError

_SAMPLED = 32  # elements of a tensor
_LOOKED_THROUGH = 10  # of the first steps all gradients are, then of every so many


def _sample(array: np.ndarray) -> np.ndarray:
    """Some elements of it, a view: an odd number apart, so that they are not all of one column."""
    return array.reshape(-1)[::-(-array.size // _SAMPLED) | 1]


class Weights:
    """The parameters, which nobody but the servers may change between mark() and check().

    torch counts changes, but not those through `.data` or numpy: for these a few elements of each are compared.
    """

    def __init__(self, names: List[str], parameters: List[torch.Tensor], arrays: List[np.ndarray]) -> None:
        self._watched = list(zip(names, parameters, arrays, [_sample(array) for array in arrays]))
        self._marks: List[Tuple[int, bytes]] = []

    def mark(self) -> None:
        """They are as they should be."""
        self._marks = [(parameter._version, sample.tobytes()) for _, parameter, _, sample in self._watched]

    def check(self) -> None:
        """Raises FailedPreconditionError: one was changed since mark(), or lies elsewhere."""
        for (name, parameter, array, sample), (version, values) in zip(self._watched, self._marks):
            if (parameter.data_ptr() != array.ctypes.data or parameter._version != version
                    or sample.tobytes() != values):
                raise FailedPreconditionError(
                    "parameter %s: was changed outside of the optimizer, and the servers do not know; load weights "
                    "before the DistributedOptimizer is made" % name)


class Sent(NamedTuple):
    """A gradient that has gone out in step `step`, from 0.

    torch does not count what goes through `.data`, as its own clip_grad_value_ does: for this a sum over all bits is
    compared, in the first steps and now and then, since a script that changes gradients does it over and over.
    """

    gradient: torch.Tensor
    version: int
    bits: Optional[int]

    @classmethod
    def now(cls, gradient: torch.Tensor, packed: np.ndarray, step: int) -> "Sent":
        """`packed`: the same as an array."""
        looks = step < _LOOKED_THROUGH or step % _LOOKED_THROUGH == 0
        return cls(gradient, gradient._version, _sum_of_bits(packed) if looks else None)

    def is_still(self, gradient: Optional[torch.Tensor]) -> bool:
        """Whether `gradient` is it, unchanged."""
        return (gradient is self.gradient and gradient._version == self.version
                and (self.bits is None or self.bits == _sum_of_bits(gradient.detach().contiguous().numpy())))


def _sum_of_bits(packed: np.ndarray) -> int:
    return int(packed.reshape(-1).view(np.uint32).sum(dtype=np.uint32))
