# SPDX-License-Identifier: Apache-2.0
"""Tensors on CUDA devices: what differs with them.

Gradients go to the library where they lie: it copies them to the host on a stream of its own, after
what the current stream has been given, while backward goes on. Everything else takes copies on the
host.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, ContextManager, List, Sequence, Tuple

import torch

from slimps import _gpu, native


def is_on(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy if it is on a GPU. Waits for the current stream's work."""
    return tensor.detach().cpu() if is_on(tensor) else tensor


def master_of(parameter: torch.Tensor) -> torch.Tensor:
    """Returns a float32 copy of a parameter on the host, in pinned memory if it is on a GPU."""
    copy = on_host(parameter).detach().to(torch.float32, copy=True).contiguous()
    return copy.pin_memory() if is_on(parameter) and torch.cuda.is_available() else copy


def gradient_of(gradient: torch.Tensor, name: str) -> native.GpuArray:
    """Returns a dense gradient on a GPU as memory that the library can read: halves as they are."""
    values = gradient.detach().contiguous()
    if values.dtype in (torch.float16, torch.bfloat16) and values.layout == torch.strided:
        return _gpu.of_torch(values)
    found = _gpu.find(values.float(), "gradient of %s" % name)
    assert found is not None
    return found


def current_stream(tensor: torch.Tensor) -> Any:
    """Returns the current stream of a tensor's GPU; None if it is on the host."""
    return torch.cuda.current_stream(tensor.device) if is_on(tensor) else None


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Returns a future of a tensor: who waits for it also waits for the work on the tensor's GPU.

    torch refuses a tensor of a GPU that its future was not made with.
    """
    return torch.futures.Future(devices=[tensor.device] if tensor.device.type == "cuda" else None)


def stream_of(tensor: torch.Tensor) -> ContextManager[Any]:
    """Returns this thread's current stream of a tensor's GPU, as a context for another thread."""
    if tensor.device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.current_stream(tensor.device))


def beside_other_work(tensor: torch.Tensor) -> ContextManager[Any]:
    """Within it, work on the tensor does not wait for what its GPU has been given before."""
    if tensor.device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(_side_stream(tensor.device))


@functools.lru_cache(maxsize=None)
def _side_stream(device: torch.device) -> Any:
    """Returns one stream for each GPU: torch has 32, which scripts use, too."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def start_writing(copies: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> List[Any]:
    """Copies the second tensor of each pair, on the host, into the first, on a GPU.

    Work that the GPUs' current streams are given from then on sees the values. The second tensors
    must stay as they are until the events that are returned have come. torch counts no change of
    the first.
    """
    for tensor, values in copies:
        tensor.data.copy_(values.reshape(tensor.shape), non_blocking=True)
    devices = {tensor.device for tensor, _ in copies if tensor.device.type == "cuda"}
    streams: List[Any] = [torch.cuda.current_stream(device) for device in devices]
    return [stream.record_event() for stream in streams]


def write(copies: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Same as start_writing, and waits for all."""
    for event in start_writing(copies):
        event.synchronize()
