# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a store.

The servers have one optimizer for all keys of a store, so everything that shares the store must
want the same one.
"""

from __future__ import annotations

from typing import Optional

from slimps import native
from slimps.errors import FailedPreconditionError

# The options that hold for all keys. Learning rate and weight decay are set key by key where a
# store is shared.
_OF_ALL_KEYS = (
    "kind",
    "momentum",
    "nesterov",
    "beta1",
    "beta2",
    "epsilon",
    "clip_gradient",
    "average",
    "rescale_grad",
)


class StoreOptimizer:
    """The optimizer that the servers have, and the first object that relies on it.

    As soon as something relies on it, no other optimizer is accepted.

        optimizer.check(spec, "CommHookState")     # before the servers are told
        optimizer.settle(spec, "CommHookState")    # after that
    """

    def __init__(self) -> None:
        self._spec: Optional[native.OptimizerSpec] = None
        self._relying = ""

    @property
    def is_set(self) -> bool:
        return self._spec is not None

    def check(self, spec: native.OptimizerSpec, who: str, relies: bool = True) -> None:
        """Raises FailedPreconditionError if `spec` conflicts with the optimizer that is set.

        It conflicts if it differs, and either `who` relies on it or something relies on the one
        that is set.
        """
        if self._spec is None or not (relies or self._relying):
            return
        for name in _OF_ALL_KEYS:
            there, wanted = getattr(self._spec, name), getattr(spec, name)
            if there != wanted:
                raise FailedPreconditionError(
                    "%s: the servers run one optimizer for all keys of a store, and %s has set "
                    "this store's: expected %s=%r as it has, got %r"
                    % (who, self._relying or "set_optimizer", name, there, wanted)
                )

    def settle(self, spec: native.OptimizerSpec, relying: str) -> None:
        """Notes that the servers now have `spec`, and what relies on it ("": nothing)."""
        self._spec = spec
        self._relying = self._relying or relying
