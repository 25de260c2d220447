# SPDX-License-Identifier: Apache-2.0
"""Keys, and which value belongs to which key."""

import numpy as np
import pytest

import slimps
from slimps import _keys


def test_ints_of_any_library_and_strs_are_keys():
    assert _keys.as_key(np.int64(3)) == 3 and type(_keys.as_key(np.int64(3))) is int
    assert _keys.as_key("w") == "w"
    assert _keys.as_key(-(2**63)) == -(2**63)


@pytest.mark.parametrize("key", [True, 1.0, None, b"w", 2**63, (1,)])
def test_anything_else_is_no_key(key):
    with pytest.raises(
        slimps.InvalidArgumentError, match="key: expected an int of 64 bits or a str, got "
    ):
        _keys.as_key(key)


def test_values_of_a_key_are_gathered_in_order():
    assert _keys.group("a", 1, "value") == {"a": [1]}
    assert _keys.group("a", [1, 2], "value") == {"a": [1, 2]}
    grouped = _keys.group(["b", "a", "b"], [1, [2, 3], 4], "value")
    assert grouped == {"b": [1, 4], "a": [2, 3]} and list(grouped) == ["b", "a"]


def test_lists_must_match():
    with pytest.raises(
        ValueError, match="value: expected a list, as the keys are one, got ndarray"
    ):
        _keys.pair([1, 2], np.zeros(2), "value")
    with pytest.raises(ValueError, match="out: expected 2, one per key, got 1"):
        _keys.pair([1, 2], [0], "out")


def test_a_store_has_one_kind_of_keys():
    kind = _keys.KeyKind()
    with pytest.raises(
        ValueError, match="key 'a': expected int, as the store's other keys are, got str"
    ):
        kind.check([1, "a"])
    kind.check(["a"])  # the kind is not settled yet
    kind.settle([1])
    with pytest.raises(ValueError, match="key 'a': expected int"):
        kind.check(["a"])
    kind.check([2])
