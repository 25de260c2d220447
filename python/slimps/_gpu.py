# SPDX-License-Identifier: Apache-2.0
"""Finds arrays that lie on a GPU: torch's CUDA tensors, and what has __cuda_array_interface__.

They are neither converted nor copied here, so they must be contiguous float32.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np

from slimps import native
from slimps.errors import InvalidArgumentError


def find(value: Any, what: str) -> Optional[native.GpuArray]:
    """Returns the memory of an array on a GPU, or None for anything else.

    The memory belongs to torch's current stream, or to the stream that the interface names.
    InvalidArgumentError: the array is not contiguous float32. `what` begins the message.
    """
    if type(value) is np.ndarray:
        return None
    torch = sys.modules.get("torch")  # not imported: then the value is no tensor
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(torch, value, what) if value.is_cuda else None
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else _of_interface(value, interface, what)


def _of_torch(torch: Any, tensor: Any, what: str) -> native.GpuArray:
    if tensor.dtype != torch.float32 or not tensor.is_contiguous():
        _refuse(what, "%s with strides %s" % (tensor.dtype, tensor.stride()))
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


def _refuse(what: str, got: str) -> None:
    raise InvalidArgumentError("%s: expected contiguous float32 on a GPU, got %s" % (what, got))
