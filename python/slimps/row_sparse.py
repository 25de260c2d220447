# SPDX-License-Identifier: Apache-2.0
"""RowSparse: some rows of a tensor, such as the gradient of an embedding.

    gradient = slimps.RowSparse([2, 0, 2], np.ones((3, 16), np.float32), shape=(1000, 16))
    store.push("embedding", gradient)                             # row 2 counts twice
    rows = slimps.RowSparse.empty((1000, 16))
    store.row_sparse_pull("embedding", out=rows, row_ids=[7, 2])  # rows.indices is [2, 7] then
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np

from slimps import _arrays, _keys
from slimps.errors import InvalidArgumentError


def as_ids(value: Any, what: str) -> np.ndarray:
    """Returns row ids as contiguous int64 in one dimension.

    `value` is an array of any shape except a scalar, of ints or of whole numbers of a floating
    type. A floating type's numbers must be below the first one that may stand for its neighbour:
    2,048 in float16, 2^24 in float32.

    Raises
        InvalidArgumentError: `value` is anything else.
    """
    try:
        ids = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(
            "%s: expected an array of ints on the CPU or of torch, got %s (%s)"
            % (what, type(value).__name__, error)
        ) from None
    if ids.size == 0:
        return np.zeros(0, np.int64)
    whole = ids.dtype.kind in "iu" or (ids.dtype.kind == "f" and bool((ids == np.floor(ids)).all()))
    if ids.ndim == 0 or not whole or not np.isfinite(ids).all():
        raise InvalidArgumentError(
            "%s: expected an array of ints, got shape %s of %s" % (what, ids.shape, ids.dtype)
        )
    if ids.dtype.kind == "f":
        exact = 2 ** (np.finfo(ids.dtype).nmant + 1)
        beyond = ids[np.abs(ids) >= exact]
        if beyond.size:
            raise InvalidArgumentError(
                "%s: expected an array of ints, got %d in %s, which is exact below %d alone"
                % (what, beyond[0], ids.dtype, exact)
            )
    return np.ascontiguousarray(ids, dtype=np.int64).reshape(-1)


class RowSparse:
    """Some rows of a tensor of `shape`: rows[i], of shape[1:], belongs to row indices[i].

    indices  int64, in any order; rows with equal indices add up
    rows     float32 or float16; shares memory with the given array if that is a numpy or torch
             array

    A pull replaces both: indices are then sorted, each once, and rows keep their type.

    Raises
        InvalidArgumentError: an index is out of range, or the shapes do not fit.
    """

    def __init__(self, indices: Any, rows: Any, shape: Sequence[int]) -> None:
        self.shape: Tuple[int, ...] = tuple(int(size) for size in shape)
        if not self.shape or min(self.shape) < 0:
            raise InvalidArgumentError(
                "RowSparse: expected a shape of at least one dimension, got %s" % (shape,)
            )
        self.indices = as_ids(indices, "RowSparse indices")
        self.rows = _arrays.as_numpy(rows, "RowSparse rows")
        expected = (self.indices.size,) + self.shape[1:]
        if self.rows.shape != expected:
            raise InvalidArgumentError(
                "RowSparse: expected rows of shape %s, for %d indices of shape %s, got %s"
                % (expected, self.indices.size, self.shape, self.rows.shape)
            )
        outside = self.indices[(self.indices < 0) | (self.indices >= self.shape[0])]
        if outside.size:
            raise InvalidArgumentError(
                "RowSparse: expected indices from 0 to %d, got %d" % (self.shape[0] - 1, outside[0])
            )

    @classmethod
    def from_dense(cls, array: Any) -> "RowSparse":
        """Returns a RowSparse with the rows of a dense tensor that are not all zero."""
        whole = _arrays.as_numpy(array, "RowSparse")
        if whole.ndim == 0:
            raise InvalidArgumentError("RowSparse: expected at least one dimension, got a scalar")
        columns = int(np.prod(whole.shape[1:]))
        indices = np.flatnonzero(whole.reshape(whole.shape[0], columns).any(axis=1))
        return cls(indices, whole[indices], whole.shape)

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: Any = np.float32) -> "RowSparse":
        """Returns a RowSparse without rows, to pull into."""
        return cls([], np.zeros((0,) + tuple(shape)[1:], dtype), shape)

    def dense(self) -> np.ndarray:
        """Returns the whole tensor as a float32 array of `shape`, zero where there is no row."""
        whole = np.zeros(self.shape, np.float32)
        np.add.at(whole, self.indices, self.rows.astype(np.float32))
        return whole

    def replace(self, indices: np.ndarray, rows: np.ndarray) -> None:
        """Replaces indices and rows by the result of a pull, converted to the type of `rows`."""
        self.indices = indices
        self.rows = rows.astype(self.rows.dtype)

    def __repr__(self) -> str:
        return "RowSparse(%d rows of shape %s)" % (self.indices.size, self.shape)


# ---- what the store makes of them ---------------------------------------------------------------


def split(
    grouped: Dict[_keys.Key, List[Any]]
) -> Tuple[Dict[_keys.Key, List[Any]], Dict[_keys.Key, RowSparse]]:
    """Returns the keys with dense arrays, and the keys with RowSparse (joined to one per key).

    Raises
        InvalidArgumentError: one key has both, or has RowSparse of different shapes.
    """
    dense: Dict[_keys.Key, List[Any]] = {}
    sparse: Dict[_keys.Key, RowSparse] = {}
    for key, values in grouped.items():
        rows = [value for value in values if isinstance(value, RowSparse)]
        if not rows:
            dense[key] = values
            continue
        if len(rows) != len(values) or any(one.shape != rows[0].shape for one in rows):
            raise InvalidArgumentError(
                "key %r: expected arrays alone, or RowSparse of one shape" % (key,)
            )
        sparse[key] = (
            rows[0]
            if len(rows) == 1
            else RowSparse(
                np.concatenate([one.indices for one in rows]),
                np.concatenate([one.rows.astype(np.float32) for one in rows]),
                rows[0].shape,
            )
        )
    return dense, sparse


def requests(
    keys: Any, outs: Any, row_ids: Any
) -> Iterator[Tuple[_keys.Key, RowSparse, np.ndarray]]:
    """Yields (key, out, ids) for each RowSparse that a pull fills.

    `row_ids` is one array for all, or a list: one array per key, or per key a list with one array
    per output, or one array per output.

    Raises
        InvalidArgumentError: an output is dense, or the number of id arrays is another.
    """
    if row_ids is None:
        raise InvalidArgumentError("row_sparse_pull: expected row_ids")
    targets = [
        (key, list(out) if _keys.is_list(out) else [out])
        for key, out in _keys.pair(keys, outs, "out")
    ]
    for key, of_key in targets:
        for one in of_key:
            if not isinstance(one, RowSparse):
                raise InvalidArgumentError(
                    "row_sparse_pull of key %r: expected a RowSparse, got %s"
                    % (key, type(one).__name__)
                )
    ids = iter(_for_each_out(row_ids, [len(of_key) for _, of_key in targets]))
    for key, of_key in targets:
        for one in of_key:
            yield key, one, as_ids(next(ids), "row_ids of key %r" % (key,))


def _is_one(ids: Any) -> bool:
    """True if `ids` is one array of ids, not a list of arrays."""
    return not _keys.is_list(ids) or not any(
        _keys.is_list(one) or np.ndim(one) > 0 for one in ids[:1]
    )


def _for_each_out(row_ids: Any, counts: List[int]) -> List[Any]:
    """Returns one array of ids per output; `counts` has the number of outputs of each key."""
    total = sum(counts)
    if _is_one(row_ids):
        return [row_ids] * total
    if len(row_ids) == len(counts):
        return [
            ids for of_key, count in zip(row_ids, counts) for ids in _for_outs_of_key(of_key, count)
        ]
    if len(row_ids) == 1:
        return _for_outs_of_key(row_ids[0], total)
    if len(row_ids) != total:
        raise InvalidArgumentError(
            "row_ids: expected 1, or %d, one for each key, or %d, one for each out, got %d"
            % (len(counts), total, len(row_ids))
        )
    return list(row_ids)


def _for_outs_of_key(ids: Any, count: int) -> List[Any]:
    if _is_one(ids):
        return [ids] * count
    if len(ids) != count:
        raise InvalidArgumentError(
            "row_ids: expected %d, one for each out of a key, got %d" % (count, len(ids))
        )
    return list(ids)
