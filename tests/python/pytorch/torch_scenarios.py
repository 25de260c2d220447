# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of torch_test.py run: torch_scenarios.py NAME [ARGUMENT].

A failed assertion ends the worker, and the test.
"""

import copy
import math
import os

import pytest
import scenario
import slimps
import slimps.torch
import torch
from torch_training import (
    BATCH,
    OPTIMIZERS,
    ROUNDING,
    STEPS,
    batches,
    farthest,
    loss_of,
    mine,
    network,
    same_everywhere,
    step,
    step_by_halves,
)


CLIP_NORM = 1.0


def equals_the_joint_batch(kind):
    """Training equals a single process on the joint batch, with parameter groups and a schedule of
    the learning rate. If that process sums the halves' gradients, all bits are equal. There is no
    lag unless the user asks for one."""
    alone, by_halves = network(), network()
    references = [OPTIMIZERS[kind](alone), OPTIMIZERS[kind](by_halves)]
    reference_schedules = [
        torch.optim.lr_scheduler.StepLR(one, step_size=20, gamma=0.5) for one in references
    ]
    model = network(seed=1 + int(slimps.init().rank))  # rank 0's weights count
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS[kind](model), model.named_parameters()
    ) as optimizer:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
        for images, labels in batches(STEPS):
            step(references[0], alone, images, labels)
            step_by_halves(references[1], by_halves, images, labels)
            for one in reference_schedules:
                one.step()
            rank = optimizer.store.rank
            step(optimizer, model, *mine(rank, images, labels))
            schedule.step()
            assert farthest(model, by_halves) <= ROUNDING[kind], farthest(model, by_halves)
        assert optimizer.param_groups[0]["lr"] == references[0].param_groups[0]["lr"]
        assert same_everywhere(optimizer.store, model)
    assert farthest(model, alone) < 1e-5, farthest(model, alone)


def has_the_weights_of_ddp(device, path):
    """After STEPS steps, as DistributedDataParallel over gloo has them. Both train on `device`;
    workers take GPUs in turn. torch adds up gradients on GPUs in another order each time unless it
    is told not to."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    rank = slimps.init().rank
    if device == "cuda":
        device = "cuda:%d" % (rank % torch.cuda.device_count())
    model = network().to(device)
    theirs = copy.deepcopy(model)
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + path, rank=rank, world_size=2
    )
    ddp = torch.nn.parallel.DistributedDataParallel(theirs)
    reference = OPTIMIZERS["sgd"](theirs)
    with slimps.torch.DistributedOptimizer(OPTIMIZERS["sgd"](model), model) as optimizer:
        for images, labels in batches(STEPS):
            part = [one.to(device) for one in mine(rank, images, labels)]
            step(reference, ddp, *part)
            step(optimizer, model, *part)
        assert farthest(model, theirs) <= ROUNDING["sgd"], farthest(model, theirs)


def layouts_may_differ():
    """Worker 1's convolution is in channels_last. All send elements in the same order."""
    alone, model = network(), network()
    reference = OPTIMIZERS["sgd"](alone)
    rank = int(slimps.init().rank)
    if rank == 1:
        model.to(memory_format=torch.channels_last)
        assert not model[0].weight.is_contiguous()
    with slimps.torch.DistributedOptimizer(OPTIMIZERS["sgd"](model), model) as optimizer:
        for images, labels in batches(10):
            step_by_halves(reference, alone, images, labels)
            step(optimizer, model, *mine(rank, images, labels))
            assert farthest(model, alone) < 1e-6, farthest(model, alone)
        assert same_everywhere(optimizer.store, model)
        assert model[0].weight.is_contiguous() == (rank == 0)


