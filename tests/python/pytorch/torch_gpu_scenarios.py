# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of torch_gpu_test.py run, on a libcuda.so.1 of the tests: NAME.

torch itself has no GPU here. Its tensors stay on the CPU and are taken for tensors on a GPU; their
gradients are copied into the library's GPU memory, where slimps must find them.
"""

import contextlib
import ctypes
import gc
import time
import weakref
from unittest import mock

import scenario
import slimps
import slimps.torch
import torch
from slimps import native
from slimps.pytorch import gpu
from torch import nn
from torch_training import batches, mine, network

cuda = ctypes.CDLL("libcuda.so.1")
cuda.slimps_fake_misuses.restype = ctypes.c_char_p
STEPS = 5


class Memory:
    """A copy of a tensor on GPU 0."""

    taken = 0
    alive = weakref.WeakSet()

    def __init__(self, tensor):
        Memory.taken += 1
        Memory.alive.add(self)
        tensor = tensor.detach().float().contiguous()
        size = ctypes.c_size_t(4 * tensor.numel())
        self.pointer = ctypes.c_ulonglong()
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), size) == 0
        self._source, self._size = ctypes.c_void_p(tensor.data_ptr()), size
        cuda.cuMemcpyHtoD_v2(self.pointer, self._source, size)
        weakref.finalize(self, cuda.cuMemFree_v2, self.pointer)

    def copy_back(self):
        """Copies the memory's values into the tensor, which is packed float32 and still there."""
        cuda.cuMemcpyDtoH_v2(self._source, self.pointer, self._size)


def gradient_of(gradient, name):
    memory = Memory(gradient)
    return native.GpuArray(memory, memory.pointer.value, tuple(gradient.shape), 0, 0)


def taken_for_gpus():
    """Within it, all tensors are taken for tensors on a GPU."""
    return mock.patch.multiple(
        gpu,
        is_on=lambda tensor: True,
        current_stream=lambda tensor: None,
        on_host=lambda tensor: tensor.detach().clone(),
        gradient_of=gradient_of,
    )


def train(store, prefix, **options):
    """Returns the weights after some steps of a network whose keys begin with `prefix`."""
    model = network()
    named = [(prefix + name, parameter) for name, parameter in model.named_parameters()]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = slimps.torch.DistributedOptimizer(sgd, named, store=store, **options)
    for images, labels in batches(STEPS):
        images, labels = mine(store.rank, images, labels)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    with optimizer.global_weights():
        return [parameter.detach().clone() for parameter in model.parameters()]


def trains_as_on_the_cpu():
    with slimps.kv.create("dist_sync", compression="1bit", threshold=64) as store:
        expected = train(store, "cpu.")
        with taken_for_gpus():
            on_gpu = train(store, "gpu.")
            skipping = train(store, "skipping.", non_finite="skip")
            backed_up = train(store, "backed_up.", backup_model=True)
        assert Memory.taken == 3 * STEPS * len(expected), Memory.taken
        assert all(map(torch.equal, expected, on_gpu))
        assert all(map(torch.equal, expected, skipping))
        assert all(map(torch.equal, train(store, "again.", backup_model=True), backed_up))


class Reading:
    """Copies that read the masters until somebody waits for them."""

    started = 0
    under_way = 0

    def __init__(self, copies):
        Reading.started += 1
        Reading.under_way += 1
        self._masters = [(values, values.clone()) for _, values in copies]
        for tensor, values in copies:
            tensor.data.copy_(values.reshape(tensor.shape))

    def synchronize(self):
        for values, before in self._masters:
            assert torch.equal(values, before), "changed under a copy"
        Reading.under_way -= 1


def after_copies(method):
    def call(*arguments):
        assert Reading.under_way == 0, "may change masters under a copy"
        return method(*arguments)

    return call


def no_master_changes_while_it_is_copied():
    """Weights are copied to a GPU while the script goes on; what changes masters waits for that."""
    names = ("on_gradient", "end_step", "drain")
    checked = {name: after_copies(getattr(native.Exchange, name)) for name in names}
    with slimps.kv.create("dist_sync") as store:
        for prefix, options in (("plain.", {}), ("backed_up.", {"backup_model": True})):
            expected = train(store, "sync." + prefix, **options)
            Reading.started = Reading.under_way = 0
            start = mock.patch.object(gpu, "start_writing", lambda copies: [Reading(copies)])
            with taken_for_gpus(), start, mock.patch.multiple(native.Exchange, **checked):
                found = train(store, prefix, **options)
            assert all(map(torch.equal, expected, found)), prefix
            # First weights, each step's; the global weights only beside a backup model's.
            assert Reading.started == 1 + STEPS + 2 * bool(options), Reading.started
            assert Reading.under_way == bool(options), "of the last weights"


