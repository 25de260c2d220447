# SPDX-License-Identifier: Apache-2.0
"""Codecs learn each layer's kind from the model's modules."""

import jobs
import numpy as np
import pytest
import slimps
import slimps.torch
import torch
from slimps.pytorch import params


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
    assert params.layers_of(network, list(network.parameters())) == (
        ["convolution"] * 2
        + ["normalisation"] * 2
        + ["recurrent"] * 4
        + ["embedding"]
        + ["dense"] * 2
    )
    assert params.layers_of(network.named_parameters(), list(network.parameters())) == [""] * 11


def test_names_are_those_of_the_model_itself():
    def names(*given):
        found = params.pairs([(name, torch.ones(1)) for name in given], "test")
        return [name for name, _ in found]

    assert names("_orig_mod.a.w", "_orig_mod.a.b") == ["a.w", "a.b"]
    assert names("module._orig_mod.a._orig_mod.w", "module._orig_mod.b") == ["a.w", "b"]
    assert names("module.w", "b") == ["module.w", "b"], "not all are wrapped"
    assert names("my_orig_mod.w", "w") == ["my_orig_mod.w", "w"], "a name of its own"


def test_tied_weights_have_one_key():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    named = model.state_dict(keep_vars=True)
    assert list(named) == ["0.weight", "1.weight", "1.bias"]
    with jobs.lone_store() as store:
        optimizer = slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named, store=store
        )
        assert store.has_key("0.weight") and not store.has_key("1.weight")
        before = model[0].weight.detach().clone()
        model[0].weight.sum().backward()
        optimizer.step()
        assert torch.allclose(model[0].weight.detach(), before - 0.1), "stepped once"


def test_tied_weights_have_the_place_of_their_first_name():
    """Keys are pushed in this order."""
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3, bias=False) for _ in range(3)))
    model[2].weight = model[0].weight
    found = params.pairs(model.state_dict(keep_vars=True), "test")
    assert [name for name, _ in found] == ["0.weight", "1.weight"]


class DTensor(torch.Tensor):
    """Stands in for torch.distributed's, which needs a process group."""


def test_sharded_tensors_are_refused_by_name():
    model = torch.nn.Linear(2, 1)
    model.weight = torch.nn.Parameter(model.weight.detach().as_subclass(DTensor))
    assert type(model.weight) is DTensor
    with jobs.lone_store() as store, pytest.raises(
        slimps.InvalidArgumentError, match="parameter weight: is a DTensor, which FSDP"
    ):
        slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model, store=store
        )


def test_an_optimizer_that_was_given_names_and_its_hooks():
    model = torch.nn.Linear(2, 1)
    with jobs.lone_store() as store:
        optimizer = slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.named_parameters(), lr=0.1), store=store
        )
        assert store.has_key("weight") and store.has_key("bias")
        seen = []
        optimizer.register_step_post_hook(lambda *_: seen.append("step"))
        optimizer.register_state_dict_post_hook(lambda _, state: seen.append(sorted(state)))
        optimizer.register_load_state_dict_post_hook(lambda _: seen.append("load"))
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        assert seen == [["param_groups", "state"], "load", "step"], seen
        optimizer.param_groups[0]["lr"] = 0.5
        assert optimizer._wrapped.param_groups[0]["lr"] == 0.5
