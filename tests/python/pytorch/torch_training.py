# SPDX-License-Identifier: Apache-2.0
"""A small model, its data and its steps, for the tests of slimps.torch.

There are two workers, each with half of a joint batch.
"""

import numpy as np
import torch

STEPS = 50
BATCH = 8  # of each worker


def network(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 10),
    )


def batches(steps, seed=7):
    """Yields joint batches of both workers."""
    made = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        images = torch.randn(2 * BATCH, 3, 8, 8, generator=made)
        yield images, (images.sum((1, 2, 3)) > 0).long() + 2 * (images[:, 0, 0, 0] > 0).long()


def mine(rank, *tensors):
    """Returns worker `rank`'s half of each tensor."""
    return [tensor[rank * BATCH : (rank + 1) * BATCH] for tensor in tensors]


def loss_of(model, images, labels):
    return torch.nn.functional.cross_entropy(model(images), labels)


def step(optimizer, model, images, labels):
    """Makes one step of training. Returns the loss before it."""
    optimizer.zero_grad()
    loss = loss_of(model, images, labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def step_by_halves(optimizer, model, images, labels):
    """Makes a step of one process by the mean of both workers' gradients."""
    halves = []
    for rank in (0, 1):
        optimizer.zero_grad()
        loss_of(model, *mine(rank, images, labels)).backward()
        halves.append([parameter.grad.clone() for parameter in model.parameters()])
    for parameter, *of_workers in zip(model.parameters(), *halves):
        parameter.grad = sum(of_workers) / 2
    optimizer.step()


def farthest(model, other):
    return max(
        float((one - two).abs().max()) for one, two in zip(model.parameters(), other.parameters())
    )


def same_everywhere(store, model):
    """True if all workers hold the same bits."""
    flat = (
        torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
        .to(torch.float64)
        .numpy()
    )
    numbers = [
        float(flat.sum()),
        float(np.abs(flat).sum()),
        float((flat * np.arange(flat.size)).sum()),
    ]
    return store.all_reduce_sum(numbers) == [2 * number for number in numbers]


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError("not refused: " + words)


def groups_of(model):
    return [
        {"params": list(model[0].parameters()), "weight_decay": 0.01},
        {"params": list(model[3].parameters()) + list(model[5].parameters()), "lr": 0.02},
    ]


# The difference between slimps' optimizers and torch's, which round Adam's steps in another order.
ROUNDING = {"sgd": 0, "nesterov": 0, "adam": 1e-5, "adamw": 1e-5}
OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3
    ),
    "nesterov": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True
    ),
    "adam": lambda model: torch.optim.Adam(groups_of(model), lr=0.01),
    "adamw": lambda model: torch.optim.AdamW(groups_of(model), lr=0.01),
}
