# SPDX-License-Identifier: Apache-2.0
"""What becomes of gradients: the part of KVStore with optimizers, updaters, gradient compression,
policies, and what of these a job saves and resumes from."""

from __future__ import annotations

import os
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from slimps import _compression, _keys, _store_base, _updater, _whole_file, native
from slimps import optimizer as _optimizer


class GradientTreatment(_store_base.StoreBase):
    """Thread-safe."""

    def set_optimizer(self, optimizer: Any) -> None:
        """Makes the servers run `optimizer`, one update per round.

        The gradient of an update is the sum over workers and devices.

        `optimizer` is one of slimps.optimizer, or a torch.optim.SGD, Adam or AdamW, whose options
        are read. Collective: every worker calls it with equal arguments; rank 0's count, from the
        next round on. It may be called before or after init, and again later; once rounds have
        begun, call it between a pull and the next push. An optimizer of another kind begins without
        momentum.

        Raises
            FailedPreconditionError: a DistributedOptimizer or CommHookState of this store has set
                another optimizer, and a store has one optimizer for all keys.
            InvalidArgumentError: the servers do not have this optimizer or one of its options.
        """
        self.set_optimizer_spec(_optimizer.from_any(optimizer).spec())

    def set_optimizer_spec(self, spec: native.OptimizerSpec, relying: str = "") -> None:
        """Does what set_optimizer does, for the spec() of an Optimizer.

        `relying` names the caller if it needs this optimizer to stay; "" if it does not.
        """
        self._optimizer.check(spec, relying or "set_optimizer", bool(relying))
        self._store.set_optimizer(spec)
        self._optimizer.settle(spec, relying)

    def optimizer_states(self) -> bytes:
        """Returns the content that save_optimizer_states writes. Collective."""
        return self._store.save_optimizer_states()

    def put_optimizer_states(self, content: bytes) -> None:
        """Restores the result of optimizer_states(), as load_optimizer_states does. Collective."""
        self._store.load_optimizer_states(content)

    def pull_states(
        self, names: Sequence[_keys.Key], arrays: Sequence[Sequence[np.ndarray]]
    ) -> List[Tuple[int, int, int]]:
        """Writes what the servers' optimizer keeps of each key into its arrays, packed float32.

        SGD keeps a momentum, Adam two moments; arrays beyond these stay as they are. Returns for
        each key the number of tensors, how often they were updated, and after which round. Any
        worker calls it without the others.
        """
        return self._store.pull_optimizer_states(names, arrays)

    def put_states(
        self,
        names: Sequence[_keys.Key],
        arrays: Sequence[Sequence[np.ndarray]],
        updates: Sequence[int],
    ) -> None:
        """Replaces what the servers' optimizer keeps of these keys by rank 0's. Collective."""
        self._store.put_optimizer_states(names, arrays, updates)

    def residuals(self) -> bytes:
        """Returns what the codecs keep of this worker's gradients between pushes (residuals).

        Waits until the servers have acknowledged all pushes so far.
        """
        return self._store.save_residuals()

    def put_residuals(self, content: bytes) -> None:
        """Restores the result of residuals(). Call it before the next push.

        The content must come from the same rank of a job with the same keys.
        """
        self._store.load_residuals(content)

    def save_optimizer_states(self, fname: str) -> None:
        """Writes the servers' optimizer state (momentum, moments, counts) to the file `fname`.

        Collective; each worker writes the same content under its own `fname`. The file is written
        whole or not at all. It holds neither the weights nor the position in a learning-rate
        schedule (give slimps.lr_scheduler's `begin_update` for that).
        """
        _whole_file.write(fname, self.optimizer_states(), "%d.%d" % (self.rank, os.getpid()))

    def load_optimizer_states(self, fname: str) -> None:
        """Restores a file of save_optimizer_states. Call it before the next push. Collective.

        The keys must have the same names and sizes; the number of servers may differ.
        """
        with open(fname, "rb") as saved:
            self.put_optimizer_states(saved.read())

    def set_updater(self, updater: Optional[_updater.Updater]) -> None:
        """Lets a local store call `updater(key, gradient, weight)` once per push and key.

        It takes an optimizer's place. `key` is the key as it was given; `gradient` is the summed
        push and `weight` the value, numpy arrays of float32 in the key's shape. The updater changes
        `weight` in place. It must not call the store. If it raises, push raises the same and the
        value stays. None removes the updater: pushes replace values again.

        Raises
            UnimplementedError: the store is distributed.
        """
        shapes = self._keys.shapes  # not the store: nobody would see that cycle
        self._store.set_updater(None if updater is None else _updater.over_shapes(updater, shapes))

    # MXNet's scripts call it by its private name.
    _set_updater = set_updater

    def set_gradient_compression(self, compression_params: Union[str, Mapping[str, Any]]) -> None:
        """Compresses pushes from now on. Call it on every worker alike, before the first push.

        `compression_params` is one of
            a dict with "type": MXNet's form, as {"type": "2bit", "threshold": 0.5}; every key is
            then
                compressed, and float16 pushes are refused;
            a dict with "compressor_type": BytePS's form;
            a str: a codec spec, as create's `compression`.

        Raises
            InvalidArgumentError: the codec or an option is unknown, or does not go with the store's
                type or optimizer.
            FailedPreconditionError: a push was made before.
        """
        self._compression = _compression.put(compression_params, self._store)

    def set_policy(self, policy: str) -> None:
        """Sets what decides which codec a push uses, as create's `policy`.

        Call it on every worker alike, before the first push. Keys that are initialised after the
        first push are sent raw.

        Raises
            InvalidArgumentError: the policy or an option is unknown, or does not go with the
                store's type, its other options or its tensors.
            FailedPreconditionError: a push was made before.
            UnimplementedError: a policy that adapts in a local store.
        """
        self._store.set_policy(policy)
        self._policy = policy
