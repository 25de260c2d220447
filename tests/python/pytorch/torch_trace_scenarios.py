# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of torch_trace_test.py run: torch_trace_scenarios.py NAME GROUP_FILE.

See torch_scenarios.py.
"""

import scenario
import slimps
import slimps.torch
import torch
import torch.distributed as dist
from torch_training import OPTIMIZERS, batches, mine, network, step

STEPS = 5


def an_optimizer(_):
    model = network()
    with slimps.torch.DistributedOptimizer(OPTIMIZERS["sgd"](model), model) as optimizer:
        train(model, optimizer, optimizer.store.rank)


def a_hook(path):
    rank = slimps.init().rank
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(network())
    with slimps.torch.CommHookState(model.module.named_parameters()) as state:
        model.register_comm_hook(state, slimps.torch.comm_hook)
        train(model, OPTIMIZERS["sgd"](model), rank)


def train(model, optimizer, rank):
    """Trains, after a forward pass that fails, as a script may do and go on."""
    try:
        model(torch.zeros(1))
    except (RuntimeError, ValueError):
        pass
    for images, labels in batches(STEPS):
        step(optimizer, model, *mine(rank, images, labels))
    with torch.no_grad():
        model(images)


if __name__ == "__main__":
    scenario.play(globals())
