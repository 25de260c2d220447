# SPDX-License-Identifier: Apache-2.0
"""The scenarios of torch_node_test.py, for four workers: torch_node_scenarios.py NAME [ARGUMENT].

A failed assertion ends the worker, and the test.
"""

import copy
import os

import numpy as np
import scenario
import slimps
import slimps.torch
import torch
from slimps.pytorch import node
from torch_scaler_scenarios import scaler_of_1024
from torch_training import OPTIMIZERS, batches, farthest, loss_of, network, refused

WORKERS = 4
RANK = int(os.environ.get("DMLC_WORKER_ID", -1))  # the test itself has none


def take_place(*sizes):
    """Sets this worker's variables for nodes of so many workers. Returns its node's ranks."""
    first = 0
    for size in sizes:
        if RANK < first + size:
            os.environ.update(LOCAL_RANK=str(RANK - first), LOCAL_WORLD_SIZE=str(size))
            return range(first, first + size)
        first += size
    raise AssertionError(sizes)


def part(rank, *tensors):
    """Returns worker `rank`'s part of each tensor: ranks have different numbers of rows."""
    first, last = ((0, 2), (2, 7), (7, 11), (11, 16))[rank]
    return [tensor[first:last] for tensor in tensors]


class Branches(torch.nn.Module):
    """network(), and a layer that some workers use in some steps."""

    def __init__(self):
        super().__init__()
        self.main = network()
        self.other = torch.nn.Linear(192, 10)

    def forward(self, images, with_other):
        found = self.main(images)
        return found + self.other(images.flatten(1)) if with_other else found


def uses_other(rank, number):
    return number % 3 == 1 and rank in (1, 3) or number % 3 == 2 and rank == 0


def backward(model, rank, number, images, labels):
    images, labels = part(rank, images, labels)
    found = model(images, uses_other(rank, number))
    torch.nn.functional.cross_entropy(found, labels).backward()


def joint_step(reference, alone, number, images, labels, without=(), clip_norm=1e30):
    """Makes a step of one process by the mean of all workers' gradients. Returns their norm."""
    reference.zero_grad(set_to_none=True)
    for rank in range(WORKERS):
        if rank not in without:
            backward(alone, rank, number, images, labels)
    for parameter in alone.parameters():
        if parameter.grad is not None:
            parameter.grad /= WORKERS
    norm = torch.nn.utils.clip_grad_norm_(alone.parameters(), clip_norm)
    reference.step()
    return float(norm)


def is_same_everywhere(store, model):
    flat = torch.cat([one.detach().reshape(-1) for one in model.parameters()]).double().numpy()
    numbers = [float(flat.sum()), float((flat * np.arange(flat.size)).sum())]
    return store.all_reduce_sum(numbers) == [WORKERS * number for number in numbers]


def sums_and_means_are_those_of_all_workers(sizes):
    """Nodes of different sizes, parameters without a gradient here and there, steps that a worker
    skips, and a schedule of the learning rate."""
    sizes = [int(size) for size in sizes.split("+")]
    mine = take_place(*sizes)
    alone = Branches()
    model = copy.deepcopy(alone)
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    reference = torch.optim.SGD(alone.parameters(), **settings)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), **settings), model, node_first=True
    ) as optimizer:
        schedules = [
            torch.optim.lr_scheduler.StepLR(one, step_size=4, gamma=0.5)
            for one in (reference, optimizer)
        ]
        assert (optimizer.store.rank, optimizer.store.num_workers) == (RANK, WORKERS)
        for number, (images, labels) in enumerate(batches(10)):
            without = (2,) if number == 5 else ()
            joint_step(reference, alone, number, images, labels, without)
            optimizer.zero_grad(set_to_none=True)
            if RANK in without:
                optimizer.skip_step()
            else:
                backward(model, RANK, number, images, labels)
                optimizer.step()
            assert farthest(model, alone) < 1e-6, (number, farthest(model, alone))
            for one in schedules:
                one.step()
        assert is_same_everywhere(optimizer.store, model)
        pushed = optimizer.totals()["bytes_pushed"]
        elements = sum(parameter.numel() for parameter in model.parameters())
        if RANK == mine[0]:
            assert 4 * 9 * elements < 2 * pushed <= 2 * 4 * 10 * elements, pushed
        else:
            assert pushed == 0, pushed


