# SPDX-License-Identifier: Apache-2.0
"""What of a store can be saved and loaded: a part of Store."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from slimps.native import structs
from slimps.native.arrays import Keys, Name, address
from slimps.native.library import lib, text


class States:
    """Thread-safe, as Store, which has _run() and _keys."""

    _run: Callable[..., None]
    _keys: Keys

    def save_optimizer_states(self) -> bytes:
        return self._bytes_of(lib.slimps_save_optimizer_states)

    def load_optimizer_states(self, content: bytes) -> None:
        self._run(lib.slimps_load_optimizer_states, content, len(content))

    def pull_optimizer_states(
        self, names: Sequence[Name], arrays: Sequence[Sequence[np.ndarray]]
    ) -> List[Tuple[int, int, int]]:
        """Writes each key's state into its arrays. Returns each key's count, updates and round."""
        states = self._states_of(names, arrays, [0] * len(names))
        self._run(lib.slimps_pull_optimizer_states, states, len(states), lent=(states, arrays))
        return [(one.count, one.updates, one.round) for one in states]

    def put_optimizer_states(
        self, names: Sequence[Name], arrays: Sequence[Sequence[np.ndarray]], updates: Sequence[int]
    ) -> None:
        states = self._states_of(names, arrays, updates)
        self._run(lib.slimps_put_optimizer_states, states, len(states), lent=(states, arrays))

    def _states_of(
        self, names: Sequence[Name], arrays: Sequence[Sequence[np.ndarray]], updates: Sequence[int]
    ) -> Any:
        states = (structs.OptimizerState * len(names))()
        for state, name, tensors, count in zip(states, names, arrays, updates):
            state.struct_size = ctypes.sizeof(state)
            state.key = self._keys.struct(name)
            state.tensors[: len(tensors)] = [address(one) for one in tensors]
            state.elements = tensors[0].size if tensors else 0
            state.count, state.updates = len(tensors), count
        return states

    def save_residuals(self) -> bytes:
        return self._bytes_of(lib.slimps_save_residuals)

    def load_residuals(self, content: bytes) -> None:
        self._run(lib.slimps_load_residuals, content, len(content))

    def save(self, folder: str, own_state: bytes) -> None:
        self._run(lib.slimps_save, text(folder, "directory"), own_state, len(own_state))

    def await_saved(self) -> None:
        self._run(lib.slimps_await_saved)

    def load(self, folder: str) -> Tuple[int, bytes]:
        """Returns the rounds that were saved, and this worker's own state."""
        path, rounds = text(folder, "directory"), ctypes.c_uint64()

        def load(store: Any, content: Any, length: Any) -> int:
            return int(lib.slimps_load(store, path, content, length, byref(rounds)))

        own_state = self._bytes_of(load)
        return rounds.value, own_state

    def _bytes_of(self, save: Callable[..., int]) -> bytes:
        content, length = c_void_p(), ctypes.c_size_t()
        self._run(save, byref(content), byref(length))
        try:
            return ctypes.string_at(content, length.value)
        finally:
            lib.slimps_free(content)