def the_backup_model_is_one_local_step_ahead():
    model = network()
    start = copy.deepcopy(model)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        backup_model=True,
        local_lr=0.05,
    ) as optimizer:
        (images, labels), *rest = batches(5)
        rank = optimizer.store.rank
        step(optimizer, model, *mine(rank, images, labels))
        local, joint = copy.deepcopy(start), copy.deepcopy(start)
        step(torch.optim.SGD(local.parameters(), lr=0.05), local, *mine(rank, images, labels))
        step(torch.optim.SGD(joint.parameters(), lr=0.1), joint, images, labels)
        assert farthest(model, local) < 1e-6 and farthest(model, joint) > 1e-4
        with optimizer.global_weights():
            assert farthest(model, joint) < 1e-6
            assert same_everywhere(optimizer.store, model)
        assert farthest(model, local) < 1e-6
        for images, labels in rest:
            step(optimizer, model, *mine(rank, images, labels))
        store = optimizer.store
        with optimizer.global_weights():
            assert same_everywhere(store, model)
            last = copy.deepcopy(model)
        store.barrier()
    assert farthest(model, last) == 0  # close() leaves the servers' weights


class Shared(torch.nn.Module):
    """A model with a tied weight, frozen weights (one is a number), and a layer that some steps do
    not use."""

    def __init__(self, seed=3):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Linear(6, 6, bias=False)
        self.tied = torch.nn.Linear(6, 6, bias=False)
        self.tied.weight = self.first.weight
        self.frozen = torch.nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.temperature = torch.nn.Parameter(torch.tensor(float(seed)), requires_grad=False)
        self.sometimes = torch.nn.Linear(6, 6)

    def forward(self, values, use):
        values = torch.tanh(self.tied(torch.tanh(self.first(values))))
        values = self.frozen(values) / self.temperature
        return self.sometimes(values) if use else values


def tied_frozen_and_unused_parameters():
    alone = Shared()
    model = Shared(3 + int(slimps.init().rank))  # rank 0's weights count
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    reference = torch.optim.SGD(alone.parameters(), **settings)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), **settings),
        model.named_parameters(),
        backup_model=False,
    ) as optimizer:
        rank = optimizer.store.rank
        made = torch.Generator().manual_seed(5)
        for number in range(12):
            values = torch.randn(4, 6, generator=made)
            # In step 0 no worker uses the layer, so torch does not step it, not even by weight
            # decay. In steps 1 and 2 only worker 0 uses it.
            uses = [number > 0, number > 0 and number % 3 == 0]
            reference.zero_grad(set_to_none=number < 2)
            loss = sum(
                (alone(values[2 * one : 2 * one + 2], uses[one]) ** 2).mean() / 2 for one in (0, 1)
            )
            loss.backward()
            reference.step()
            optimizer.zero_grad(set_to_none=True)
            (model(values[2 * rank : 2 * rank + 2], uses[rank]) ** 2).mean().backward()
            optimizer.step()
            assert farthest(model, alone) < 1e-6, (number, farthest(model, alone))


def what_an_optimizer_does_not_step_is_rank_0s():
    """The head's optimizer does not get the backbone. Another optimizer steps a part of it."""
    model = Shared(3 + int(slimps.init().rank))
    named = list(model.named_parameters())
    rank_0s = Shared(3)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.sometimes.parameters(), lr=0.1), named, backup_model=False
    ) as head:
        assert farthest(model, rank_0s) == 0
        with torch.no_grad():
            model.frozen.weight.fill_(1 + head.store.rank)
        tied = slimps.torch.DistributedOptimizer(
            torch.optim.SGD([model.first.weight], lr=0.1),
            named,
            store=head.store,
            backup_model=False,
        )
        assert float(model.frozen.weight.detach().max()) == 1, "rank 0's again"
        model(torch.ones(2, 6), True).sum().backward()
        head.step()
        tied.step()
        assert not torch.equal(model.first.weight, rank_0s.first.weight)
        assert not torch.equal(model.sometimes.weight, rank_0s.sometimes.weight)


def gradients_accumulate():
    alone, model = network(), network()
    reference = OPTIMIZERS["sgd"](alone)
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS["sgd"](model),
        model.named_parameters(),
        backup_model=False,
        backward_passes_per_step=2,
    ) as optimizer:
        rank = optimizer.store.rank
        for images, labels in batches(10):
            step(reference, alone, images, labels)
            optimizer.zero_grad()
            for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
                (
                    loss_of(model, *(part[half] for part in mine(rank, images, labels))) / 2
                ).backward()
            optimizer.step()
        assert farthest(model, alone) < 1e-5


