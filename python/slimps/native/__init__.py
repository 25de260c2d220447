# SPDX-License-Identifier: Apache-2.0
"""libslimps.so.1, the C API of slimps (slimps/c_api.h), by ctypes. Use the package slimps instead.

    library.py        finds the library and declares its functions
    structs.py        the structs of its headers
    options.py        what a store is made with
    optimizer.py      what the servers run
    store.py          a store
    exchange.py       a model's training steps
    calls.py          waits, so that signal handlers and other threads run meanwhile
    beside.py         waits for functions that hear no signals
    completions.py    waits for pulls on a thread of its own
    gpu_array.py      memory of a GPU
    gpu_gradients.py  gradients there that the library may still read
    arrays.py         addresses of arrays, lists of keys with their arrays
    updating.py       a local store's updater
    trace.py          rows of this process's timeline
    requirements.py   what Python must bring along

Arrays are packed: contiguous float32.
"""

from slimps.native import requirements

requirements.check()

from slimps.native import trace  # noqa: E402
from slimps.native.arrays import Array, are_apart, copy  # noqa: E402
from slimps.native.beside import run_beside  # noqa: E402
from slimps.native.exchange import Clipping, Exchange, ExchangeSettings  # noqa: E402
from slimps.native.optimizer import OptimizerSpec, Schedule  # noqa: E402
from slimps.native.gpu_array import (  # noqa: E402
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    GPU_BY_ADDRESS,
    GpuArray,
)
from slimps.native.options import Options  # noqa: E402
from slimps.native.store import Store  # noqa: E402
from slimps.native.structs import LAYERS  # noqa: E402

__all__ = [
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "GPU_BY_ADDRESS",
    "LAYERS",
    "Array",
    "Clipping",
    "Exchange",
    "ExchangeSettings",
    "GpuArray",
    "OptimizerSpec",
    "Options",
    "Schedule",
    "Store",
    "are_apart",
    "copy",
    "run_beside",
    "trace",
]
