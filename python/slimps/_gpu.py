# SPDX-License-Identifier: Apache-2.0
"""Finds arrays that lie on a GPU: torch's CUDA tensors, and what has __cuda_array_interface__ or
DLPack.

They must be contiguous float32, but for torch's, which torch converts.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Tuple, Union

import numpy as np

from slimps import native
from slimps.errors import InvalidArgumentError

_DLPACK_CUDA = 2  # kDLCUDA
_DLPACK_FLOAT32 = (2, 32, 1)  # kDLFloat, bits, lanes


def find(value: Any, what: str) -> Optional[native.GpuArray]:
    """Returns the values of an array on a GPU, or None for anything else. `what` begins errors.

    The memory belongs to torch's current stream, to the stream that the array's interface names, or
    to the legacy default stream. float16 and gaps of torch's are converted, on the GPU.
    InvalidArgumentError: the array is not contiguous float32.
    """
    found = _find(value, what)
    if found is None or isinstance(found, native.GpuArray):
        return found
    torch = sys.modules["torch"]
    if found.dtype not in (torch.float32, torch.float16):
        raise InvalidArgumentError("%s: expected float32 or float16, got %s" % (what, found.dtype))
    return _of_torch(torch, found.detach().float().contiguous())


def find_target(value: Any, what: str) -> Union[native.GpuArray, Any]:
    """Returns an array on a GPU to be written to, or None for anything else.

    A tensor of torch's is returned as it is if it is not contiguous float32.
    InvalidArgumentError: another array is not contiguous float32.
    """
    return _find(value, what)


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
        is_packed = value.dtype == torch.float32 and value.is_contiguous()
        return _of_torch(torch, value) if is_packed else value
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(value, interface, what)
    if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == _DLPACK_CUDA:
        return _of_dlpack(value, what)
    return None


def _of_torch(torch: Any, tensor: Any) -> native.GpuArray:
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return native.GpuArray(
        tensor, tensor.data_ptr(), tuple(tensor.shape), tensor.device.index, stream
    )


def _of_interface(value: Any, interface: Any, what: str) -> native.GpuArray:
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    packed = strides is None or tuple(strides) == np.empty(shape, np.float32).strides
    if np.dtype(interface["typestr"]) != np.float32 or not packed:
        _refuse(what, "%s with strides %s" % (interface["typestr"], strides))
    # 1 is the legacy default stream, which the driver calls 0; None: nothing to wait for.
    stream = interface.get("stream") or 0
    device = getattr(getattr(value, "device", None), "id", 0)  # CuPy's
    return native.GpuArray(value, interface["data"][0], shape, device, 0 if stream == 1 else stream)


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
    capsule = value.__dlpack__(stream=1)  # its work comes before that of the legacy default stream
    pointer_of: Any = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = [4 * one for one in tensor.strides[: tensor.ndim]] if tensor.strides else None
    kind = (tensor.type_code, tensor.type_bits, tensor.type_lanes)
    packed = strides is None or tuple(strides) == np.empty(shape, np.float32).strides
    if kind != _DLPACK_FLOAT32 or not packed:
        _refuse(what, "DLPack's type %s with strides %s in bytes" % (kind, strides))
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule, as long as nobody has taken the tensor out of it, frees the tensor.
    return native.GpuArray((value, capsule), address, shape, tensor.device_id, 0)


def _refuse(what: str, got: str) -> None:
    raise InvalidArgumentError("%s: expected contiguous float32 on a GPU, got %s" % (what, got))