def the_norm_is_that_of_all_workers():
    take_place(3, 1)
    alone = Branches()
    model = copy.deepcopy(alone)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, node_first=True, clip_norm=0.5
    ) as optimizer:
        for number, (images, labels) in enumerate(batches(6)):
            norm = joint_step(reference, alone, number, images, labels, clip_norm=0.5)
            optimizer.zero_grad(set_to_none=True)
            backward(model, RANK, number, images, labels)
            optimizer.step()
            assert abs(optimizer.grad_norm / norm - 1) < 1e-5, (optimizer.grad_norm, norm)
            assert farthest(model, alone) < 1e-6, (number, farthest(model, alone))


def the_backup_model_is_the_nodes():
    """A step begins with the node's own step: half of SGD's by the node's mean gradient."""
    mine = take_place(2, 2)
    model = network()
    own, joint = copy.deepcopy(model), copy.deepcopy(model)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, backup_model=True
    ) as optimizer:
        for images, labels in batches(1):
            for one, ranks, rate in ((own, mine, 0.05), (joint, range(WORKERS), 0.1)):
                for rank in ranks:
                    (loss_of(one, *part(rank, images, labels)) / len(ranks)).backward()
                torch.optim.SGD(one.parameters(), lr=rate).step()
            loss_of(model, *part(RANK, images, labels)).backward()
            optimizer.step()
        assert farthest(model, own) < 1e-6 and farthest(model, joint) > 1e-4
        for images, labels in batches(3):
            with optimizer.global_weights():
                assert is_same_everywhere(optimizer.store, model)
                assert joint is None or farthest(model, joint) < 1e-6
            joint = None  # later steps have a lag
            optimizer.zero_grad(set_to_none=True)
            if RANK != 1:  # what a bucket held before must not count as a gradient
                loss_of(model, *part(RANK, images, labels)).backward()
                optimizer.step()
            else:
                optimizer.skip_step()
        store = optimizer.store
        with optimizer.global_weights():
            last = copy.deepcopy(model)
        store.barrier()
    assert farthest(model, last) == 0


def half_precision_with_a_scaler_and_a_saved_state():
    """bfloat16 weights are the same everywhere. Overflow on one worker skips a step on all."""
    take_place(2, 2)
    model = network().bfloat16()
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS["adam"](model), model, push_in_backward=False
    ) as optimizer:
        optimizer.load_state_dict(optimizer.state_dict())
        scaler = scaler_of_1024()
        for number, (images, labels) in enumerate(batches(4)):
            before = copy.deepcopy(model)
            optimizer.zero_grad()
            scaler.scale(loss_of(model, *part(RANK, images.bfloat16(), labels))).backward()
            if number == 2 and RANK == 3:
                model[0].weight.grad[0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
            assert (farthest(model, before) == 0) == (number == 2)
        assert is_same_everywhere(optimizer.store, model)
        if RANK == 0:  # alone
            saved = optimizer.state_dict()
            assert saved["round"] == 3 and saved["state"][0]["step"] == 3


def who_shares_a_store_with_one_that_each_pushes_to():
    take_place(2, 2)
    models = [network(), network(seed=2)]
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(models[0].parameters(), lr=0.1),
        [("first." + name, one) for name, one in models[0].named_parameters()],
        node_first=False,
    ) as first:
        refused(
            slimps.FailedPreconditionError,
            "node_first: another optimizer of this store has it False; expected the same",
            lambda: slimps.torch.DistributedOptimizer(
                torch.optim.SGD(models[1].parameters(), lr=0.1),
                models[1],
                store=first.store,
                node_first=True,
            ),
        )
        for images, labels in batches(2):
            first.zero_grad()
            loss_of(models[0], *part(RANK, images, labels)).backward()
            first.step()
        assert is_same_everywhere(first.store, models[0])


