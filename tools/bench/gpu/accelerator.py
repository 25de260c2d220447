# SPDX-License-Identifier: Apache-2.0
"""A GPU as slimps bench gpu uses it: its clock, its memory and the bench's kernels.

The kernels are loaded through the driver, so no toolkit is needed.
"""

import ctypes

import torch

THREADS = 512  # of a block, kThreads in device_words.h
# Keeps the GPU busy for some 50 ms, in which the host queues what is to be timed.
DELAY_CYCLES = 100000000


def why_not():
    """Returns None where there is a GPU that torch can use, or else why not, in words."""
    if torch.version.cuda is None:
        return "torch %s is built without CUDA" % torch.__version__
    if not torch.cuda.is_available():
        return "torch %s finds no CUDA device" % torch.__version__
    return None


def driver():
    """Returns the machine's libcuda.so.1."""
    return ctypes.CDLL("libcuda.so.1")


def check(cuda, call, *arguments):
    """Calls a function of the driver.

    RuntimeError: it failed.
    """
    error = getattr(cuda, call)(*arguments)
    if error != 0:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(error, ctypes.byref(name))
        raise RuntimeError("%s: %s" % (call, (name.value or b"error %d" % error).decode()))


def about():
    """Returns what the figures were measured on. REQUIRES: why_not() is None."""
    version = ctypes.c_int()
    cuda = driver()
    check(cuda, "cuDriverGetVersion", ctypes.byref(version))
    return {
        "gpu": torch.cuda.get_device_name(0),
        "gpus": torch.cuda.device_count(),
        "driver": kernel_driver(),
        "cuda": "%d.%d" % (version.value // 1000, version.value % 1000 // 10),
        "torch": torch.__version__,
    }


def kernel_driver():
    """Returns the version of the driver in the kernel; "unknown" if the kernel does not say it."""
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as text:
            return text.read().strip()
    except OSError:
        return "unknown"


class Kernels:
    """levels_kernels.ptx in the current context, which is torch's. Owned by the main thread."""

    def __init__(self, path):
        self._cuda = driver()
        self._module = ctypes.c_void_p()
        self._functions = {}
        with open(path, "rb") as text:
            check(self._cuda, "cuModuleLoadData", ctypes.byref(self._module), text.read() + b"\0")

    def launch(self, name, blocks, arguments, stream):
        """Puts a kernel on the stream. `arguments` are of ctypes' types."""
        addresses = (ctypes.c_void_p * len(arguments))(
            *[ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in arguments]
        )
        grid_and_block = (blocks, 1, 1, THREADS, 1, 1)
        shared_bytes, extra = 0, None
        check(
            self._cuda,
            "cuLaunchKernel",
            self._function(name),
            *grid_and_block,
            shared_bytes,
            ctypes.c_void_p(stream),
            addresses,
            extra,
        )

    def _function(self, name):
        if name not in self._functions:
            found = ctypes.c_void_p()
            check(
                self._cuda, "cuModuleGetFunction", ctypes.byref(found), self._module, name.encode()
            )
            self._functions[name] = found
        return self._functions[name]


class Gpu:
    """One GPU. Owned by the main thread."""

    def __init__(self, kernels, number=0):
        """Takes GPU `number`. `kernels`: the file of the bench's kernels."""
        self.device = torch.device("cuda", number)
        torch.cuda.set_device(self.device)
        self.synchronize()  # makes the context
        self._kernels = Kernels(kernels)

    def launch(self, name, blocks, arguments):
        """Puts a kernel on the current stream."""
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._kernels.launch(name, blocks, arguments, stream)

    def synchronize(self):
        torch.cuda.synchronize(self.device)

    def pinned(self, tensor):
        """Returns memory of the host, to which the tensor can be copied at full speed."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def busy_ms(self, work):
        """Returns how long the GPU is busy with what work() puts on the current stream.

        All of it is queued before the first begins, so waits for the host do not count.
        """
        self.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(torch.cuda.Stream(self.device)):
            torch.cuda._sleep(DELAY_CYCLES)
            begin.record()
            work()
            end.record()
        self.synchronize()
        return begin.elapsed_time(end)

    def forget_peak(self):
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self):
        """Returns the most that this process's tensors took since forget_peak."""
        return torch.cuda.max_memory_allocated(self.device)

    def bytes_in_use(self):
        """Returns what all processes take of the GPU, contexts and idle memory included."""
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free