def clipped_gradients():
    """By norm: each worker clips its own gradients before it pushes. By element: the servers clip
    the mean."""
    alone, model = network(), network()
    reference = torch.optim.SGD(alone.parameters(), lr=0.5)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5),
        model.named_parameters(),
        backup_model=False,
        push_in_backward=False,
        clip_gradient=0.002,
    ) as optimizer:
        rank = optimizer.store.rank
        for images, labels in batches(10):
            means = None
            for one in (0, 1):
                reference.zero_grad()
                loss_of(alone, *mine(one, images, labels)).backward()
                torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
                parts = [parameter.grad.clone() / 2 for parameter in alone.parameters()]
                means = (
                    parts if means is None else [mean + part for mean, part in zip(means, parts)]
                )
            for parameter, mean in zip(alone.parameters(), means):
                parameter.grad = mean.clamp(-0.002, 0.002)
            reference.step()
            optimizer.zero_grad()
            loss_of(model, *mine(rank, images, labels)).backward()
            assert float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)) > 0.1
            optimizer.step()
        assert farthest(model, alone) < 1e-5, farthest(model, alone)


def half_precision_parameters(dtype):
    """The servers step float32 masters by the mean gradient; parameters are the rounded masters."""
    dtype = getattr(torch, dtype)
    alone, model = network().to(dtype), network().to(dtype)
    masters = [parameter.detach().float() for parameter in alone.parameters()]
    reference = torch.optim.SGD(masters, lr=0.1, momentum=0.9, weight_decay=1e-3)
    with slimps.torch.DistributedOptimizer(OPTIMIZERS["sgd"](model), model) as optimizer:
        rank = optimizer.store.rank
        for images, labels in batches(20):
            images = images.to(dtype)
            for master in masters:
                master.grad = torch.zeros_like(master)
            for one in (0, 1):
                alone.zero_grad()
                loss_of(alone, *mine(one, images, labels)).backward()
                for parameter, master in zip(alone.parameters(), masters):
                    master.grad += parameter.grad.float() / 2
            reference.step()
            with torch.no_grad():
                for parameter, master in zip(alone.parameters(), masters):
                    parameter.copy_(master)
            step(optimizer, model, *mine(rank, images, labels))
            assert farthest(model, alone) <= ROUNDING["sgd"], farthest(model, alone)
            with optimizer.global_weights():
                assert farthest(model, alone) <= ROUNDING["sgd"], farthest(model, alone)


def compiled_models_keep_their_names():
    model, alone = network(), network()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="aot_eager")
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(compiled.parameters(), lr=0.1), compiled.named_parameters()
    ) as optimizer:
        assert all(optimizer.store.has_key(name) for name, _ in model.named_parameters())
        for images, labels in batches(10):
            step(reference, alone, images, labels)
            step(optimizer, compiled, *mine(optimizer.store.rank, images, labels))
            assert farthest(model, alone) < 1e-5, farthest(model, alone)


def data_that_ends_unevenly():
    """Worker 1 has nothing in step 2, has a smaller batch in step 3, and ends after that."""
    alone, model = network(), network()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backup_model=False
    ) as optimizer:
        rank = optimizer.store.rank
        for number, (images, labels) in enumerate(batches(6), 1):
            counts = {1: (BATCH, BATCH), 2: (BATCH, 0), 3: (BATCH, 3)}.get(number, (BATCH, None))
            reference.zero_grad()
            workers = 2 if number <= 3 else 1
            for one, count in enumerate(counts):
                if count:
                    (
                        loss_of(alone, *(part[:count] for part in mine(one, images, labels)))
                        / workers
                    ).backward()
            reference.step()
            count = counts[rank]
            if count is None:
                break
            optimizer.zero_grad(set_to_none=True)
            if count:
                loss_of(model, *(part[:count] for part in mine(rank, images, labels))).backward()
                optimizer.step()
            else:
                optimizer.skip_step()
            assert farthest(model, alone) < 1e-6, (number, farthest(model, alone))
        if rank == 1:
            optimizer.leave()


