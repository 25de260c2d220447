# SPDX-License-Identifier: Apache-2.0
"""Keys as MXNet's KVStore takes them: one key or a list, ints or strs, one kind per store."""

from __future__ import annotations

import operator
from typing import Any, Dict, List, Optional, Tuple, Union

from slimps.errors import InvalidArgumentError

Key = Union[int, str]


def as_key(key: Any) -> Key:
    """Returns a key as int or str. InvalidArgumentError: `key` is anything else, also a bool."""
    if isinstance(key, str):
        return key
    if not isinstance(key, bool):
        try:
            number = operator.index(key)  # numpy's integers too
        except TypeError:
            pass
        else:
            if -(2**63) <= number < 2**63:
                return number
    raise InvalidArgumentError("key: expected an int of 64 bits or a str, got %r" % (key,))


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def pair(keys: Any, values: Any, what: str) -> List[Tuple[Key, Any]]:
    """Returns (key, value) pairs. `what` names `values` in messages ("value", "out").

    InvalidArgumentError: `keys` is a list, and `values` is not a list of the same length.
    """
    if not is_list(keys):
        return [(as_key(keys), values)]
    if not is_list(values):
        raise InvalidArgumentError(
            "%s: expected a list, as the keys are one, got %s" % (what, type(values).__name__)
        )
    if len(keys) != len(values):
        raise InvalidArgumentError(
            "%s: expected %d, one per key, got %d" % (what, len(keys), len(values))
        )
    return [(as_key(key), value) for key, value in zip(keys, values)]


def group(keys: Any, values: Any, what: str) -> Dict[Key, List[Any]]:
    """Returns all arrays of each key, with the keys in order of their first place in `keys`.

    A key may be listed several times.
    """
    grouped: Dict[Key, List[Any]] = {}
    for key, value in pair(keys, values, what):
        grouped.setdefault(key, []).extend(value if is_list(value) else [value])
    return grouped


class KeyKind:
    """The kind of one store's keys, int or str: that of the first initialised key."""

    def __init__(self) -> None:
        self._kind: Optional[type] = None

    def check(self, keys: Any) -> None:
        """Raises InvalidArgumentError if a key is of the other kind or `keys` mix both kinds."""
        kind = self._kind
        for key in keys:
            kind = kind or type(key)
            if type(key) is not kind:
                raise InvalidArgumentError(
                    "key %r: expected %s, as the store's other keys are, got %s"
                    % (key, kind.__name__, type(key).__name__)
                )

    def settle(self, keys: Any) -> None:
        for key in keys:
            self._kind = self._kind or type(key)
