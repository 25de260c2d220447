# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of torch_hook_test.py run: torch_hook_scenarios.py NAME GROUP_FILE.

See torch_scenarios.py.
"""

import copy
import io
import os

import scenario
import slimps
import slimps.torch
import torch
import torch.distributed as dist
from eventually import eventually
from torch_training import (
    BATCH,
    OPTIMIZERS,
    STEPS,
    batches,
    farthest,
    loss_of,
    mine,
    network,
    same_everywhere,
    step,
)


def two_models(path, device="cpu", make=network):
    """Makes two models, one for gloo and one for the hook, in channels_last.

    Workers take GPUs in turn.
    """
    rank = slimps.init().rank
    if device == "cuda":
        device = "cuda:%d" % (rank % torch.cuda.device_count())
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    wrap = torch.nn.parallel.DistributedDataParallel
    models = [
        wrap(make().to(device, memory_format=layout), bucket_cap_mb=0.01)
        for layout in (torch.contiguous_format, torch.channels_last)
    ]
    return rank, models[0], models[1]


def the_hook_equals_gloo(path, device):
    rank, by_gloo, by_servers = two_models(path, device)
    place = next(by_servers.parameters()).device
    with slimps.torch.CommHookState(by_servers.module.named_parameters()) as state:
        by_servers.register_comm_hook(state, slimps.torch.comm_hook)
        optimizers = [OPTIMIZERS["sgd"](model) for model in (by_gloo, by_servers)]
        for images, labels in batches(STEPS):
            part = [one.to(place) for one in mine(rank, images, labels)]
            for model, optimizer in zip((by_gloo, by_servers), optimizers):
                step(optimizer, model, *part)
        assert farthest(by_gloo, by_servers) < 1e-5, farthest(by_gloo, by_servers)
        weight = by_servers.module[0].weight
        assert not weight.is_contiguous()
        mean = torch.zeros(weight.shape)
        state.store.pull("gradient/0.weight", out=mean)
        assert torch.equal(mean, weight.grad.cpu()), "in the order of the dimensions"
        assert state.totals()["bytes_pushed"] == 4 * STEPS * sum(
            p.numel() for p in by_gloo.parameters()
        )
        state.store.barrier()


def halves_are_averaged(path, dtype):
    dtype = getattr(torch, dtype)
    rank, by_gloo, by_servers = two_models(path, make=lambda: network().to(dtype))
    with slimps.torch.CommHookState(by_servers.module.named_parameters()) as state:
        by_servers.register_comm_hook(state, slimps.torch.comm_hook)
        for images, labels in batches(1):
            images, labels = mine(rank, images, labels)
            for model in (by_gloo, by_servers):
                loss_of(model, images.to(dtype), labels).backward()
        for one, other in zip(by_gloo.parameters(), by_servers.parameters()):
            assert other.grad.dtype == dtype
            assert torch.allclose(one.grad, other.grad, rtol=0.02, atol=1e-3)
            mean = other.grad.float()
            torch.distributed.all_reduce(mean)
            assert torch.equal(mean / 2, other.grad.float()), "all workers have the same"
        state.store.barrier()


def a_compressed_hook_learns(path):
    rank, _, model = two_models(path)
    with slimps.torch.CommHookState(
        model.named_parameters(), compression="2bit:threshold=0.02", threshold=256, grad_scale=BATCH
    ) as state:
        model.register_comm_hook(state, slimps.torch.comm_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = [step(optimizer, model, *mine(rank, *batch)) for batch in list(batches(10)) * 30]
        assert sum(losses[-10:]) < 0.7 * sum(losses[:10]), (losses[:10], losses[-10:])
        assert same_everywhere(state.store, model)


class WithEmbedding(torch.nn.Module):
    """Rank 0 sees words 1 and 2, rank 1 words 2 and 3; nobody sees the others."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.words = torch.nn.Embedding(6, 3, sparse=True)
        self.linear = torch.nn.Linear(3, 1)

    def forward(self, rank):
        return self.linear(self.words(torch.tensor([1 + 2 * rank, 2, 2]))).tanh().sum()


def sparse_gradients_are_averaged(path):
    rank, by_gloo, by_servers = two_models(path, make=WithEmbedding)
    with slimps.torch.CommHookState(by_servers.named_parameters()) as state:
        by_servers.register_comm_hook(state, slimps.torch.comm_hook)
        optimizers = [
            torch.optim.SGD(model.parameters(), lr=0.5) for model in (by_gloo, by_servers)
        ]
        for _ in range(3):
            for model, optimizer in zip((by_gloo, by_servers), optimizers):
                optimizer.zero_grad()
                model(rank).backward()
                optimizer.step()
            gradient = by_servers.module.words.weight.grad
            assert gradient.is_sparse
            assert gradient.coalesce().indices().tolist() == [[1, 2, 3]], "the rows of all workers"
        assert farthest(by_gloo, by_servers) < 1e-6, farthest(by_gloo, by_servers)
        assert same_everywhere(state.store, by_servers)


