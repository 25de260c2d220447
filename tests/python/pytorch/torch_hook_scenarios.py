# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of torch_hook_test.py run: torch_hook_scenarios.py NAME GROUP_FILE.

See torch_scenarios.py.
"""

import os
import sys

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
    mine,
    network,
    same_everywhere,
    step,
)


def two_models(path, device="cpu"):
    """Makes two models, one for gloo and one for the hook. Workers take GPUs in turn."""
    rank = slimps.init().rank
    if device == "cuda":
        device = "cuda:%d" % (rank % torch.cuda.device_count())
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    wrap = torch.nn.parallel.DistributedDataParallel
    models = [wrap(network().to(device), bucket_cap_mb=0.01) for _ in range(2)]
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
        assert state.totals()["bytes_pushed"] == 4 * STEPS * sum(
            p.numel() for p in by_gloo.parameters()
        )
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
    except (RuntimeError, slimps.Error) as error:
        print("told: %s" % error)
    else:
        raise AssertionError("backward had no error")
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters())), "it stepped"


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](*sys.argv[2:])
    print("done")
