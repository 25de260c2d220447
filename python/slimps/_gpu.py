# SPDX-License-Identifier: Apache-2.0
"""Finds arrays that lie on a GPU: torch's CUDA tensors, and what has __cuda_array_interface__ or
DLPack.

They must be contiguous float32, but for torch's, which torch converts.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

from slimps import native
from slimps.errors import InvalidArgumentError

_DLPACK_CUDA = 2  # kDLCUDA
_DLPACK_FLOAT32 = (2, 32, 1)  # kDLFloat, bits, lanes


def find(value: Any, what: str) -> Optional[native.GpuArray]:
    """Returns the values of an array on a GPU, or None for anything else. `what` begins errors.

    The memory belongs to torch's current stream, to the stream that the array's interface names, or
    to the legacy default stream. torch's float16 and float64, and gaps, are converted on the GPU.
    InvalidArgumentError: the array is not contiguous float32, or torch's is sparse.
    """
    found = _find(value, what)
    if found is None or isinstance(found, native.GpuArray):
        return found
    return of_torch(found.detach().float().contiguous())


def of_torch(tensor: Any) -> native.GpuArray:
    """Returns a contiguous tensor on a GPU, of float32, or of halves for Exchange.on_gradient."""
    torch = sys.modules["torch"]
    kinds = {torch.float16: native.FLOAT16, torch.bfloat16: native.BFLOAT16}
    return native.GpuArray(
        tensor,
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.device.index,
        torch.cuda.current_stream(tensor.device).cuda_stream,
        kinds.get(tensor.dtype, native.FLOAT32),
    )


def is_half(value: Any) -> bool:
    """True for a tensor of torch's, on a GPU, that find converts from float16."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.dtype == torch.float16


def find_target(value: Any, what: str) -> Union[native.GpuArray, Any]:
    """Returns an array on a GPU to be written to, or None for anything else.

    A tensor of torch's is returned as it is if it is not contiguous float32.
    InvalidArgumentError: as find's, or the array's interface says that it is read-only. DLPack does
        not say.
    """
    found = _find(value, what)
    if isinstance(found, native.GpuArray) and found.owner is value:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None and interface["data"][1]:
            raise InvalidArgumentError("%s: expected an array to write, got a read-only one" % what)
    return found


def write(target: Any, values: np.ndarray) -> None:
    """Copies values into what find_target has returned, and waits. torch converts them."""
    if isinstance(target, native.GpuArray):
        native.copy(values, target)
    else:
        target.detach().copy_(sys.modules["torch"].from_numpy(values))


def bounds(target: Any) -> Tuple[int, int]:
    """Returns the addresses of the first byte of find_target's array, and of that after it."""
    if isinstance(target, native.GpuArray):
        return target.address, target.address + target.nbytes
    last = sum((extent - 1) * stride for extent, stride in zip(target.shape, target.stride()))
    start = target.data_ptr()
    return start, start + (last + 1) * target.element_size()


def _find(value: Any, what: str) -> Any:
    """Returns a GpuArray, a tensor of torch's that is none, or None: not on a GPU."""
    if type(value) is np.ndarray:
        return None
    torch = sys.modules.get("torch")  # not imported: then the value is no tensor
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.is_cuda:
            return None
        if value.layout != torch.strided:
            raise InvalidArgumentError(
                "%s: expected a dense tensor, got layout %s" % (what, value.layout)
            )
        if value.dtype not in (torch.float32, torch.float16, torch.float64):
            raise InvalidArgumentError(
                "%s: expected float32 or float16, got %s" % (what, value.dtype)
            )
        is_packed = value.dtype == torch.float32 and value.is_contiguous()
        return of_torch(value) if is_packed else value
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(value, interface, what)
    if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == _DLPACK_CUDA:
        return _of_dlpack(value, what)
    return None


def _of_interface(value: Any, interface: Any, what: str) -> native.GpuArray:
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if np.dtype(interface["typestr"]) != np.float32 or not _is_packed(shape, strides):
        _refuse(what, "%s with strides %s" % (interface["typestr"], strides))
    # 1 is the legacy default stream, which the driver calls 0; None: nothing to wait for.
    stream = interface.get("stream") or 0
    stream = 0 if stream == 1 else stream
    return native.GpuArray(value, interface["data"][0], shape, native.GPU_BY_ADDRESS, stream)


# A prototype of its own, since others may set that of ctypes.pythonapi.
_pointer_of: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h, with which a DLManagedTensor begins."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def _of_dlpack(value: Any, what: str) -> native.GpuArray:
    try:
        # Its work comes before that of the legacy default stream.
        capsule = value.__dlpack__(stream=1)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgumentError("%s: the array gives no DLPack: %s" % (what, error)) from error
    tensor = _DlTensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = [4 * one for one in tensor.strides[: tensor.ndim]] if tensor.strides else None
    kind = (tensor.type_code, tensor.type_bits, tensor.type_lanes)
    if kind != _DLPACK_FLOAT32 or not _is_packed(shape, strides):
        _refuse(what, "DLPack's type %s with strides %s in bytes" % (kind, strides))
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule, as long as nobody has taken the tensor out of it, frees the tensor.
    return native.GpuArray((value, capsule), address, shape, tensor.device_id, 0)


def _is_packed(shape: Sequence[int], strides: Optional[Sequence[int]]) -> bool:
    """True if float32 with these strides, in bytes, has no gaps and is in the order of rows."""
    expected = 4
    for extent, stride in zip(reversed(shape), reversed(strides or ())):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _refuse(what: str, got: str) -> None:
    raise InvalidArgumentError("%s: expected contiguous float32 on a GPU, got %s" % (what, got))