def copies_of_gradients_are_freed_before_the_step_ends():
    """As the packed copies of gradients with gaps: each when the library has read it."""
    on_gradient = native.Exchange.on_gradient
    pushed = []

    def checked(exchange, index, gradient):
        while not all(map(exchange.is_read, pushed)):
            time.sleep(0.001)
        on_gradient(exchange, index, gradient)
        pushed.append(index)
        gc.collect()
        assert len(Memory.alive) == 1, "those before were read"

    with slimps.kv.create("dist_sync") as store, taken_for_gpus():
        model = network()
        optimizer = slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model, store=store
        )
        for images, labels in batches(2):
            optimizer.zero_grad()
            with mock.patch.object(native.Exchange, "on_gradient", checked):
                nn.functional.cross_entropy(model(images), labels).backward()
            assert len(pushed) == len(list(model.parameters())) > 1
            pushed.clear()
            optimizer.step()


def a_gradient_that_is_not_finite_fails_the_step():
    with slimps.kv.create("dist_sync") as store, taken_for_gpus():
        model = nn.Linear(3, 1)
        optimizer = slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model, store=store
        )
        model(torch.full((1, 3), float("nan") if store.rank == 1 else 1.0)).sum().backward()
        try:
            optimizer.step()
        except slimps.Error as error:
            assert "element 0 is nan" in str(error), error
            print("refused: %s" % error)
        else:
            raise AssertionError("expected an error")


class Bucket:
    """A bucket of DistributedDataParallel's. Its gradients may have gaps of memory's order."""

    def __init__(self, parameters, gradients):
        self._parameters = parameters
        self._buffer = torch.zeros(sum(parameter.numel() for parameter in parameters))
        for view, gradient in zip(self.gradients(), gradients):
            view.copy_(gradient)

    def buffer(self):
        return self._buffer

    def is_last(self):
        return False  # the hook asks autograd for what follows the last one, and none runs here

    def parameters(self):
        return self._parameters

    def gradients(self):
        sizes = [parameter.numel() for parameter in self._parameters]
        return [
            torch.as_strided(part, one.shape, one.stride(), part.storage_offset())
            for part, one in zip(self._buffer.split(sizes), self._parameters)
        ]


