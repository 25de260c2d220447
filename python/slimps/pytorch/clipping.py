# SPDX-License-Identifier: Apache-2.0
"""ClipsNorm: what a DistributedOptimizer says of clipping by the mean gradient's norm."""

from __future__ import annotations

from typing import Any, List, Optional

from slimps.errors import FailedPreconditionError
from slimps.pytorch import arguments


class ClipsNorm:
    # Set by the class over this one.
    _exchange: Any
    _out: List[Any]
    _clip_norm: Optional[float]

    @property
    def clip_norm(self) -> Optional[float]:
        """The limit of the mean gradient's norm; None: none. Set it on all workers alike.

        Raises
            FailedPreconditionError: gradients of the step have gone out.
            InvalidArgumentError: it is not above 0, or the servers cannot clip.
        """
        return self._clip_norm

    @clip_norm.setter
    def clip_norm(self, clip_norm: Optional[float]) -> None:
        arguments.check_clip_norm(clip_norm)
        if any(sent is not None for sent in self._out):
            raise FailedPreconditionError(
                "clip_norm: gradients of this step have gone out in backward; expected it before "
                "the step's first, as in DistributedOptimizer(..., clip_norm=%s)" % clip_norm
            )
        self._exchange.set_clip_norm(clip_norm)
        self._clip_norm = clip_norm

    @property
    def grad_norm(self) -> float:
        """The norm of the newest step's mean gradient before clipping, as clip_grad_norm_ returns.

        With backup_model, of the step before. NaN or infinite: the servers skipped that step. 0.0
        before the first step and without clip_norm.
        """
        return float(self._exchange.clipping().norm)

    @property
    def skipped_steps(self) -> int:
        """How many steps the servers skipped since their norm was not finite (clip_norm)."""
        return int(self._exchange.clipping().skipped_steps)