def compressed_both_ways_learns():
    model = network()
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05),
        model.named_parameters(),
        compression="1bit",
        threshold=256,
        pull_compression="1bit",
        pull_threshold=256,
        backup_model=True,
    ) as optimizer:
        losses = [
            step(optimizer, model, *mine(optimizer.store.rank, *batch))
            for batch in list(batches(10)) * 20
        ]
        assert sum(losses[-10:]) < 0.5 * sum(losses[:10]), (losses[:10], losses[-10:])
        totals = optimizer.totals()
        raw = 4 * len(losses) * sum(parameter.numel() for parameter in model.parameters())
        assert totals["bytes_pushed"] < raw / 10 and totals["bytes_pulled"] < raw / 4, (totals, raw)
        assert totals["wait_s"] > 0 and totals["local_update_s"] > 0
        store = optimizer.store
        with optimizer.global_weights():
            assert same_everywhere(store, model)
        store.barrier()


def frozen_weights_are_broadcast_and_the_servers_keep_none(path):
    rank = int(slimps.init().rank)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2).bfloat16())
    model[1].requires_grad_(False)
    fill(model, 1.5 + rank)
    sgd = torch.optim.SGD(model[0].parameters(), lr=1.0, momentum=0.5)
    with slimps.torch.DistributedOptimizer(sgd, model) as optimizer:
        assert all(bool((parameter == 1.5).all()) for parameter in model.parameters())
        model[0](torch.ones(1, 3)).sum().backward()
        optimizer.step()
        for value in (3.0, 4.0):  # as often as a script likes
            fill(model[1], value + rank)
            slimps.torch.broadcast_parameters(model[1].named_parameters(), optimizer.store)
            assert bool((model[1].weight == value).all())
        optimizer.store.save_optimizer_states(path + str(rank))
        with open(path + str(rank), "rb") as saved:
            names = saved.read()
        assert b"0.weight" in names and b"1.weight" not in names


def frozen_weights_stay_without_init_sync():
    rank = int(slimps.init().rank)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    model[1].requires_grad_(False)
    fill(model, 1.5 + rank)
    sgd = torch.optim.SGD(model[0].parameters(), lr=1.0)
    with slimps.torch.DistributedOptimizer(sgd, model, init_sync=False):
        assert bool((model[0].weight == 1.5).all()), "the servers need them"
        assert bool((model[1].weight == 1.5 + rank).all())


def fill(model, value):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def buffers_are_broadcast_before_each_step():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    with slimps.torch.DistributedOptimizer(sgd, model, broadcast_buffers=True) as optimizer:
        seen = []  # at the beginning of each forward pass
        model.register_forward_pre_hook(lambda *_: seen.append(model[1].running_mean.clone()))
        rank, total = optimizer.store.rank, optimizer.store.all_reduce_sum
        for number in range(4):
            own = float(model[1].running_mean[0])
            assert number == 0 or total([own])[0] != 2 * own, "each step has its own statistics"
            with torch.no_grad():
                model.eval()(torch.ones(2, 3))
            assert float(seen.pop()[0]) == own, "evaluation takes none"
            model.train()
            if number == 3 and rank == 1:
                optimizer.skip_step()  # the other worker's forward pass waits for it
                continue
            model(torch.full((2, 3), 1.0 + number + 10 * rank)).sum().backward()
            optimizer.step()
            if number < 3:
                assert total([float(seen[-1][0])])[0] == 2 * float(seen[-1][0])
        try:
            optimizer.leave()
            raise AssertionError("expected an error")
        except slimps.FailedPreconditionError as error:
            assert "expected skip_step()" in str(error), error


