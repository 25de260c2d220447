# SPDX-License-Identifier: Apache-2.0
"""WrappedOptimizer: what a DistributedOptimizer takes over from the optimizer that it replaces, and
what of both is saved."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, List, Optional

import torch

from slimps import _said_once, kv, native
from slimps._checkpoint import LoadedCheckpoint
from slimps.errors import FailedPreconditionError
from slimps.pytorch import changes, groups, masters, saved_state


class WrappedOptimizer(torch.optim.Optimizer):
    """Has the groups and the state of another optimizer, which keeps them too."""

    # Set by the class over this one.
    store: kv.KVStore
    _names: List[str]
    _masters: masters.Masters
    _weights: changes.Weights
    _parameters: List[torch.Tensor]
    _rates: groups.Rates
    _backup_model: bool
    _node: Any
    _servers: saved_state.ServerState
    _check_between_steps: Callable[[str], None]

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

    def state_dict(self, *, residuals: bool = False) -> Dict[str, Any]:
        """Returns the options and the servers' state as torch.optim lays them out, and their round.

        Any worker calls it, alone or with others; the others may go on into their next step. The
        tensors are float32 on the CPU. With backup_model it is the state of the global weights.
        With dist_async and dist_ssp, "round" is None, and each parameter's state has this worker's
        steps and those of the others that the servers have by then.

        residuals  True: "residuals" has what compression keeps on this worker between pushes. The
                   worker of the same rank in a job as large takes it up again

        The exact state of a whole job is for save_step() and KVStore.save.

        Raises
            FailedPreconditionError: gradients of a step were sent, and step() was not called yet.
        """
        self._check_between_steps("state_dict")
        found, round_ = self._servers.pull()
        self.state.update(found)
        try:
            saved = super().state_dict()
        finally:
            self.state.update(self._servers.placeholders())
        saved["round"] = round_
        if residuals:
            saved["residuals"] = saved_state.residuals_of(self.store)
        return saved

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state_dict(), of a job of any size or of torch's optimizer of the same kind.

        Collective. Rank 0's state counts, and each worker takes the groups' options of its own,
        which are best the same. Load the model's weights before making this optimizer: the servers
        begin with them. With backup_model, the first local step after this lacks the momentum.
        Errors change nothing.

        Raises
            InvalidArgumentError: the state is of another kind of optimizer, or of other parameters.
            FailedPreconditionError: it has options that the servers cannot change, or gradients of
                a step were sent, and step() was not called yet.
            AbortedError: another worker could not read its state.
        """
        given: Dict[str, Any] = {}
        states: Optional[saved_state.Given] = None
        residuals: List[bytes] = []  # those before, once others are loaded

        def read() -> Optional[saved_state.Given]:
            self._check_between_steps("load_state_dict")
            found = saved_state.by_parameter(given, self.param_groups)
            self._rates.check(
                [{**now, **one} for now, one in zip(self.param_groups, given["param_groups"])]
            )
            of_servers = self._servers.read(found) if self.store.rank == 0 else None
            if given.get("residuals") is not None:
                residuals.append(self.store.residuals())
                saved_state.put_residuals(given["residuals"], self.store)
            return of_servers

        def take(_: Any, state_dict: Dict[str, Any]) -> Dict[str, Any]:
            """Keeps the state, which goes to the servers, from torch. Runs after other hooks."""
            nonlocal states
            given.update(state_dict)
            try:
                states = saved_state.agreed(self.store, read)
            except Exception:
                for content in residuals:
                    self.store.put_residuals(content)
                raise
            return {**state_dict, "state": {}}

        register: Any = self.register_load_state_dict_pre_hook  # type: ignore[attr-defined]
        hook = register(take)
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        self.state.update(self._servers.placeholders())
        self._servers.put(states)

    def _hand_state_over(self, spec: native.OptimizerSpec) -> None:
        """Gives the wrapped optimizer's state to the servers: rank 0's. Collective."""
        self._servers = saved_state.ServerState(self.store, self._names, self._parameters, spec)
        own = self._wrapped.state
        has_any = any(own.get(parameter) for parameter in self._parameters)
        leads = self.store.rank == 0
        (of_rank_0,) = self.store.all_reduce_sum([float(has_any and leads)])
        if of_rank_0:
            of_torch = saved_state.agreed(
                self.store, lambda: self._servers.read(own) if leads else None
            )
            self._servers.put(of_torch)
        elif has_any:
            _said_once.warn(
                "state of others",
                "DistributedOptimizer: the state of worker %d's optimizer is dropped, since rank "
                "0's counts, which has none (said once)" % self.store.rank,
            )
        own.update(self._servers.placeholders())

    def _end_state(self) -> None:
        """Takes the placeholders from the wrapped optimizer, which may be used again."""
        for parameter in self._parameters:
            self._wrapped.state.pop(parameter, None)

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
                "expected a DistributedOptimizer without them, or state_dict() on rank 0"
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
