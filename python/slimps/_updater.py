"""A user's updater as local stores call it: with keys and arrays as the user knows them."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from slimps import _keys

Updater = Callable[[_keys.Key, Any, Any], None]


def over_shapes(updater: Updater, shapes: Mapping[_keys.Key, Any]) -> Callable[[str, memoryview, memoryview], None]:
    """Calls `updater` with the key in its own type and arrays in the key's shape; `shapes` may grow.

    It works on copies, the updater's to keep, as MXNet's arrays are; the weight changes once it has returned.
    """

    def call(name: str, gradient: memoryview, weight: memoryview) -> None:
        key: _keys.Key = int(name[2:]) if name.startswith("i:") else name[2:]
        held = np.asarray(weight)
        changed = held.reshape(shapes[key]).copy()
        updater(key, np.array(gradient).reshape(shapes[key]), changed)
        held[...] = changed.reshape(-1)

    return call
