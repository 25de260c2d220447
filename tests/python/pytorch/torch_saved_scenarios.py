# SPDX-License-Identifier: Apache-2.0
"""A run that goes through, one that saves half way, and one that resumes from there."""

import scenario
import slimps
import slimps.torch
import torch
from torch_training import batches, mine, network, step


# By name: the options, and the number of steps. Within these the learning rate falls three times.
# The policy decides before and after the half.
RUNS = {
    "compressed": ({"compression": "1bit", "threshold": 0, "backup_model": False}, 6),
    "onebit_adam": (  # saved when its variance is frozen
        {
            "compression": "1bit",
            "threshold": 0,
            "pull_compression": "1bit",
            "pull_threshold": 0,
            "freeze_after": 2,
        },
        6,
    ),
    "policy": ({"policy": "lgreco:codec=topk:ratio=0.05,every=8,min_elements=0"}, 24),
}


def train_on(model, name, half=None, saved=None):
    """Makes the steps of a run, or of one half of it: 0 or 1.

    Returns the optimizer, and what to save beside the weights. After the optimizer is closed, the
    weights are those of the servers.
    """
    settings, steps = RUNS[name]
    given = list(batches(steps))
    if half is not None:
        given = given[half * steps // 2 : (half + 1) * steps // 2]
    optimizer = slimps.torch.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters(), **settings
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=steps // 3, gamma=0.25)
    if saved is not None:
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
    rank = optimizer.store.rank
    for images, labels in given:
        step(optimizer, model, *mine(rank, images, labels))
        schedule.step()
    state = optimizer.state_dict(residuals=True)
    return optimizer, {"optimizer": state, "schedule": schedule.state_dict()}


def run_through(path, name):
    model = network()
    optimizer, saved = train_on(model, name)
    saved["decision"] = optimizer.store.decision()
    optimizer.close()
    torch.save({"model": model.state_dict(), **saved}, "%s.whole.%d" % (path, optimizer.store.rank))


def save_half_way(path, name):
    """Saves after the learning rate has fallen once. It falls twice more."""
    model = network()
    optimizer, saved = train_on(model, name, half=0)
    optimizer.close()
    assert optimizer.param_groups[0]["lr"] == 0.0025
    torch.save({"model": model.state_dict(), **saved}, "%s.half.%d" % (path, optimizer.store.rank))


def resume(path, name):
    rank = slimps.init().rank
    saved = torch.load("%s.half.%d" % (path, rank))
    model = network(seed=9)
    model.load_state_dict(saved["model"])
    optimizer, _ = train_on(model, name, half=1, saved=saved)
    decision = optimizer.store.decision()
    optimizer.close()
    whole = torch.load("%s.whole.%d" % (path, rank))
    assert optimizer.param_groups[0]["lr"] == whole["optimizer"]["param_groups"][0]["lr"]
    for key, values in model.state_dict().items():
        # 1-bit Adam's variance is saved as Adam has it, which rounds it.
        close = 1e-5 if name == "onebit_adam" else 0
        assert torch.allclose(values, whole["model"][key], rtol=0, atol=close), key
    if name == "policy":
        assert decision["codecs"] == whole["decision"]["codecs"], decision
        assert decision["reason"] == whole["decision"]["reason"], decision


if __name__ == "__main__":
    scenario.play(globals())
