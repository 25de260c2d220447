# SPDX-License-Identifier: Apache-2.0
"""Calls a user's updater from a local store, with the user's keys and shapes."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from slimps import _keys

Updater = Callable[[_keys.Key, Any, Any], None]


def over_shapes(
    updater: Updater, shapes: Mapping[_keys.Key, Any]
) -> Callable[[_keys.Key, np.ndarray, np.ndarray], None]:
    """Returns a function for the store that calls `updater` with shaped arrays.

    The updater works on copies, which it may keep, as with MXNet's arrays. The weight changes when
    the updater returns. `shapes` is read at each call, so it may grow.
    """

    def call(key: _keys.Key, gradient: np.ndarray, weight: np.ndarray) -> None:
        changed = weight.reshape(shapes[key]).copy()
        updater(key, gradient.reshape(shapes[key]).copy(), changed)
        weight[:] = changed.reshape(-1)

    return call
