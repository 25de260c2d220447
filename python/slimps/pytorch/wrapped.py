# SPDX-License-Identifier: Apache-2.0
"""WrappedOptimizer: what a DistributedOptimizer takes over from the optimizer that it replaces, and
what of both is saved."""

from __future__ import annotations

import functools
import os
from typing import Any, Dict, List

import torch

from slimps import kv
from slimps._checkpoint import LoadedCheckpoint
from slimps.errors import FailedPreconditionError
from slimps.pytorch import changes, params, saved_state


class WrappedOptimizer(torch.optim.Optimizer):
    """Has the groups and the state of another optimizer, which keeps them too."""

    # Set by the class over this one.
    store: kv.KVStore
    _names: List[str]
    _masters: params.Masters
    _weights: changes.Weights
    _backup_model: bool
    _node: Any

    def __new__(cls, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> WrappedOptimizer:
        """Makes an object that isinstance() takes for one of the wrapped optimizer's class too."""
        made: Any = _also
        return super().__new__(made(cls, type(optimizer)))

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups_are_fixed = False
        torch.optim.Optimizer.__init__(self, optimizer.param_groups, optimizer.defaults)
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

    def resume(self) -> LoadedCheckpoint:
        """Takes up the job where it is, as KVStore.resume does, and takes the servers' weights.

        Before the first step; once for all optimizers of a store. What else training needs, as
        buffers of the model and the state of a scheduler, is for save_step's own_state. Collective.

        Raises
            FailedPreconditionError: a checkpoint is to be loaded, and backup_model or node_first
                is on.
            KVStore.load's errors
        """
        loads = self.store.former_rounds == 0 and bool(os.environ.get("SLIMPS_RESUME"))
        if loads:
            self._check_saved_whole()
        found = self.store.resume()
        if loads:
            self._masters.settle()
            self.store.pull(self._names, self._masters.arrays)
            self._masters.publish()
            self._weights.mark()
        return found

    def save_step(self, step: int, own_state: bytes = b"") -> None:
        """Saves the job after so many steps, between two of them, as KVStore.save_step does.

        Raises
            FailedPreconditionError: backup_model or node_first is on.
            KVStore.save_step's errors
        """
        if os.environ.get("SLIMPS_CHECKPOINT"):
            self._check_saved_whole()
            self.store.save_step(step, own_state)

    def _check_saved_whole(self) -> None:
        if self._backup_model or self._node is not None:
            raise FailedPreconditionError(
                "checkpoint: it has not what backup_model and node_first keep beside the store; "
                "expected a DistributedOptimizer without them, or state_dict() on every worker"
            )

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


@functools.lru_cache(maxsize=None)
def _also(cls: Any, kind: Any) -> Any:
    """Returns a class of the same name below `cls` and, if it is torch's, `kind`."""
    if not kind.__module__.startswith("torch.optim."):
        return cls
    return type(cls.__name__, (cls, kind), {"__module__": cls.__module__, "__doc__": cls.__doc__})
