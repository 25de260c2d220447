# SPDX-License-Identifier: Apache-2.0
"""Codecs learn each layer's kind from the model's modules."""

import jobs
import numpy as np
import slimps
import slimps.torch
import torch
from slimps import _torch_parameters


def test_layers_are_told_by_their_modules():
    """nn.Bilinear's weight has three dimensions but is no convolution, so adacomp's bins are wider
    there."""
    # Few large ones.
    gradient = (np.random.default_rng(1).normal(size=(20, 10, 10)) ** 9).astype(np.float32)

    def pushed(make, key):
        torch.manual_seed(1)
        model = torch.nn.Bilinear(10, 10, 20, bias=False)
        with jobs.lone_store(compression="adacomp", threshold=0) as store:
            held = make(model, store)
            store.push(key, gradient)
            store.wait()
            del held
            return store.totals()["bytes_pushed"]

    def by_optimizer(named):
        return lambda model, store: slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named(model), store=store
        )

    def by_hook(named):
        return lambda model, store: slimps.torch.CommHookState(named(model), store=store)

    for by, key in ((by_optimizer, "weight"), (by_hook, "gradient/weight")):
        by_shape, by_module = pushed(by(torch.nn.Module.named_parameters), key), pushed(
            by(lambda model: model), key
        )
        assert by_module < by_shape, (by_module, by_shape)


def test_kinds_of_layers():
    network = torch.nn.Sequential(
        torch.nn.Conv1d(2, 3, 1),
        torch.nn.BatchNorm1d(3),
        torch.nn.LSTM(3, 4),
        torch.nn.Embedding(5, 6),
        torch.nn.Linear(6, 7),
    )
    assert _torch_parameters.layers_of(network, list(network.parameters())) == (
        ["convolution"] * 2
        + ["normalisation"] * 2
        + ["recurrent"] * 4
        + ["embedding"]
        + ["dense"] * 2
    )
    assert (
        _torch_parameters.layers_of(network.named_parameters(), list(network.parameters()))
        == [""] * 11
    )
