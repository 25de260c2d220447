"""What a script changed and the servers do not know: weights between two steps, gradients after they had gone."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch

from slimps.errors import FailedPreconditionError

_SAMPLED = 32  # elements of a tensor


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
    """A gradient that has gone out."""

    gradient: torch.Tensor
    version: int

    @classmethod
    def now(cls, gradient: torch.Tensor) -> "Sent":
        return cls(gradient, gradient._version)

    def is_still(self, gradient: Optional[torch.Tensor]) -> bool:
        """Whether `gradient` is it, unchanged."""
        return gradient is self.gradient and gradient._version == self.version
