# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer on nn.Embedding(sparse=True), whose gradients are rows."""

import jobs
import pytest
import slimps
import slimps.torch
import torch
from conftest import refused
from torch_rows_scenarios import ROWS, words_model, words


def sgd(model, **settings):
    return torch.optim.SGD(model.parameters(), lr=0.25, **settings)


def backward(model, number=0):
    model(words(number)).square().mean().backward()


@pytest.mark.parametrize("passes", [1, 2])
def test_one_worker_equals_torchs_sgd(store, passes):
    model, alone = words_model(), words_model()
    reference = sgd(alone)
    with slimps.torch.DistributedOptimizer(
        sgd(model), model, store=store, backward_passes_per_step=passes
    ) as optimizer:
        for number in range(5):
            for one, of_model in ((optimizer, model), (reference, alone)):
                one.zero_grad()
                for part in range(passes):
                    backward(of_model, number + part)
                one.step()
            assert model[0].weight.grad.layout == torch.sparse_coo
            for ours, torchs in zip(model.parameters(), alone.parameters()):
                assert float((ours - torchs).detach().abs().max()) <= 1e-6


def test_rows_that_nobody_sent_stay_as_they_are(store):
    """Also with momentum and weight decay, which whole gradients apply to every row."""
    model = words_model()
    before = model[0].weight.detach().clone()
    first = words(0).unique()
    with slimps.torch.DistributedOptimizer(
        sgd(model, momentum=0.5, weight_decay=0.125), model, store=store
    ) as optimizer:
        backward(model)
        optimizer.step()
        moved = [row for row in range(ROWS) if not torch.equal(model[0].weight[row], before[row])]
        assert moved == first.tolist()
        kept = model[0].weight.detach().clone()
        optimizer.zero_grad()
        one_row = torch.tensor([int(first[0])])
        model(one_row).square().mean().backward()
        optimizer.step()
        moved = [row for row in range(ROWS) if not torch.equal(model[0].weight[row], kept[row])]
        assert moved == one_row.tolist()


def test_what_cannot_send_rows():
    with jobs.lone_store(compression="1bit") as store:
        model = words_model()
        with refused("0.weight: is sparse; expected sparse=False in its nn.Embedding, or compr"):
            slimps.torch.DistributedOptimizer(sgd(model), model, store=store)
        # Without the modules, the first gradient tells.
        optimizer = slimps.torch.DistributedOptimizer(
            sgd(model), model.named_parameters(), store=store
        )
        with refused("0.weight: is sparse; expected sparse=False in its nn.Embedding, or compr"):
            backward(model)
        del optimizer
    with jobs.lone_store(policy="uniform:codec=topk:ratio=0.01") as store:
        with refused("is sparse; expected .* policy=None"):
            slimps.torch.DistributedOptimizer(sgd(model), model, store=store)


def test_what_goes_without_whole_gradients_alone(store):
    model = words_model()
    with refused("is sparse; expected sparse=False .* or backup_model=False"):
        slimps.torch.DistributedOptimizer(sgd(model), model, store=store, backup_model=True)
    with refused("is sparse; expected sparse=False .* or node_first=False"):
        slimps.torch.DistributedOptimizer(sgd(model), model, store=store, node_first=True)
    with slimps.torch.DistributedOptimizer(sgd(model), model, store=store) as optimizer:
        with refused("expected a sparse tensor of whole rows, got 2 sparse dimensions"):
            model[0].weight.grad = torch.ones(ROWS, 4).to_sparse()
            optimizer.step()


def test_rows_that_were_changed_after_they_had_gone(store):
    model = words_model()
    with slimps.torch.DistributedOptimizer(sgd(model), model, store=store) as optimizer:
        backward(model)
        model[0].weight.grad.mul_(0.5)
        with refused("gradient of 0.weight: was changed after", slimps.FailedPreconditionError):
            optimizer.step()


def test_two_workers_step_by_the_mean():
    jobs.run("torch_rows_scenarios", "two_workers_step_by_the_mean")
