# SPDX-License-Identifier: Apache-2.0
"""Detects changes that the servers do not know: weights between steps, gradients once sent."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch

from slimps.errors import FailedPreconditionError
from slimps.pytorch import gpu, params

_SAMPLED = 32  # elements of a tensor
_NONE = np.empty(0, np.int32)


def _sample(array: np.ndarray) -> np.ndarray:
    """Returns a view of some elements. The stride is odd, so that not all are of one column."""
    return array.reshape(-1)[:: -(-array.size // _SAMPLED) | 1]


class Weights:
    """The parameters. Between mark() and check(), only the servers may change them.

    torch counts changes of a tensor, except those through `.data` or numpy. To find these, a few
    elements of each parameter on the CPU are compared.
    """

    def __init__(self, names: List[str], parameters: List[torch.Tensor]) -> None:
        samples = [
            _NONE if gpu.is_on(parameter) else _sample(params.bits_of(parameter))
            for parameter in parameters
        ]
        # A parameter on a GPU may move, as cuDNN's flatten_parameters does it.
        addresses = [0 if gpu.is_on(one) else one.data_ptr() for one in parameters]
        self._watched = list(zip(names, parameters, addresses, samples))
        self._marks: List[Tuple[int, bytes]] = []

    def mark(self) -> None:
        """Notes that the parameters now are as they should be."""
        self._marks = [
            (parameter._version, sample.tobytes()) for _, parameter, _, sample in self._watched
        ]

    def check(self) -> None:
        """Raises FailedPreconditionError if a parameter was changed or moved since mark()."""
        for (name, parameter, address, sample), (version, values) in zip(
            self._watched, self._marks
        ):
            if (
                (address and parameter.data_ptr() != address)
                or parameter._version != version
                or sample.tobytes() != values
            ):
                raise FailedPreconditionError(
                    "parameter %s: was changed outside of the optimizer, and the servers do not "
                    "know; load weights "
                    "before the DistributedOptimizer is made" % name
                )


class Sent(NamedTuple):
    """A gradient that was sent. torch counts its changes, as those of clip_grad_norm_."""

    gradient: torch.Tensor
    version: int

    @classmethod
    def now(cls, gradient: torch.Tensor) -> "Sent":
        return cls(gradient, gradient._version)

    def is_still(self, gradient: Optional[torch.Tensor]) -> bool:
        """True if `gradient` is the tensor that was sent, and torch has counted no change."""
        return gradient is self.gradient and gradient._version == self.version
