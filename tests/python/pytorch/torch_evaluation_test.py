# SPDX-License-Identifier: Apache-2.0
"""Evaluations that are on this worker's own weights give a warning, once."""

import copy
import pickle

import pytest
import torch
import torch.utils.checkpoint
from conftest import wrap
from slimps import _said_once
from slimps.pytorch import params


@pytest.fixture(name="warnings_said")
def warnings_said_before(monkeypatch, recwarn):
    monkeypatch.setattr(_said_once, "_said", set())
    return lambda: [
        str(one.message)
        for one in recwarn.list
        if "this worker's own weights, as backup_model=True" in str(one.message)
    ]


def own_weights(store, model, **settings):
    """Returns an optimizer after one step with the backup model."""
    optimizer = wrap(
        store,
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        **{"backup_model": True, **settings},
    )
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return optimizer


def test_evaluating_without_global_weights_is_warned_of_once(store, warnings_said):
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    )
    optimizer = own_weights(store, model)
    with optimizer.global_weights(), torch.no_grad():
        model.eval()(torch.ones(2, 3))
    model.train()[1].eval()  # as frozen normalisation does
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.utils.checkpoint.checkpoint(
        model, torch.ones(2, 3, requires_grad=True), use_reentrant=True
    ).sum().backward()
    optimizer.step()
    torch.nn.Linear(3, 4).eval()(torch.ones(2, 3))  # another model
    assert not warnings_said()
    with torch.no_grad():
        for _ in range(2):
            model.eval()(torch.ones(2, 3))
    assert len(warnings_said()) == 1
    assert "Expected it inside `with optimizer.global_weights():`" in warnings_said()[0]
    optimizer.close()


def test_saving_without_global_weights_is_warned_of_once(store, warnings_said):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = own_weights(store, model)
    with optimizer.global_weights():
        torch.nn.ModuleList([model]).state_dict()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.state_dict()
        with torch.no_grad():
            other(torch.ones(2, 3))
    assert not warnings_said(), "copies are not the optimizer's"
    for _ in range(2):
        torch.nn.ModuleList([model]).state_dict()
    assert len(warnings_said()) == 1
    assert "the model's state_dict() has this worker's own" in warnings_said()[0]
    with torch.no_grad():
        model(torch.ones(2, 3))
    assert len(warnings_said()) == 2
    optimizer.close()
    assert not model._forward_pre_hooks and not model._state_dict_pre_hooks


def test_copies_of_a_model_whose_buffers_are_broadcast_have_their_own(store, monkeypatch):
    passes = []
    monkeypatch.setattr(params, "broadcast_tensors", lambda *_: passes.append("broadcast"))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = wrap(store, model, sgd, broadcast_buffers=True)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(torch.ones(2, 3))
    assert not passes
    torch.compile(model, backend="eager")(torch.ones(2, 3))
    assert passes == ["broadcast"]
    optimizer.close()
    assert not model._forward_pre_hooks


def test_a_compiled_model_trains_without_a_warning_of_hooks(store, recwarn):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = wrap(
        store, compiled, torch.optim.SGD(model.parameters(), lr=0.1), backup_model=True
    )
    for _ in range(2):
        compiled(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    with torch.no_grad():
        compiled(torch.ones(2, 3))
    assert not [one for one in recwarn.list if "hooks" in str(one.message)]
    optimizer.close()


@pytest.mark.parametrize(
    "how",
    ["without gradients alone", "in evaluation mode alone", "after close", "without backup model"],
)
def test_which_evaluations_are_on_this_workers_own_weights(store, warnings_said, how):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = own_weights(store, model, backup_model=how != "without backup model")
    if how == "after close":
        optimizer.close()
    with torch.set_grad_enabled(how == "in evaluation mode alone"):
        model.train(how == "without gradients alone")(torch.ones(2, 3))
    assert len(warnings_said()) == (1 if how.endswith("alone") else 0)
