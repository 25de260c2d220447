# SPDX-License-Identifier: Apache-2.0
"""Scaling: what a DistributedOptimizer does in the steps of a torch.amp.GradScaler."""

from __future__ import annotations

from typing import List, Optional

import torch

from slimps import kv
from slimps.errors import FailedPreconditionError


class Scaling:
    """Checks, with all workers, that gradients are finite before any worker steps by them.

    is_used  a GradScaler was seen; from then on every worker's step has that check
    """

    def __init__(
        self, store: kv.KVStore, parameters: List[torch.Tensor], push_in_backward: bool
    ) -> None:
        self._store = store
        self._parameters = parameters
        self._push_in_backward = push_in_backward
        self.is_used = False

    def unscale(self, found_inf: torch.Tensor, grad_scale: Optional[torch.Tensor]) -> bool:
        """Unscales the gradients; returns True if those of all workers are finite. Collective.

        grad_scale  None: the script called GradScaler.unscale_

        FailedPreconditionError: gradients go out in backward, and are scaled then.
        """
        if self._push_in_backward:
            raise FailedPreconditionError(
                "GradScaler: gradients have gone out scaled; expected "
                "DistributedOptimizer(..., push_in_backward=False)"
            )
        self.is_used = True
        if not self.all_finite(found_inf.item() == 0):
            return False
        if grad_scale is not None:
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scale.to(parameter.grad.device))
        return True

    def all_finite(self, mine: bool) -> bool:
        """Returns True if all workers pass True. Collective."""
        return self._store.all_reduce_sum([float(not mine)])[0] == 0
