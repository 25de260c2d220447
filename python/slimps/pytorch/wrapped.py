# SPDX-License-Identifier: Apache-2.0
"""WrappedOptimizer: what a DistributedOptimizer takes over from the optimizer that it replaces, and
what of both is saved."""

from __future__ import annotations

from typing import Any, Dict

import torch

from slimps import kv
from slimps.errors import FailedPreconditionError
from slimps.pytorch import saved_state


class WrappedOptimizer(torch.optim.Optimizer):
    """Has the groups and the state of another optimizer, which keeps them too."""

    store: kv.KVStore  # set by the class over this one

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups_are_fixed = False
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._groups_are_fixed = True
        self._wrapped = optimizer
        self._share_groups()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the wrapped optimizer's options, the servers' state, and this worker's residuals.

        Collective. Each worker saves its own result, since residuals differ. Save the model's
        weights separately, inside global_weights(). The result does not hold the servers' momentum
        as the backup model has seen it, so the first step after loading lacks it. It does not hold
        the part of compressed pulls that the servers have not sent yet. Hooks of state_dict() and
        load_state_dict() see the wrapped optimizer's part.
        """
        return saved_state.saved(super().state_dict(), self.store)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restores a state_dict() of the same rank. Call it before the first step. Collective.

        Load the model's weights before making this optimizer: the servers begin with them.

        Raises
            InvalidArgumentError: it is no state_dict() of a DistributedOptimizer, or is from
                another rank or number of workers.
        """
        saved_state.check(state_dict, self.store)
        super().load_state_dict(state_dict["optimizer"])
        saved_state.restore(state_dict, self.store)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if not self._groups_are_fixed:  # the base class's constructor
            super().add_param_group(param_group)
            return
        raise FailedPreconditionError(
            "add_param_group: the servers know the parameters from the beginning; expected "
            "it before the DistributedOptimizer is made"
        )

    def __getstate__(self) -> Any:
        raise FailedPreconditionError(
            "DistributedOptimizer: cannot be copied or pickled, it is part of a job; "
            "state_dict() can"
        )

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """Takes over loaded groups, as the wrapped optimizer's kind does."""
        self._wrapped.__setstate__(state)
        self._share_groups()

    def _share_groups(self) -> None:
        """Makes groups and state those of the wrapped optimizer, which schedulers may hold."""
        self.param_groups = self._wrapped.param_groups
        self.state = self._wrapped.state
