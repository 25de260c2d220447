# SPDX-License-Identifier: Apache-2.0
"""The keys that one worker has initialised. Checks and packs the arrays that calls pass for them.

    keys = KnownKeys()
    keys.check(["w"]); ...; keys.add({"w": (2, 3)})
    gradients = keys.packed_gradients("w", [gradient], half=True)       # one per device
    outputs, sparse = keys.outputs("w", out, "pull")                    # where pulls may write
    first = keys.to_init("w", weights, None)                            # new keys
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from slimps import _arrays, _gpu, _keys, native
from slimps import row_sparse as _row_sparse
from slimps.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError

Outputs = Dict[_keys.Key, _arrays.Outputs]
Sparse = List[Tuple[_keys.Key, _row_sparse.RowSparse]]


class NewKeys(NamedTuple):
    """Keys to initialise, each with its first value as packed float32."""

    names: List[_keys.Key]
    shapes: List[Any]
    values: List[np.ndarray]
    halves: List[bool]  # the value was float16
    layers: List[str]


class KnownKeys:
    """The known keys of one store. `shapes` has the shape of each key."""

    def __init__(self) -> None:
        self.shapes: Dict[_keys.Key, Any] = {}
        self._kind = _keys.KeyKind()

    def check(self, names: Sequence[_keys.Key]) -> None:
        """Raises InvalidArgumentError if a name is not of the kind of the store's keys."""
        self._kind.check(names)

    def add(self, shapes: Mapping[_keys.Key, Any]) -> None:
        """Adds keys that were initialised."""
        self._kind.settle(shapes)
        self.shapes.update(shapes)

    def to_init(self, key: Any, value: Any, layer: Any) -> NewKeys:
        """Checks the arguments of KVStore.init and returns the new keys. Raises what init raises.

        Where a value is a list of arrays, one per device, the first one counts.
        """
        pairs = _keys.pair(key, value, "value")
        self.check([name for name, _ in pairs])
        layers = (
            [kind or "" for kind in layer] if _keys.is_list(layer) else [layer or ""] * len(pairs)
        )
        if len(layers) != len(pairs):
            raise InvalidArgumentError(
                "layer: expected 1 or %d, one per key, got %d" % (len(pairs), len(layers))
            )
        made = NewKeys([], [], [], [], layers)
        for (name, given), kind in zip(pairs, layers):
            what = "init of key %r" % (name,)
            if kind not in native.LAYERS:
                raise InvalidArgumentError(
                    "%s: expected a layer out of %s, got %r"
                    % (what, ", ".join(native.LAYERS[1:]), kind)
                )
            if name in self.shapes:
                raise AlreadyExistsError("key %r was initialised before" % (name,))
            arrays: List[Any] = [
                one if isinstance(one, _row_sparse.RowSparse) else _arrays.as_numpy(one, what)
                for one in (given if _keys.is_list(given) else [given])
            ]
            if not arrays:
                raise InvalidArgumentError(
                    "%s: expected at least one array, got an empty list" % what
                )
            first = arrays[0]
            for one in arrays[1:]:
                _arrays.check_shape(one, first.shape, what, "on all devices")
            if 0 in first.shape:
                raise InvalidArgumentError(
                    "%s: expected a shape with elements, got %s" % (what, first.shape)
                )
            made.names.append(name)
            made.shapes.append(first.shape)
            sparse = isinstance(first, _row_sparse.RowSparse)
            made.halves.append((first.rows if sparse else first).dtype.itemsize == 2)
            made.values.append(first.dense() if sparse else _arrays.packed(first))
        return made

    def shape(self, name: _keys.Key, what: str) -> Any:
        """Returns the key's shape. `what` begins the message of errors.

        NotFoundError: the key was never initialised.
        InvalidArgumentError: the key is not of the kind of the store's keys.
        """
        shape = self.shapes.get(name)
        if shape is None:
            self._kind.check([name])
            raise NotFoundError("%s: key %r was never initialised" % (what, name))
        return shape

    def outputs(self, key: Any, out: Any, what: str) -> Tuple[Outputs, Sparse]:
        """Returns the outputs of keys with dense arrays, and (key, RowSparse) for the others."""
        outputs: Outputs = {}
        sparse: Sparse = []
        for name, outs in _keys.group(key, out, "out").items():
            shape = self.shape(name, what)
            rows = [one for one in outs if isinstance(one, _row_sparse.RowSparse)]
            dense = outs
            if rows:
                sparse.extend((name, one) for one in rows)
                dense = [one for one in outs if not isinstance(one, _row_sparse.RowSparse)]
            if dense or not rows:
                outputs[name] = _arrays.Outputs(dense, shape, what, name)
        _arrays.keep_apart(list(outputs.values()))
        return outputs, sparse

    def packed_gradients(self, name: _keys.Key, values: List[Any], half: bool) -> List[Any]:
        """Returns one key's gradients as packed arrays of numpy, or of a GPU, one per device.

        InvalidArgumentError: an array has another shape, the list is empty, or an array is float16
            and `half` is False.
        """
        shape = self.shape(name, "push")
        if len(values) == 1 and _arrays.is_packed(values[0], shape):
            return values
        what = "push of key %r" % (name,)
        arrays: List[Any] = [
            _gpu.find(value, what) or _arrays.as_numpy(value, what) for value in values
        ]
        if not arrays:
            raise InvalidArgumentError("%s: expected at least one array, got an empty list" % what)
        for value, array in zip(values, arrays):
            _arrays.check_shape(array, shape, what)
            if not half and (array.nbytes == 2 * array.size or _gpu.is_half(value)):
                raise InvalidArgumentError(
                    "%s: expected float32, got float16: gradient compression is on" % what
                )
        return [
            array if isinstance(array, native.GpuArray) else _arrays.packed(array)
            for array in arrays
        ]
