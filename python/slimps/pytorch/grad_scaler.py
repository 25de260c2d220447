# SPDX-License-Identifier: Apache-2.0
"""Scaling: what a DistributedOptimizer does in the steps of a torch.amp.GradScaler."""

from __future__ import annotations

from typing import List, Optional

import torch

from slimps import kv
from slimps.errors import FailedPreconditionError


class Scaling:
    """Checks, with all workers, that gradients are finite before any worker steps by them.

    The first step has the check in any case: it tells all workers whether one has a scaler. If so,
    each later step has it, too. Stores without rounds (dist_async) do not order steps: there, a
    worker makes no check before its own first step with a scaler.
    """

    def __init__(
        self, store: kv.KVStore, parameters: List[torch.Tensor], push_in_backward: bool
    ) -> None:
        self._store = store
        self._parameters = parameters
        self._push_in_backward = push_in_backward
        self._is_used = False  # a worker has a scaler
        self._asks = store.has_rounds and not push_in_backward  # whether a worker has one

    def may_step(
        self, found_inf: Optional[torch.Tensor] = None, grad_scale: Optional[torch.Tensor] = None
    ) -> bool:
        """Unscales the gradients; returns True if those of all workers are finite.

        Collective if the step has a check.

        found_inf   None: this worker has no scaler, or no data
        grad_scale  None: the script called GradScaler.unscale_

        FailedPreconditionError: gradients go out in backward, and are scaled then.
        """
        if found_inf is not None and self._push_in_backward:
            raise FailedPreconditionError(
                "GradScaler: gradients have gone out scaled; expected "
                "DistributedOptimizer(..., push_in_backward=False)"
            )
        if found_inf is None and not self._is_used and not self._asks:
            return True
        told = [0.0, 0.0] if found_inf is None else [1.0, float(found_inf.item() != 0)]
        scalers, not_finite = self._store.all_reduce_sum(told)
        if scalers > 0 and not self._is_used and self._store.former_rounds > 0:
            raise FailedPreconditionError(
                "GradScaler: this worker was started again, and its former process knew the scale; "
                "expected a job without one, or without restarts of workers"
            )
        self._is_used, self._asks = self._is_used or scalers > 0, False
        if not_finite:
            return False
        for parameter in self._parameters:
            if grad_scale is not None and parameter.grad is not None:
                parameter.grad.div_(grad_scale.to(parameter.grad.device))
        return True

    def check_leaving(self) -> None:
        """Raises FailedPreconditionError if a worker has a scaler. Joins the first check."""
        if not self._is_used:
            self.may_step()
        if self._is_used:
            raise FailedPreconditionError(
                "leave: all workers take part in GradScaler's check; expected skip_step()"
            )
