# SPDX-License-Identifier: Apache-2.0
"""Detects changes that the servers do not know: weights between steps, gradients once sent."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

import numpy as np
import torch

from slimps.errors import FailedPreconditionError
from slimps.pytorch import gpu, params
from slimps.pytorch.masters import Masters

_SAMPLED = 32  # elements of a tensor
_NONE = np.empty(0, np.int32)


def _sample(array: np.ndarray) -> np.ndarray:
    """Returns a view of some elements. The stride is odd, so that not all are of one column."""
    flat = array.transpose(np.argsort([-stride for stride in array.strides], kind="stable"))
    return flat.reshape(-1)[:: -(-array.size // _SAMPLED) | 1]


class Weights:
    """The parameters. Between mark() and check(), only the servers may change them.

    torch counts changes of a tensor, except those through `.data` or numpy. To find these, a few
    elements of each parameter on the CPU are compared. A parameter that a script has moved, as
    Module.to() does it, or cuDNN's flatten_parameters, may have the same values as before.
    """

    def __init__(self, names: List[str], parameters: List[torch.Tensor], masters: Masters) -> None:
        self._names = names
        self._parameters = parameters
        self._masters = masters
        self._marks: List[_Mark] = []
        self._samples: List[Dict[int, np.ndarray]] = [{} for _ in names]  # views, by address

    def mark(self) -> None:
        """Notes that the parameters now are as they should be."""
        self._marks = [self._mark_of(index) for index in range(len(self._parameters))]

    def mark_one(self, index: int) -> None:
        self._marks[index] = self._mark_of(index)

    def check(self) -> None:
        """Raises FailedPreconditionError if a parameter was changed since mark()."""
        changed = self.find_change()
        if changed is not None:
            raise FailedPreconditionError(
                "%s; load weights before the DistributedOptimizer is made" % changed
            )

    def find_change(self) -> Optional[str]:
        """Returns, in words, which parameter was changed since mark(); None: none was."""
        for index, (name, parameter, mark) in enumerate(
            zip(self._names, self._parameters, self._marks)
        ):
            if mark.is_still_of(parameter):
                continue
            if not self._masters.agree_with(index):
                return (
                    "parameter %s: was changed outside of the optimizer, and the servers do not "
                    "know" % name
                )
            self._marks[index] = self._mark_of(index)
        return None

    def _mark_of(self, index: int) -> _Mark:
        parameter, samples = self._parameters[index], self._samples[index]
        address = parameter.data_ptr()
        if address not in samples:
            if len(samples) > 1:  # two memories by turns; others have moved away
                samples.clear()
            samples[address] = self._sample_of(index)
        sample = samples[address]
        return _Mark(address, parameter._version, sample, sample.tobytes())

    def _sample_of(self, index: int) -> np.ndarray:
        if gpu.is_on(self._parameters[index]):
            return _NONE
        array = self._masters.array_of(index)
        return _sample(params.bits_of(self._parameters[index]) if array is None else array)


class _Mark(NamedTuple):
    """A parameter's place and what it was like there."""

    address: int
    version: int
    sample: np.ndarray  # a view
    values: bytes  # those of `sample`

    def is_still_of(self, parameter: torch.Tensor) -> bool:
        return (
            parameter.data_ptr() == self.address
            and parameter._version == self.version
            and self.sample.tobytes() == self.values
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
