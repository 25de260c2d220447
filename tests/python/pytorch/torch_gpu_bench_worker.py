# SPDX-License-Identifier: Apache-2.0
"""gpu_worker.py of slimps bench gpu, on a libcuda.so.1 of the tests.

torch's tensors stay on the CPU and are taken for tensors on a GPU, as in torch_gpu_scenarios.py.
"""

import contextlib
import gc
import json
import os
import sys
import time

import torch

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.append(os.path.join(ROOT, "tests", "repo"))
sys.path.append(os.path.join(ROOT, "tools", "bench", "gpu"))

import accelerator  # noqa: E402
import gpu_worker  # noqa: E402
from torch_gpu_scenarios import cuda, taken_for_gpus  # noqa: E402

ABOUT = {"gpu": "the host", "gpus": 1, "driver": "fake", "cuda": "12.9", "torch": torch.__version__}


class HostGpu:
    """What accelerator.Gpu is, in the host's memory. The driver launches the kernels."""

    device = torch.device("cpu")

    def __init__(self, kernels):
        self._kernels = accelerator.Kernels(kernels)

    def launch(self, name, blocks, arguments):
        self._kernels.launch(name, blocks, arguments, stream=0)

    def synchronize(self):
        pass

    def pinned(self, tensor):
        return torch.empty_like(tensor)

    def busy_ms(self, work):
        begun = time.monotonic()
        work()
        return 1e3 * (time.monotonic() - begun)

    def forget_peak(self):
        gc.collect()

    def peak_bytes(self):
        """Returns the bytes of all tensors that are there now."""
        kinds = (torch.Tensor, torch.nn.Parameter)
        alive = [found for found in gc.get_objects() if type(found) in kinds]
        # DistributedDataParallel's have empty ones without a type.
        return sum(found.numel() * found.element_size() for found in alive if found.numel() > 0)

    def bytes_in_use(self):
        return 0


def main(arguments):
    flags = gpu_worker.parse(arguments)
    if flags.about:
        print(json.dumps(ABOUT))
        return
    with taken_for_gpus() if flags.system.startswith("slimps") else contextlib.nullcontext():
        gpu_worker.serve(flags, lambda rank: HostGpu(flags.kernels))
    gc.collect()
    assert cuda.slimps_fake_misuses() == b"", cuda.slimps_fake_misuses().decode()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
