# SPDX-License-Identifier: Apache-2.0
"""The scenarios of torch_recipe_test.py's workers: torch_recipe_scenarios.py NAME GROUP_FILE.

Each is a training as docs/migrate-from-ddp.md writes it, beside one process with the joint batch.
"""

import os

import scenario
import slimps
import slimps.torch
import torch.distributed as dist
from torch_training import OPTIMIZERS, batches, farthest, loss_of, mine, network, step

STEPS = 10


def join(path):
    """Does what `slimps launch` and torchrun do for a script. Returns this worker's rank."""
    rank = slimps.init().rank
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    return rank


def trained_alone():
    alone = network()
    optimizer = OPTIMIZERS["sgd"](alone)
    for images, labels in batches(STEPS):
        step(optimizer, alone, images, labels)
    return alone


def pushed_everything(state, model):
    """True if each step's gradients went to the servers, and not through gloo."""
    return state.totals()["bytes_pushed"] == 4 * STEPS * sum(
        one.numel() for one in model.parameters()
    )


def accelerate_with_the_hook(path):
    from accelerate import Accelerator

    rank = join(path)
    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, OPTIMIZERS["sgd"](model))
    with slimps.torch.CommHookState(model.named_parameters()) as state:
        model.register_comm_hook(state, slimps.torch.comm_hook)
        for images, labels in batches(STEPS):
            images, labels = mine(rank, images, labels)
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, images, labels))
            optimizer.step()
        assert pushed_everything(state, model)
    assert farthest(model, trained_alone()) < 1e-5


def accelerate_with_distributed_optimizer(path):
    from accelerate import Accelerator

    rank = join(path)
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare_model(network(), evaluation_mode=True)
    with slimps.torch.DistributedOptimizer(OPTIMIZERS["sgd"](model), model) as optimizer:
        for images, labels in batches(STEPS):
            images, labels = mine(rank, images, labels)
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, images, labels))
            optimizer.step()
    assert farthest(model, trained_alone()) < 1e-5


if __name__ == "__main__":
    scenario.play(globals())
