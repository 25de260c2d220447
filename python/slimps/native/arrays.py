# SPDX-License-Identifier: Apache-2.0
"""Addresses of numpy arrays, and lists of keys with their arrays as the library takes them."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from slimps.native import structs
from slimps.native.beside import run_beside
from slimps.native.gpu_array import GpuArray
from slimps.native.library import check, lib, text

Name = Union[int, str]
Array = Union[np.ndarray, GpuArray]

_FLOAT32 = np.dtype(np.float32)
_addressof = ctypes.addressof
_view: Any = (ctypes.c_char * 0).from_buffer  # far cheaper than ndarray.ctypes; for writable arrays


def address(values: Array) -> int:
    """Returns the address of a packed array's first element, on the host or on a GPU.

    TypeError: not an array of contiguous float32.
    """
    try:
        return address_to_write(values)
    except TypeError:  # read-only
        found: int = _packed(values).ctypes.data
        return found


def address_to_write(values: Array) -> int:
    """Same as address(). TypeError: also if the array is read-only."""
    try:
        if values.dtype == _FLOAT32:  # type: ignore[union-attr]  # asked first: the usual case
            return _addressof(_view(values))
    except (AttributeError, TypeError):
        pass
    if isinstance(values, GpuArray):
        return values.address
    _packed(values)
    raise TypeError("array: expected one to write, got a read-only one")


def _packed(values: Array) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        raise TypeError("array: expected an array of numpy.float32, got %s" % type(values).__name__)
    if values.dtype != _FLOAT32 or not values.flags.c_contiguous:
        raise TypeError(
            "array: expected contiguous float32, got %s with strides %s"
            % (values.dtype, values.strides)
        )
    return values


def are_apart(arrays: Sequence[Array]) -> bool:
    """True if no two of these packed arrays overlap."""
    starts = np.array([address(one) for one in arrays], np.uint64)
    ends = starts + np.array([one.nbytes for one in arrays], np.uint64)
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order])  # the farthest end so far
    return bool((starts[order][1:] >= reached[:-1]).all())


class Keys(Dict[Name, Tuple[int, int, int]]):
    """A store's keys: name -> kind, number and address of the text, as in slimps_key. Thread-safe.

    InvalidArgumentError: a text that the library cannot take.
    """

    def __init__(self) -> None:
        super().__init__()
        self.structs: Dict[Name, structs.Key] = {}  # of the same names; keeps the texts alive

    def __missing__(self, name: Name) -> Tuple[int, int, int]:
        if isinstance(name, str):
            made = structs.Key(structs.KEY_TEXT, 0, 0, text(name, "key"))
        else:
            made = structs.Key(structs.KEY_INT, 0, name, None)
        made = self.structs.setdefault(name, made)  # another thread may have been first
        words = (ctypes.c_uint64 * 3).from_buffer(made)
        self[name] = words[0], words[1], words[2]
        return self[name]

    def struct(self, name: Name) -> structs.Key:
        """Returns the key as a struct, which must not be changed."""
        if name not in self.structs:
            self.__missing__(name)
        return self.structs[name]


class Items:
    """An array of slimps_item, which lives as long as this.

    gradients  for each name, one array per device; None: nothing to push
    outs       for each name, the array to pull into; None: nothing to pull
    """

    def __init__(
        self,
        keys: Keys,
        names: Sequence[Name],
        gradients: Optional[Sequence[Sequence[Array]]] = None,
        outs: Optional[Sequence[Array]] = None,
    ) -> None:
        self._arrays = gradients, outs
        self._devices = array("Q", [address(one) for devices in gradients or () for one in devices])
        pointers = self._devices.buffer_info()[0]
        self._places: List[Any] = []
        words: List[int] = []
        for name, devices, out in zip(
            names, gradients or itertools.repeat(()), outs or itertools.repeat(None)
        ):
            count = len(devices)
            words += (
                80,  # bytes of a slimps_item
                *keys[name],
                pointers,
                count,
                0 if out is None else address_to_write(out),
                devices[0].size if out is None else out.size,
                self._place(devices),
                self._place(() if out is None else (out,)),
            )
            pointers += 8 * count
        self._words = array("Q", words)
        self.address, _ = self._words.buffer_info()
        self.count = len(names)

    def _place(self, arrays: Sequence[Array]) -> int:
        """Returns the address of the arrays' slimps_places, or 0 if all lie on the host."""
        if not any(isinstance(one, GpuArray) for one in arrays):
            return 0
        places = (structs.Place * len(arrays))(*map(place_of, arrays))
        self._places.append(places)
        return _addressof(places)


def place_of(values: Array) -> structs.Place:
    if isinstance(values, GpuArray):
        return structs.Place(values.kind, values.device, values.stream)
    return structs.Place()  # on the host


def copy(source: Array, target: Array) -> None:
    """Copies between packed arrays on the host or on GPUs, and waits. Their sizes are equal.

    Ctrl-C ends the wait. The library goes on with the copy, and both arrays live until its end.
    """

    def run() -> None:
        places = place_of(source), place_of(target)
        check(
            lib.slimps_copy(
                address(source),
                ctypes.byref(places[0]),
                address_to_write(target),
                ctypes.byref(places[1]),
                source.size,
            )
        )

    run_beside(run)


def shape_of(shape: Iterable[int]) -> Any:
    """Returns a C array of a tensor's extents."""
    extents = tuple(shape)
    return (ctypes.c_int64 * len(extents))(*extents)
