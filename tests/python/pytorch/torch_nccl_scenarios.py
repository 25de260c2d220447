# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of torch_nccl_test.py run: torch_nccl_scenarios.py NAME [ARGUMENT]...

Most need no GPU: torch's tensors stay on the CPU and are taken for tensors on GPUs, and gloo is
taken for NCCL. They import torch_gpu_scenarios, which wants the tests' own libcuda.so.1.
"""

import contextlib
import gc
from unittest import mock

import scenario
import slimps
import slimps.torch
import torch
from slimps.pytorch import node_group
from torch_node_scenarios import RANK, part, take_place
from torch_training import batches, loss_of, network

STEPS = 4


@contextlib.contextmanager
def on_gpu(number):
    """Within it, this worker's tensors are taken for tensors on that GPU, and gloo for NCCL.

    Yields what node_group.nccl was asked to make.
    """
    import torch_gpu_scenarios

    made = mock.Mock(side_effect=node_group.gloo)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            mock.patch.multiple(node_group, nccl=made, gpu_for_nccl=lambda tensors: number)
        )
        if number != node_group.NO_GPU:
            stack.enter_context(torch_gpu_scenarios.taken_for_gpus())
        yield made


def train(store, prefix, device="cpu", **options):
    """Returns the weights after some steps of a network whose keys begin with `prefix`."""
    model = network().to(device)
    named = [(prefix + name, parameter) for name, parameter in model.named_parameters()]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = slimps.torch.DistributedOptimizer(
        sgd, named, store=store, node_first=True, **options
    )
    for images, labels in batches(STEPS):
        optimizer.zero_grad()
        loss_of(model, *(one.to(device) for one in part(RANK, images, labels))).backward()
        optimizer.step()
    with optimizer.global_weights():
        return [parameter.detach().cpu().clone() for parameter in model.parameters()]


def sums_on_gpus_are_those_on_the_host():
    from torch_gpu_scenarios import Memory, cuda

    mine = take_place(2, 2)
    with slimps.kv.create("dist_sync", compression="1bit", threshold=64) as store:
        for name, options in (
            ("plain", {}),
            ("late", {"push_in_backward": False}),
            ("skipping", {"non_finite": "skip"}),
            ("backed_up", {"backup_model": True}),
        ):
            expected = train(store, name + "_on_host.", **options)
            Memory.taken = 0
            with on_gpu(RANK % 2) as made:
                found = train(store, name + ".", **options)
            assert all(map(torch.equal, expected, found)), name
            assert made.call_count == 1, made.mock_calls
            pushed = STEPS * len(found) if RANK == mine[0] else 0
            assert Memory.taken == pushed, (name, Memory.taken, pushed)
        store.barrier()
    gc.collect()
    assert cuda.slimps_fake_misuses() == b"", cuda.slimps_fake_misuses().decode()


def all_workers_choose_the_same(sizes, gpus, expected):
    """`gpus` are numbers by rank, -1 for the CPU. What is expected: nccl or gloo."""
    mine = take_place(*map(int, sizes.split("+")))
    with slimps.kv.create("dist_sync") as store:
        on_host = train(store, "on_host.")
        with on_gpu(int(gpus.split()[RANK])) as made:
            assert all(map(torch.equal, on_host, train(store, "chosen.")))
        assert made.call_count == (expected == "nccl" and len(mine) > 1), made.mock_calls
        store.barrier()


def a_member_is_lost(on):
    """The last worker ends at once. `on`: "stand-in" for NCCL, or "nccl"."""
    workers = 2 if on == "nccl" else 4
    take_place(*([2] * (workers // 2)))
    device = "cuda:%d" % RANK if on == "nccl" else "cpu"
    with contextlib.nullcontext() if on == "nccl" else on_gpu(RANK % 2):
        model = network().to(device)
        # It also bounds how long the others are waited for, which import torch.
        timeout_s = 10 if on == "nccl" else 60
        optimizer = slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model, node_first=True, timeout_s=timeout_s
        )
        if RANK == workers - 1:
            scenario.end_at_once()
        try:
            for images, labels in batches(2):
                loss_of(model, *(one.to(device) for one in part(RANK, images, labels))).backward()
                optimizer.step()
            raise AssertionError("no error")
        except slimps.UnavailableError as error:
            print("lost: %s" % error, flush=True)
        except slimps.Error:
            assert RANK < workers - 2, "the member's own node"
    scenario.end_at_once()


def nccl_sums_as_gloo():
    """On GPUs: worker 0 has GPU 0, worker 1 has GPU 1."""
    take_place(2)
    torch.backends.cudnn.deterministic = True
    device = "cuda:%d" % RANK
    with slimps.kv.create("dist_sync") as store:
        gloo, nccl = node_group.gloo, node_group.nccl
        refuses = mock.patch.object(node_group, "gpu_for_nccl", lambda tensors: node_group.NO_GPU)
        with refuses, mock.patch.object(node_group, "gloo", side_effect=gloo) as made:
            expected = train(store, "gloo.", device)
        assert made.call_count == 1
        with mock.patch.object(node_group, "nccl", side_effect=nccl) as made:
            found = train(store, "nccl.", device)
        assert made.call_count == 1
        assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(expected, found))
        store.barrier()


if __name__ == "__main__":
    scenario.play(globals())
