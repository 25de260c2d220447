# SPDX-License-Identifier: Apache-2.0
"""Calls a user's updater from a local store, with the user's keys and shapes."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from slimps import _keys

Updater = Callable[[_keys.Key, Any, Any], None]


def over_shapes(
    updater: Updater, shapes: Mapping[_keys.Key, Any]
) -> Callable[[str, memoryview, memoryview], None]:
    """Returns a function for the store that calls `updater` with typed keys and shaped arrays.

    The updater works on copies, which it may keep, as with MXNet's arrays. The weight changes when
    the updater returns. `shapes` is read at each call, so it may grow.
    """

    def call(name: str, gradient: memoryview, weight: memoryview) -> None:
        # The C++ side's typed name: "i:" or "s:" before the key.
        key: _keys.Key = int(name[2:]) if name.startswith("i:") else name[2:]
        held = np.asarray(weight)
        changed = held.reshape(shapes[key]).copy()
        updater(key, np.array(gradient).reshape(shapes[key]), changed)
        held[...] = changed.reshape(-1)

    return call
