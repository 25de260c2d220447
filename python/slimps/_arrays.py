# SPDX-License-Identifier: Apache-2.0
"""Turns other libraries' arrays into numpy arrays, without a copy where memory allows.

numpy arrays and torch CPU tensors are used directly, arrays on a GPU are copied (slimps._gpu), and
everything else is used by the buffer protocol or DLPack. To write into an array, it must give
writable memory. Element types are float32 and float16;
float64, numpy's default, is converted both ways, with one warning.
"""

from __future__ import annotations

import sys
from typing import Any, List, Sequence, Set, Tuple

import numpy as np

from slimps import _gpu, _said_once, native
from slimps.errors import Error, InvalidArgumentError

_FLOAT32 = np.dtype(np.float32)
_FLOAT16 = np.dtype(np.float16)
_FLOAT64 = np.dtype(np.float64)


def _from_torch(torch: Any, tensor: Any, what: str) -> np.ndarray:
    if tensor.is_cuda:
        tensor = tensor.detach().cpu()
    try:
        return (tensor.detach() if tensor.requires_grad else tensor).numpy()  # the same memory
    except (TypeError, RuntimeError, NotImplementedError) as error:
        cause = error
    if tensor.device.type != "cpu":
        raise InvalidArgumentError(
            "%s: expected a tensor on the CPU or a CUDA device, got one on %s"
            % (what, tensor.device)
        )
    if tensor.layout != torch.strided:
        raise InvalidArgumentError(
            "%s: expected a dense tensor, got layout %s" % (what, tensor.layout)
        )
    if tensor.dtype not in (torch.float32, torch.float16, torch.float64):
        raise InvalidArgumentError("%s: expected float32 or float16, got %s" % (what, tensor.dtype))
    raise InvalidArgumentError(
        "%s: expected a tensor with memory that numpy can read: %s" % (what, cause)
    )


def as_numpy(value: Any, what: str) -> np.ndarray:
    """Returns `value` as a float32, float16 or float64 numpy array over the same memory.

    What lies on a GPU is copied. `what` begins the message of errors.
    InvalidArgumentError: another element type, a tensor on another device, or not an array.
    """
    if not isinstance(value, np.ndarray):
        torch = sys.modules.get("torch")  # not imported: then the value is no tensor
        if torch is not None and isinstance(value, torch.Tensor):
            value = _from_torch(torch, value, what)
        else:
            on_gpu = _gpu.find(value, what)
            value = _from_another(value, what) if on_gpu is None else on_host(on_gpu, what)
    if value.dtype == _FLOAT64:
        _said_once.warn(
            "float64",
            "%s: float64 is converted, since the servers keep float32 and nothing else travels; "
            "arrays of "
            "numpy.float32 need no copy (said once)" % what,
        )
    elif value.dtype != _FLOAT32 and value.dtype != _FLOAT16:
        raise InvalidArgumentError(
            "%s: expected float32, float16 or float64, got %s" % (what, value.dtype)
        )
    return value


def on_host(values: native.GpuArray, what: str) -> np.ndarray:
    """Returns a copy of an array on a GPU. `what` begins the message of errors."""
    copy = np.empty(values.shape, np.float32)
    try:
        native.copy(values, copy)
    except Error as error:
        raise type(error)("%s: %s" % (what, error)) from None
    return copy


def _from_another(value: Any, what: str) -> np.ndarray:
    try:
        return (
            np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(memoryview(value))
        )
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidArgumentError(
            "%s: expected a numpy array, a torch tensor or another array of float32 or float16, "
            "got %s (%s)" % (what, type(value).__name__, error)
        ) from None


def check_shape(array: Any, shape: Any, what: str, why: str = "as it was initialised") -> None:
    """Raises InvalidArgumentError if an array or RowSparse is not of the key's shape.

    `why` goes into the message: the reason for this shape.
    """
    if array.shape != tuple(shape):
        raise InvalidArgumentError(
            "%s: expected shape %s, %s, got %s" % (what, tuple(shape), why, array.shape)
        )


def is_packed(value: Any, shape: Tuple[int, ...]) -> bool:
    """True if the library can take `value` as it is.

    It is then a numpy array of the key's shape: contiguous float32 of at least one dimension. Most
    calls pass hundreds of these arrays, so callers check this before the slower general case.
    """
    return (
        type(value) is np.ndarray
        and value.dtype == _FLOAT32
        and value.shape == shape
        and shape != ()
        and value.flags.c_contiguous
    )


def packed(array: np.ndarray) -> np.ndarray:
    """Returns the values as contiguous float32 of at least one dimension, or `array` itself."""
    return np.ascontiguousarray(array, dtype=np.float32)


