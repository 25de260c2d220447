# SPDX-License-Identifier: Apache-2.0
"""What of a store can be saved and loaded: a part of Store."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any, Callable, Tuple

from slimps.native.library import lib, text


class States:
    """Thread-safe, as Store, which has _run()."""

    _run: Callable[..., None]

    def save_optimizer_states(self) -> bytes:
        return self._bytes_of(lib.slimps_save_optimizer_states)

    def load_optimizer_states(self, content: bytes) -> None:
        self._run(lib.slimps_load_optimizer_states, content, len(content))

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