def values_are_broadcast():
    store = slimps.kv.create("dist_sync")
    model = torch.nn.BatchNorm1d(3)
    with torch.no_grad():
        model.weight.fill_(5 + store.rank)
        model.running_mean.fill_(0.5 - store.rank)
        model.num_batches_tracked.fill_(2**40 + store.rank)
    slimps.torch.broadcast_parameters(model.state_dict(), store)
    assert model.weight.tolist() == [5.0] * 3 and model.running_mean.tolist() == [0.5] * 3
    assert int(model.num_batches_tracked) == 2**40
    with torch.no_grad():
        model.weight.fill_(7 + store.rank)
    slimps.torch.broadcast_parameters(model.named_parameters())  # the store that is open
    assert model.weight.tolist() == [7.0] * 3
    mask = torch.triu(torch.full((3, 3), -float("inf") if store.rank == 0 else 1.0), 1)
    given = {
        "mask": mask,
        "nan": torch.tensor(float("nan"), dtype=torch.float64),
        "none": torch.zeros(0),
        "half": torch.full((2,), 1.5 - store.rank).bfloat16(),
        "flags": torch.tensor([store.rank == 0, False, True]),
        "wide": torch.full((2, 3), 2**62 + 1 - store.rank).t(),
        "complex": torch.tensor([1j * (1 - store.rank)]),
    }
    slimps.torch.broadcast_parameters(given, store)
    assert mask.flatten().tolist() == [
        0,
        -float("inf"),
        -float("inf"),
        0,
        0,
        -float("inf"),
        0,
        0,
        0,
    ]
    assert (
        bool(given["nan"].isnan())
        and given["half"].tolist() == [1.5, 1.5]
        and given["complex"].tolist() == [1j]
    )
    assert given["flags"].tolist() == [True, False, True] and set(
        given["wide"].flatten().tolist()
    ) == {2**62 + 1}
    store.close()


def clips_as_torch_clips_the_joint_batch(kind):
    """Losses, weights and norms are those of one process that clips the joint batch's gradient."""
    alone = network()
    reference = OPTIMIZERS[kind](alone)
    model = network(seed=1 + int(slimps.init().rank))
    norms, clipped = [], set()
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS[kind](model), model, clip_norm=CLIP_NORM
    ) as optimizer:
        assert optimizer.clip_norm == CLIP_NORM and optimizer.grad_norm == 0.0
        for images, labels in batches(20):
            reference.zero_grad()
            expected = loss_of(alone, images, labels)
            expected.backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(alone.parameters(), CLIP_NORM)))
            reference.step()
            with torch.no_grad():
                joint = float(loss_of(model, images, labels))
            assert abs(joint / float(expected.detach()) - 1) < 1e-4, (joint, expected)
            step(optimizer, model, *mine(optimizer.store.rank, images, labels))
            # The references drift apart by rounding, which grows from step to step.
            bound = 1e-6 if len(norms) == 1 else 1e-3
            assert abs(optimizer.grad_norm / norms[-1] - 1) < bound, (optimizer.grad_norm, norms)
            clipped.add(norms[-1] > CLIP_NORM)
        assert clipped == {False, True}, norms
        assert optimizer.skipped_steps == 0
        assert same_everywhere(optimizer.store, model)


def a_step_that_is_not_finite_is_skipped():
    """Each worker's gradient is finite, and their sum is not."""
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = slimps.torch.DistributedOptimizer(
        torch.optim.SGD([weight], lr=0.1, momentum=0.9), [("weight", weight)], clip_norm=1.0
    )
    with optimizer:
        for factor, steps in ((1.0, 0), (3e38, 1), (1.0, 1)):
            before = weight.detach().clone()
            optimizer.zero_grad()
            (weight[0] * factor).backward()
            optimizer.step()
            assert optimizer.skipped_steps == steps
            assert torch.equal(weight, before) == (factor > 1)
            assert math.isfinite(optimizer.grad_norm) == (factor == 1)


def the_limit_may_be_set_before_a_step():
    model = network()
    optimizer = slimps.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1), model)
    with optimizer:
        assert optimizer.clip_norm is None
        optimizer.clip_norm = 1e-3
        for images, labels in batches(1):
            before = [parameter.detach().clone() for parameter in model.parameters()]
            loss_of(model, *mine(optimizer.store.rank, images, labels)).backward()
            with pytest.raises(slimps.FailedPreconditionError, match="clip_norm: gradients of"):
                optimizer.clip_norm = 1.0
            optimizer.step()
            moved = [now.detach() - was for now, was in zip(model.parameters(), before)]
            length = float(torch.cat([one.reshape(-1) for one in moved]).norm())
            assert abs(length / 1e-3 - 1) < 1e-3, length
            assert optimizer.grad_norm > 1e-3
        with pytest.raises(slimps.InvalidArgumentError, match="clip_norm: expected a finite"):
            optimizer.clip_norm = -1.0


if __name__ == "__main__":
    scenario.play(globals())
