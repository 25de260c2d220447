# SPDX-License-Identifier: Apache-2.0
"""Gradients on GPUs that were pushed and that the library may still read: they are kept alive."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, Sequence

from slimps.native.arrays import Array, Name
from slimps.native.gpu_array import GpuArray


class GpuGradients:
    """One store's, by key: those of its newest push that no pull or wait has followed."""

    def __init__(self) -> None:
        self._kept: Dict[Name, Any] = {}

    @contextlib.contextmanager
    def pushed(
        self, names: Sequence[Name], gradients: Sequence[Sequence[Array]], pulled: bool
    ) -> Iterator[None]:
        """A call that pushes, and pulls if `pulled` is True. It waits for each key's push before.

        If it fails, the library may read what it was given, and what the push before was given.
        """
        try:
            yield
        except BaseException:
            for name, devices in _on_gpus(names, gradients).items():
                self._kept[name] = (self._kept.get(name), devices)
            raise
        if not pulled:
            self._kept.update(_on_gpus(names, gradients))

    def release(self, names: Sequence[Name]) -> None:
        for name in names:
            self._kept.pop(name, None)

    def clear(self) -> None:
        self._kept.clear()


def _on_gpus(names: Sequence[Name], gradients: Sequence[Sequence[Array]]) -> Dict[Name, Any]:
    """Returns those keys' arrays of which one is on a GPU."""
    return {
        name: devices
        for name, devices in zip(names, gradients)
        if any(isinstance(one, GpuArray) for one in devices)
    }
