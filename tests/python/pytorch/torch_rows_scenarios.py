# SPDX-License-Identifier: Apache-2.0
"""A model with a sparse embedding, and what workers of torch_rows_test.py run."""

import scenario
import slimps.torch
import torch

ROWS = 1000


def words_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(ROWS, 4, sparse=True), torch.nn.Linear(4, 2))


def words(number):
    """Returns a batch, in which words repeat."""
    return torch.tensor([7, 3, 7, ROWS - 9, 40 + number, 3 * number])


def two_workers_step_by_the_mean():
    """Workers share rows, have their own, have none, or have a whole gradient."""
    model, alone = words_model(), words_model()
    reference = torch.optim.SGD(alone.parameters(), lr=0.25)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.25), model
    ) as optimizer:
        rank = optimizer.store.rank
        for number in range(8):
            reference.zero_grad(set_to_none=True)
            for worker in (0, 1):
                if (number, worker) != (2, 1):
                    loss_of(alone, number, worker).backward()
            for parameter in alone.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(2)
            reference.step()
            # Zeros stay, a sparse tensor's without rows. Of a whole gradient they would be whole.
            optimizer.zero_grad(set_to_none=number in (5, 6))
            if (number, rank) == (2, 1):
                optimizer.skip_step()
            else:
                model[0].sparse = (number, rank) != (5, 0)
                loss_of(model, number, rank).backward()
                model[0].sparse = True
                optimizer.step()
            for ours, torchs in zip(model.parameters(), alone.parameters()):
                assert float((ours - torchs).detach().abs().max()) <= 1e-6, number
        whole = 4 * sum(parameter.numel() for parameter in model.parameters())
        assert optimizer.totals()["bytes_pushed"] < 2 * whole  # one of eight was whole


def loss_of(model, number, worker):
    """Returns the loss of a worker's batch. In step 3 no word is looked up."""
    found = torch.ones(3, 4) + worker if number == 3 else model[0](words(number) + 5 * worker)
    return model[1](found).square().mean()


if __name__ == "__main__":
    scenario.play(globals())