def two_optimizers_share_a_store():
    take_place(1, 3)
    models = [network(), network(seed=2)]
    alone = copy.deepcopy(models)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(models[0].parameters(), lr=0.1),
        [("first." + name, one) for name, one in models[0].named_parameters()],
        compression="1bit",
        threshold=1 << 20,
    ) as first:
        refused(
            slimps.FailedPreconditionError,
            "node_first: another optimizer of this store has it True",
            lambda: slimps.torch.DistributedOptimizer(
                torch.optim.SGD(models[1].parameters(), lr=0.1), store=first.store, node_first=False
            ),
        )
        with slimps.torch.DistributedOptimizer(
            torch.optim.SGD(models[1].parameters(), lr=0.1),
            [("second." + name, one) for name, one in models[1].named_parameters()],
            store=first.store,
        ) as second:
            for images, labels in batches(3):
                for one in alone:
                    reference = torch.optim.SGD(one.parameters(), lr=0.1)
                    reference.zero_grad()
                    for rank in range(WORKERS):
                        (loss_of(one, *part(rank, images, labels)) / WORKERS).backward()
                    reference.step()
                for optimizer, model in zip((first, second), models):
                    optimizer.zero_grad()
                    loss_of(model, *part(RANK, images, labels)).backward()
                    optimizer.step()
                for model, one in zip(models, alone):
                    assert farthest(model, one) < 1e-6, farthest(model, one)
        assert second.totals()["bytes_pushed"] > 0 or RANK not in (0, 1)


def learned_thresholds_are_the_leaders():
    """Leaders alone measure what compression pays for, and all workers get the decision."""
    take_place(2, 2)
    model = network()
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model,
        compression="1bit",
        threshold="auto",
        pre_steps=4,
    ) as optimizer:
        for images, labels in batches(12):
            optimizer.zero_grad()
            loss_of(model, *part(RANK, images, labels)).backward()
            optimizer.step()
        assert is_same_everywhere(optimizer.store, model)
        decided = float(optimizer.store.decision() is not None)
        assert optimizer.store.all_reduce_sum([decided])[0] >= 2


def nodes_are_found():
    """By default where there are several nodes, one has several workers, and ranks follow each
    other on each."""
    groups = []  # those that other members still join must not end
    with slimps.kv.create("dist_sync") as store:

        def found(local_rank, size, wanted=None, given=False):
            os.environ.update(LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(size))
            groups.append(node.find(store, wanted, given, []))
            return groups[-1]

        assert found(RANK, 4) is None  # no link between the workers
        assert found(0, 1) is None
        assert found(RANK // 2, 2) is None  # ranks go round the nodes
        assert found(RANK % 2, 2, given=True) is None
        assert found(RANK % 2, 2, wanted=False) is None
        assert found(RANK % 2, 2).leads == (RANK in (0, 2))
        assert found(RANK, 4, wanted=True).leads == (RANK == 0)
        refused(
            slimps.InvalidArgumentError,
            "whose ranks follow each other; got, by rank, 0/2 0/2 1/2 1/2",
            lambda: found(RANK // 2, 2, wanted=True),
        )
        store.barrier()


def what_is_refused():
    take_place(2, 2)
    model = network()
    optimizer = slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, timeout_s=20
    )
    refused(slimps.FailedPreconditionError, "expected skip_step() until all have", optimizer.leave)
    loss_of(model, *part(RANK, *next(batches(1)))).backward()
    optimizer.step()
    optimizer.zero_grad()
    (loss_of(model, *part(RANK, *next(batches(1)))) * (np.nan if RANK == 1 else 1)).backward()
    # One error ends the job, so the nodes' others may hear of that first.
    if RANK == 0:
        refused(slimps.InvalidArgumentError, "5.bias", optimizer.step)
    else:
        refused(slimps.Error, "", optimizer.step)
    scenario.end_at_once()


def trains_over_a_link(node_first, path):
    """Prints the bytes that went over eth0 in ten steps. Saves the weights at `path`."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    )
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model,
        node_first={"default": None, "False": False}[node_first],
    ) as optimizer:
        made = torch.Generator().manual_seed(RANK)
        optimizer.store.barrier()
        before = sum(link_bytes())
        optimizer.store.barrier()
        for _ in range(10):
            optimizer.zero_grad()
            values = torch.randn(4, 256, generator=made)
            torch.nn.functional.mse_loss(model(values), values).backward()
            optimizer.step()
        optimizer.store.barrier()
        print("link", sum(link_bytes()) - before, flush=True)
        optimizer.store.barrier()
    if RANK == WORKERS - 1:
        torch.save(model.state_dict(), path)


def link_bytes():
    for name in ("tx_bytes", "rx_bytes"):
        with open("/sys/class/net/eth0/statistics/" + name, encoding="ascii") as count:
            yield int(count.read())


if __name__ == "__main__":
    scenario.play(globals())
