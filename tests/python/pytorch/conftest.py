# SPDX-License-Identifier: Apache-2.0
"""A job of one worker, for tests of what slimps.torch refuses. pytest finds the fixture here."""

import jobs
import pytest
import slimps
import slimps.torch
import torch


@pytest.fixture(name="store")
def one_store():
    with jobs.lone_store() as store:
        yield store


def model_and_sgd(**settings):
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **settings)


def wrap(store, model, optimizer, **settings):
    return slimps.torch.DistributedOptimizer(
        optimizer, model.named_parameters(), store=store, **settings
    )


def refused(match, kind=slimps.InvalidArgumentError):
    return pytest.raises(kind, match=match)
