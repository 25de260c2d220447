# SPDX-License-Identifier: Apache-2.0
"""Arrays on GPUs of the tests' libcuda.so.1, as other libraries show theirs."""

import ctypes
import weakref

import numpy as np
import slimps

cuda = ctypes.CDLL("libcuda.so.1")
cuda.slimps_fake_misuses.restype = ctypes.c_char_p
cuda.slimps_fake_pinned_bytes.restype = ctypes.c_size_t


class GpuArray:
    """An array as numba has them: the interface alone, which does not say the GPU."""

    read_only = False
    stream = 1

    def __init__(self, values, typestr="<f4", gpu=0):
        values = np.ascontiguousarray(values, np.float32)
        pointer = ctypes.c_ulonglong()
        cuda.slimps_fake_allocate_on(gpu)
        assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(values.nbytes)) == 0
        self.pointer, self.shape, self.typestr, self.strides = pointer, values.shape, typestr, None
        cuda.cuMemcpyHtoD_v2(pointer, values.ctypes.data_as(ctypes.c_void_p), self._bytes(values))
        self.freed = weakref.finalize(self, cuda.cuMemFree_v2, pointer)

    @staticmethod
    def _bytes(values):
        return ctypes.c_size_t(values.nbytes)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.typestr,
            "strides": self.strides,
            "data": (self.pointer.value, self.read_only),
            "version": 3,
            "stream": self.stream,
        }

    def values(self):
        found = np.empty(self.shape, np.float32)
        cuda.cuMemcpyDtoH_v2(
            found.ctypes.data_as(ctypes.c_void_p), self.pointer, self._bytes(found)
        )
        return found


class DlpackArray:
    """The same memory, known by DLPack alone."""

    _made = []  # what capsules point to

    def __init__(self, array, bits=32):
        self._array, self._bits = array, bits
        self.values = array.values

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        assert stream == 1, stream
        shape = (ctypes.c_int64 * 2)(*self._array.shape)
        made = slimps._gpu._DlTensor(
            self._array.pointer.value - 4, 2, 0, 2, 2, self._bits, 1, shape, None, 4
        )
        self._made.append((made, shape))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p) + (
            ctypes.c_void_p,
        )
        return new(ctypes.addressof(made), b"dltensor", None)