def a_hook_takes_buckets_of_a_gpu():
    """The hook's futures have the means, as on the CPU. Nothing passes through torch's copies."""
    model = network()
    model[0].weight.data = model[0].weight.data.to(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    assert not model[0].weight.is_contiguous()
    targets = {}  # by the address of the tensor; the newest is what was pulled into
    copy = gpu.start_writing

    def write(copies):
        for target in targets.values():
            target.copy_back()
        copy(copies)

    def of_torch(tensor):
        memory = targets[tensor.data_ptr()] = Memory(tensor)
        return native.GpuArray(memory, memory.pointer.value, tuple(tensor.shape), 0, 0)

    with slimps.kv.create("dist_sync") as store:
        with slimps.torch.CommHookState(model.named_parameters(), store=store) as state:
            for step in range(3):
                means = [
                    torch.arange(1.0 * p.numel()).reshape(p.shape) + i + step
                    for i, p in enumerate(parameters)
                ]
                bucket = Bucket(parameters, [2 * store.rank * mean for mean in means])
                targets.clear()
                with taken_for_cuda_tensors(of_torch), mock.patch.object(
                    torch.Tensor, "cpu"
                ), mock.patch.object(gpu, "start_writing", write):
                    slimps.torch.comm_hook(state, bucket).wait()
                    torch.Tensor.cpu.assert_not_called()
                for mean, gradient in zip(means, bucket.gradients()):
                    assert torch.equal(mean, gradient)
                of_first = torch.zeros(model[0].weight.shape)
                store.pull("gradient/0.weight", of_first)
                assert torch.equal(means[0], of_first), "its elements are in canonical order"


def buffers_of_a_gpu_get_rank_0s_values():
    with slimps.kv.create("dist_sync") as store, taken_for_gpus():
        tensors = {
            "floats": torch.full((3,), 1.0 + store.rank),
            "counts": torch.tensor(7 + store.rank),
        }
        slimps.torch.broadcast_parameters(tensors, store)
        assert torch.equal(tensors["floats"], torch.ones(3)), tensors
        assert tensors["counts"].item() == 7, tensors


@contextlib.contextmanager
def taken_for_cuda_tensors(of_torch=lambda tensor: gradient_of(tensor, "")):
    """Within it, a store takes all tensors for tensors on a GPU."""
    with mock.patch.object(slimps._gpu, "of_torch", of_torch), mock.patch.object(
        torch.Tensor, "is_cuda", True
    ):
        yield


def gradients_of_halves_stay_halves():
    """Exchange.on_gradient gets them where they lie; what has gaps is packed, float64 converted."""
    stream = mock.Mock(cuda_stream=9)
    for dtype, kind in (
        (torch.float16, native.FLOAT16),
        (torch.bfloat16, native.BFLOAT16),
        (torch.float32, native.FLOAT32),
        (torch.float64, native.FLOAT32),
    ):
        gradient = torch.ones(3, 4, dtype=dtype)
        with mock.patch.object(torch.Tensor, "is_cuda", True), mock.patch.object(
            torch.cuda, "current_stream", lambda device: stream
        ):
            found = gpu.gradient_of(gradient, "w")
            packed = gpu.gradient_of(gradient.T, "w")
        assert (found.kind, packed.kind, found.stream) == (kind, kind, 9), found
        assert found.nbytes == (24 if kind != native.FLOAT32 else 48), found
        if dtype != torch.float64:
            assert found.address == gradient.data_ptr(), dtype
        assert packed.shape == (4, 3) and packed.owner.is_contiguous(), packed


def half_precision_is_converted():
    with slimps.kv.create("dist_sync") as store:
        store.init("w", torch.zeros(3, 5, dtype=torch.float16))
        with taken_for_cuda_tensors():
            store.init("v", torch.full((3, 5), 2.0, dtype=torch.float16))
            store.push("w", torch.full((5, 3), 0.5, dtype=torch.float16).T)
            halves = torch.zeros(3, 5, dtype=torch.float16)
            gaps = torch.zeros(3, 10)[:, ::2]
            store.pull(["w", "v"], [halves, gaps])
            assert torch.equal(halves, torch.ones(3, 5, dtype=torch.float16)), halves
            assert torch.equal(gaps, torch.full((3, 5), 2.0)), gaps
            for call, why in (
                (lambda: store.push("w", torch.zeros(3, 5, dtype=torch.int32)), "got torch.int32"),
                (lambda: store.pull("w", torch.zeros(3, 5, dtype=torch.int32)), "got torch.int32"),
                (lambda: store.pull_then("w", halves, print), "got torch.float16 on a GPU"),
            ):
                try:
                    call()
                except slimps.InvalidArgumentError as refused:
                    assert why in str(refused), refused
                else:
                    raise AssertionError("expected: " + why)
            store.push("w", torch.ones(3, 5))
        store.pull("w", halves)
        assert torch.equal(halves, torch.full((3, 5), 2.0, dtype=torch.float16)), halves


def half_precision_beside_compression_is_refused():
    """As on the host: MXNet's compression takes float32 alone."""
    with slimps.kv.create("dist_sync") as store:
        store.set_gradient_compression({"type": "2bit"})
        store.init("w", torch.zeros(3))
        half = torch.ones(3, dtype=torch.float16)
        for place in (contextlib.nullcontext(), taken_for_cuda_tensors()):
            with place:
                try:
                    store.push("w", [torch.ones(3), half])
                except slimps.InvalidArgumentError as refused:
                    assert "expected float32, got float16" in str(refused), refused
                else:
                    raise AssertionError("expected an error")
                store.pushpull("w", torch.ones(3), out=torch.zeros(3))


if __name__ == "__main__":
    scenario.play(globals())
    gc.collect()
    assert cuda.slimps_fake_misuses() == b"", cuda.slimps_fake_misuses().decode()