def to_write(value: Any, shape: Sequence[int], what: str) -> native.Array:
    """Returns `value` as a packed float32 array of a key's shape, to pull into directly.

    InvalidArgumentError: `value` has another type or shape, has gaps or cannot be written to.
    """
    if is_packed(value, tuple(shape)) and value.flags.writeable:
        return value
    on_gpu = _gpu.find_target(value, what)
    array = as_numpy(value, what) if on_gpu is None else on_gpu
    check_shape(array, shape, what)
    if isinstance(array, native.GpuArray):
        return array
    if on_gpu is not None:
        raise InvalidArgumentError(
            "%s: expected packed float32 to write, got %s on a GPU" % (what, array.dtype)
        )
    if array.dtype != np.float32 or not array.flags.c_contiguous or not array.flags.writeable:
        raise InvalidArgumentError(
            "%s: expected packed float32 to write, got %s%s with strides %s"
            % (what, "" if array.flags.writeable else "read-only ", array.dtype, array.strides)
        )
    return array.reshape(-1) if array.ndim == 0 else array


class Outputs:
    """The arrays that one key is pulled into. A pull fills `buffer`; finish() fills the rest."""

    __slots__ = ("_arrays", "buffer")

    def __init__(self, outs: Sequence[Any], shape: Tuple[int, ...], verb: str, name: Any) -> None:
        if len(outs) == 1 and is_packed(outs[0], shape) and outs[0].flags.writeable:
            self._arrays = outs
            self.buffer = outs[0]
            return
        what = "%s of key %r" % (verb, name)
        on_gpu = [_gpu.find_target(out, what) for out in outs]
        self._arrays = [
            as_numpy(out, what) if target is None else target for out, target in zip(outs, on_gpu)
        ]
        if not self._arrays:
            raise InvalidArgumentError(
                "%s: expected at least one array to write, got an empty list" % what
            )
        for array in self._arrays:
            check_shape(array, shape, what)
            if isinstance(array, np.ndarray) and not array.flags.writeable:
                raise InvalidArgumentError(
                    "%s: expected an array to write, got a read-only one" % what
                )
        if len(outs) == 1 and isinstance(self._arrays[0], native.GpuArray):
            self.buffer = self._arrays[0]
            return
        direct = [
            array
            for array in self._arrays
            if isinstance(array, np.ndarray)
            and array.dtype == _FLOAT32
            and array.flags.c_contiguous
        ]
        self.buffer = direct[0] if direct else np.empty(shape, dtype=np.float32)

    @property
    def is_one_buffer(self) -> bool:
        """True if a pull into `buffer` fills everything, without a copy."""
        return len(self._arrays) == 1 and self._arrays[0] is self.buffer

    def bounds(self) -> List[Tuple[int, int]]:
        """Returns each array's addresses: of its first byte, and of the byte after its last."""
        return [_bounds(array) for array in self._arrays]

    def detach(self) -> None:
        """Makes `buffer` a new array that shares no memory with the others."""
        self.buffer = np.empty(self.buffer.shape, dtype=np.float32)

    def finish(self) -> None:
        """Copies the pulled values into the arrays other than `buffer`, rounded to their type."""
        for array in self._arrays:
            if array is self.buffer:
                continue
            if isinstance(array, np.ndarray):
                np.copyto(array, self.buffer, casting="same_kind")
            else:
                _gpu.write(array, self.buffer)


def _bounds(array: Any) -> Tuple[int, int]:
    if not isinstance(array, np.ndarray):
        return _gpu.bounds(array)
    start = array.__array_interface__["data"][0]
    spans = [(length - 1) * stride for length, stride in zip(array.shape, array.strides)]
    return (
        start + sum(span for span in spans if span < 0),
        start + sum(span for span in spans if span > 0) + array.itemsize,
    )


def keep_apart(outputs: Sequence[Outputs]) -> None:
    """Gives keys whose arrays overlap buffers of their own, since keys are pulled at the same time.

    Each key's finish() then copies its values, in the order of the keys.
    """
    if len(outputs) < 2:
        return
    if all(output.is_one_buffer for output in outputs) and native.are_apart(
        [output.buffer for output in outputs]
    ):
        return
    spans = sorted(
        (bounds, number) for number, output in enumerate(outputs) for bounds in output.bounds()
    )
    together: Set[int] = set()  # a chain of outputs, each of which overlaps the one before it
    end = 0
    for (start, stop), number in spans:
        if start >= end:
            _detach(outputs, together)
            together = set()
        together.add(number)
        end = max(end, stop)
    _detach(outputs, together)


def _detach(outputs: Sequence[Outputs], numbers: Set[int]) -> None:
    if len(numbers) > 1:
        for number in numbers:
            outputs[number].detach()
