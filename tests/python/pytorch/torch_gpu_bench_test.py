# SPDX-License-Identifier: Apache-2.0
"""slimps bench gpu: all of its jobs on small models, on a libcuda.so.1 of the tests.

torch_gpu_bench_worker.py takes the workers' place. Figures mean nothing here.
"""

import ctypes
import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch

HERE = os.path.dirname(os.path.realpath(__file__))
TOOLS = os.path.join(HERE, "..", "..", "..", "tools")
sys.path += [TOOLS, os.path.join(HERE, "..", "..", "..", "python"), TOOLS + "/bench/gpu"]

import accelerator  # noqa: E402
import device_codec  # noqa: E402
import gpu_models  # noqa: E402
from bench import report_tables  # noqa: E402
from bench.gpu import gpu_bench, gpu_tables  # noqa: E402

FAKE = os.path.abspath("tests/worker/device/cuda/fake_libcuda")
KERNELS = os.path.abspath("tools/bench/gpu/levels_kernels.ptx")


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Returns what runs the bench and returns its report."""
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)
    monkeypatch.setattr(gpu_bench, "WORKER", os.path.join(HERE, "torch_gpu_bench_worker.py"))

    def run(*arguments):
        path = str(tmp_path / "report.json")
        common = ["--programs=" + os.getcwd(), "--python=" + sys.executable, "--json=" + path]
        assert gpu_bench.main(list(arguments) + common) == 0
        with open(path, encoding="utf-8") as text:
            return json.load(text)

    return run


def rows_of(report, model, workers):
    return {
        row["system"]: row
        for row in report["results"]
        if (row["model"], row["workers"]) == (model, workers)
    }


SHORT = ("--batch=2", "--warmup=1", "--steps=1", "--repeats=2")


def test_all_systems_train(bench):
    report = bench("--models=small_resnet", *SHORT)
    report_tables.check(report)
    assert (report["gpu"], report["backend"]) == ("the host", "gloo")
    one, two = rows_of(report, "small_resnet", 1), rows_of(report, "small_resnet", 2)
    for rows, workers in ((one, 1), (two, 2)):
        of_them = [name for name, made in gpu_tables.SYSTEMS.items() if workers in made.workers]
        assert list(rows) == of_them
        for name, row in rows.items():
            # torch's bf16 hook wants NCCL.
            assert len(row.get("step_ms_of_repeats", [])) == 2 or name == "ddp_bf16", row
    model, _, _ = gpu_models.make("small_resnet", 1, "cpu")
    size = sum(4 * parameter.numel() for parameter in model.parameters())
    for codec in ("1bit", "2bit"):
        more = one["device_" + codec]["peak_bytes"] - one["alone"]["peak_bytes"]
        assert more > size, "residuals are on the GPU, and payloads"
        assert one["device_" + codec]["kernels_ms"] > 0
        assert one["slimps_" + codec]["copies_ms"] > 0
        assert one["slimps_" + codec]["encode_ms"] > 0
    assert one["slimps_fp32"]["kernels_ms"] is None


def test_a_transformer_trains(bench):
    report = bench("--models=small_transformer", "--systems=alone,device_1bit,slimps_1bit", *SHORT)
    text = report_tables.text(report)
    assert "the host (1 here), driver fake" in text
    for title in ("MiB of the GPU", "of the GPU", "hides behind the step", "DDP over gloo"):
        assert "small_transformer" in text and title in text, text


def test_resnet_50_is_the_one_of_the_paper():
    parameters = [p.numel() for p in gpu_models.resnet((3, 4, 6, 3), 64, 1000).parameters()]
    assert (len(parameters), sum(parameters)) == (161, 25557032)


class HostCodec:
    """device_codec's arithmetic in numpy, for a tensor of one block."""

    def __init__(self, codec, elements):
        self.codec, self.residual = codec, np.zeros(elements, np.float32)

    def encode(self, gradient):
        x = gradient + self.residual
        if self.codec == "1bit":
            sums = np.zeros(16, np.float32)
            for lanes in np.pad(np.abs(x), (0, -x.size % 16)).reshape(-1, 16):
                sums += lanes
            while sums.size > 1:
                sums = sums[: sums.size // 2] + sums[sums.size // 2 :]
            scale = sums[0] / np.float32(x.size)
            sent = np.where(np.signbit(x), -scale, scale)
        else:
            bound = np.float32(device_codec.THRESHOLD)
            sent = np.where(np.abs(x) >= bound, np.copysign(bound, x), np.float32(0))
        self.residual = x - sent


@pytest.fixture
def driver(monkeypatch):
    """Makes the tests' driver the one that the bench finds."""
    fake = ctypes.CDLL(os.path.join(FAKE, "libcuda.so.1"))
    monkeypatch.setattr(accelerator, "driver", lambda: fake)


@pytest.mark.parametrize("codec", ["1bit", "2bit"])
def test_residuals_on_the_device_are_those_of_numpy(codec, driver):
    kernels = accelerator.Kernels(KERNELS)
    parameter = torch.nn.Parameter(torch.zeros(7, 13))
    device = device_codec.DeviceCodec(
        codec, [parameter], lambda *launch: kernels.launch(*launch, stream=0)
    )
    host = HostCodec(codec, parameter.numel())
    for step in range(3):
        torch.manual_seed(step)
        parameter.grad = torch.randn(7, 13)
        device.encode()
        host.encode(parameter.grad.numpy().reshape(-1))
        np.testing.assert_array_equal(host.residual, device.residuals[0].numpy().reshape(-1))
    assert device.payloads[0][0] == 0xB7


def test_a_kernel_that_is_not_there_is_named(driver):
    with pytest.raises(RuntimeError, match="cuModuleGetFunction: CUDA_ERROR_UNKNOWN"):
        accelerator.Kernels(KERNELS).launch("slimps_encode_3bit", 1, [], stream=0)


def test_a_gpu_is_asked_through_torch(driver, monkeypatch):
    cuda = mock.MagicMock()
    cuda.get_device_name.return_value, cuda.device_count.return_value = "Some GPU", 2
    cuda.mem_get_info.return_value = (2, 10)
    monkeypatch.setattr(torch, "cuda", cuda)
    about = accelerator.about()
    assert (about["gpu"], about["gpus"], about["cuda"]) == ("Some GPU", 2, "12.9")
    gpu = accelerator.Gpu(KERNELS, 1)
    assert gpu.bytes_in_use() == 8
    cuda.reset_mock()
    gpu.busy_ms(lambda: cuda.work())
    calls = [name for name, _, _ in cuda.mock_calls]
    at = calls.index("_sleep")
    assert calls[at + 1 : at + 4] == ["Event().record", "work", "Event().record"], calls
    assert calls.index("synchronize") < at, "what was queued before is not timed"
    assert calls[-2:] == ["synchronize", "Event().elapsed_time"], calls


def test_the_worker_says_what_is_here():
    command = [sys.executable, os.path.join(TOOLS, "bench", "gpu", "gpu_worker.py"), "--about"]
    said = json.loads(subprocess.check_output(command))
    assert "torch" in said.get("why_not", said), said
