"""RowSparse: some rows of a tensor, as embeddings' gradients have them.

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
    """Row ids as packed int64. Raises InvalidArgumentError: other than one dimension of whole numbers."""
    try:
        ids = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError("%s: expected an array of ints on the CPU, got %s (%s)"
                                   % (what, type(value).__name__, error)) from None
    if ids.size == 0:
        return np.zeros(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InvalidArgumentError("%s: expected one dimension of ints, got shape %s of %s" % (what, ids.shape, ids.dtype))
    return np.ascontiguousarray(ids, dtype=np.int64)


class RowSparse:
    """Rows `indices` (any order, repeats add up) of a tensor of `shape`; rows[i] is of shape[1:].

    `rows` is float32 or float16 and shares memory with what was given where that is a numpy or torch array. A pull
    replaces indices and rows, sorted and each once, in the type that `rows` had.
    """

    def __init__(self, indices: Any, rows: Any, shape: Sequence[int]) -> None:
        self.shape: Tuple[int, ...] = tuple(int(size) for size in shape)
        if not self.shape or min(self.shape) < 0:
            raise InvalidArgumentError("RowSparse: expected a shape of at least one dimension, got %s" % (shape,))
        self.indices = as_ids(indices, "RowSparse indices")
        self.rows = _arrays.as_numpy(rows, "RowSparse rows")
        expected = (self.indices.size,) + self.shape[1:]
        if self.rows.shape != expected:
            raise InvalidArgumentError("RowSparse: expected rows of shape %s, for %d indices of shape %s, got %s"
                                       % (expected, self.indices.size, self.shape, self.rows.shape))
        outside = self.indices[(self.indices < 0) | (self.indices >= self.shape[0])]
        if outside.size:
            raise InvalidArgumentError("RowSparse: expected indices from 0 to %d, got %d" % (self.shape[0] - 1, outside[0]))

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: Any = np.float32) -> "RowSparse":
        """Without rows, to be pulled into."""
        return cls([], np.zeros((0,) + tuple(shape)[1:], dtype), shape)

    def dense(self) -> np.ndarray:
        """The whole tensor in float32, zero where there is no row."""
        whole = np.zeros(self.shape, np.float32)
        np.add.at(whole, self.indices, self.rows.astype(np.float32))
        return whole

    def replace(self, indices: np.ndarray, rows: np.ndarray) -> None:
        """What a pull has brought."""
        self.indices = indices
        self.rows = rows.astype(self.rows.dtype)

    def __repr__(self) -> str:
        return "RowSparse(%d rows of shape %s)" % (self.indices.size, self.shape)


# ---- what the store makes of them ---------------------------------------------------------------

def split(grouped: Dict[_keys.Key, List[Any]]) -> Tuple[Dict[_keys.Key, List[Any]], Dict[_keys.Key, RowSparse]]:
    """Keys with dense arrays, and keys with RowSparse, several of one key joined.

    Raises InvalidArgumentError: one key has both, or RowSparse of different shapes.
    """
    dense: Dict[_keys.Key, List[Any]] = {}
    sparse: Dict[_keys.Key, RowSparse] = {}
    for key, values in grouped.items():
        rows = [value for value in values if isinstance(value, RowSparse)]
        if not rows:
            dense[key] = values
            continue
        if len(rows) != len(values) or any(one.shape != rows[0].shape for one in rows):
            raise InvalidArgumentError("key %r: expected arrays alone, or RowSparse of one shape" % (key,))
        sparse[key] = rows[0] if len(rows) == 1 else RowSparse(
            np.concatenate([one.indices for one in rows]),
            np.concatenate([one.rows.astype(np.float32) for one in rows]), rows[0].shape)
    return dense, sparse


def requests(keys: Any, outs: Any, row_ids: Any) -> Iterator[Tuple[_keys.Key, RowSparse, np.ndarray]]:
    """(key, out, ids) of each RowSparse to be filled. Raises InvalidArgumentError: a dense out, or no or too few ids."""
    if row_ids is None:
        raise InvalidArgumentError("row_sparse_pull: expected row_ids")
    targets = []
    for key, out in _keys.pair(keys, outs, "out"):
        for one in out if _keys.is_list(out) else [out]:
            if not isinstance(one, RowSparse):
                raise InvalidArgumentError("row_sparse_pull of key %r: expected a RowSparse, got %s"
                                           % (key, type(one).__name__))
            targets.append((key, one))
    several = _keys.is_list(row_ids) and len(row_ids) > 0 and np.ndim(row_ids[0]) > 0
    ids = list(row_ids) if several else [row_ids]
    if len(ids) == 1:
        ids *= len(targets)
    if len(ids) != len(targets):
        raise InvalidArgumentError("row_ids: expected 1 or %d, one for each out, got %d" % (len(targets), len(ids)))
    for (key, one), wanted in zip(targets, ids):
        yield key, one, as_ids(wanted, "row_ids of key %r" % (key,))