def copies_are_no_part_of_the_job(path):
    rank, _, model = two_models(path)
    batch = mine(rank, *next(batches(1)))
    with slimps.torch.CommHookState(model.named_parameters()) as state:
        model.register_comm_hook(state, slimps.torch.comm_hook)
        optimizer = OPTIMIZERS["sgd"](model)
        step(optimizer, model, *batch)
        copied, averaged = copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model)
        file = io.BytesIO()
        torch.save(model, file)
        loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        for other in (copied, averaged.module, loaded):
            assert farthest(other, model) == 0
        step(optimizer, model, *batch)
        averaged.update_parameters(model)
        another = torch.nn.parallel.DistributedDataParallel(network())
        another.register_comm_hook(copy.deepcopy(state), slimps.torch.comm_hook)
        try:
            step(OPTIMIZERS["sgd"](another), another, *batch)
        except slimps.FailedPreconditionError as error:
            assert "the copy of a CommHookState, which is no part of the job" in str(error), error
        else:
            raise AssertionError("the copy's state exchanged gradients")
        state.store.barrier()


def a_refusal_in_the_hook_reaches_backward(path):
    rank, _, model = two_models(path)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with slimps.torch.CommHookState(
        model.named_parameters(),
        compression="topk:ratio=0.5,momentum=nesterov",
        optimizer=optimizer,
    ) as state:
        model.register_comm_hook(state, slimps.torch.comm_hook)
        optimizer.param_groups[0]["momentum"] = 0.8
        for _ in range(2):
            try:
                step(optimizer, model, *mine(rank, *next(batches(1))))
            except slimps.InvalidArgumentError as error:
                assert "got SGD with 0.8 in parameter group 0" in str(error), error
            else:
                raise AssertionError("backward had no error")


def scaled_step(scaler, optimizer, model, images, labels):
    optimizer.zero_grad()
    scaler.scale(loss_of(model, images, labels)).backward()
    scaler.step(optimizer)
    scaler.update()


def a_scaler_changes_nothing(path, compression):
    """The scale doubles every second step. Residuals would be of another scale's gradients."""
    rank, plain, scaled = two_models(path)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    with slimps.torch.CommHookState(
        plain.module.named_parameters(), compression=compression, threshold=0
    ) as state:
        plain.register_comm_hook(state, slimps.torch.comm_hook)
        names = scaled.module.named_parameters(prefix="scaled")
        second = slimps.torch.CommHookState(names, scaler=scaler, store=state.store)
        scaled.register_comm_hook(second, slimps.torch.comm_hook)
        sgd, sgd_scaled = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (plain, scaled)]
        for images, labels in batches(8):
            part = mine(rank, images, labels)
            step(sgd, plain, *part)
            scaled_step(scaler, sgd_scaled, scaled, *part)
        assert scaler.get_scale() == 1024 * 2**4
        assert farthest(plain, scaled) < 1e-6, farthest(plain, scaled)
        assert farthest(plain.module, network()) > 1e-3, "nothing was learnt"
        state.store.barrier()


def all_skip_an_overflow(path, compression, pull_compression, shown):
    """Worker 1's loss is infinite in one step, worker 0's is not."""
    rank, _, model = two_models(path)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)
    with slimps.torch.CommHookState(
        model.module.named_parameters(),
        compression=compression,
        pull_compression=pull_compression,
        threshold=None if compression == "none" else 0,
        pull_threshold=None if pull_compression == "none" else 0,
        scaler=scaler if shown == "shown" else None,
    ) as state:
        model.register_comm_hook(state, slimps.torch.comm_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for number, (images, labels) in enumerate(batches(8)):
            images, labels = mine(rank, images, labels)
            before = [parameter.detach().clone() for parameter in model.parameters()]
            if number == 3 and rank == 1:
                images = images * float("inf")
            scaled_step(scaler, optimizer, model, images, labels)
            same = all(torch.equal(old, new) for old, new in zip(before, model.parameters()))
            assert same == (number == 3), number
            assert scaler.get_scale() == (512 if number >= 3 else 1024), "as on the other worker"
        assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
        assert same_everywhere(state.store, model)


def a_hook_that_fails_says_why(path):
    """Worker 1 gives up when worker 0 has pushed the only bucket and waits for its mean."""
    rank = slimps.init().rank
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(network())
    state = slimps.torch.CommHookState(model.module.named_parameters(), timeout_s=60)
    waits = path + ".waits"
    if rank == 1:
        eventually(lambda: os.path.exists(waits), seconds=100)
        state.store.abort("worker 1 has had enough")
        return
    pull_then = state.store.pull_then

    def pull_and_tell(*arguments):
        pull_then(*arguments)
        with open(waits, "w", encoding="ascii"):
            pass

    state.store.pull_then = pull_and_tell
    model.register_comm_hook(state, slimps.torch.comm_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    try:
        step(optimizer, model, *mine(rank, *next(batches(1))))
    except slimps.UnavailableError as error:
        print("told: %s" % error)
    else:
        raise AssertionError("backward had no error")
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters())), "it stepped"


if __name__ == "__main__":
    scenario.play(globals())
