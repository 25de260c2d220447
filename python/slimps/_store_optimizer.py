"""The optimizer of a store: the servers have one for all its keys, so whoever shares the store must want the same."""

from __future__ import annotations

from typing import Optional

from slimps import _slimps
from slimps.errors import FailedPreconditionError

# What holds for all keys. Learning rate and weight decay are told key by key by those who share a store.
_OF_ALL_KEYS = ("kind", "momentum", "nesterov", "beta1", "beta2", "epsilon", "clip_gradient", "average", "rescale_grad")


class StoreOptimizer:
    """What the servers were told, and who relies on it: from then on nobody may tell them anything else.

        optimizer.check(spec, "CommHookState")     # before the servers are told
        optimizer.settle(spec, "CommHookState")    # after that
    """

    def __init__(self) -> None:
        self._spec: Optional[_slimps.OptimizerSpec] = None
        self._relying = ""

    @property
    def is_set(self) -> bool:
        return self._spec is not None

    def check(self, spec: _slimps.OptimizerSpec, who: str, relies: bool = True) -> None:
        """Raises FailedPreconditionError: somebody relies on another one, or `who` does and another one is there."""
        if self._spec is None or not (relies or self._relying):
            return
        for name in _OF_ALL_KEYS:
            there, wanted = getattr(self._spec, name), getattr(spec, name)
            if there != wanted:
                raise FailedPreconditionError(
                    "%s: the servers run one optimizer for all keys of a store, and %s has set this store's: expected "
                    "%s=%r as it has, got %r" % (who, self._relying or "set_optimizer", name, there, wanted))

    def settle(self, spec: _slimps.OptimizerSpec, relying: str) -> None:
        """The servers have `spec` now; `relying` may be empty."""
        self._spec = spec
        self._relying = self._relying or relying
