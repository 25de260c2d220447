# SPDX-License-Identifier: Apache-2.0
"""A parameter's two memories: which is exchanged for the other, and when weights are copied."""

import copy

import jobs
import numpy as np
import pytest
import slimps.torch
import torch
from conftest import model_and_sgd, wrap

# What a script may keep of the weight's memory. It sees new weights, as with torch's optimizers.
USERS = {
    "state_dict": lambda model: model.state_dict()["weight"],
    "view": lambda model: model.weight.detach().t(),
    "numpy": lambda model: torch.from_numpy(model.weight.detach().numpy()),
}


def train(model, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"backup_model": True}, {"overlap_forward": True}])
def test_weights_are_written_beside_those_that_backward_reads(store, options):
    model, sgd = model_and_sgd()
    reference = copy.deepcopy(model)
    torchs = torch.optim.SGD(reference.parameters(), lr=sgd.param_groups[0]["lr"])
    optimizer = slimps.torch.DistributedOptimizer(sgd, model, store=store, **options)
    addresses = []
    for _ in range(4):
        train(model, optimizer)
        train(reference, torchs)
        optimizer.await_weights()
        addresses.append(model.weight.data_ptr())
        torch.testing.assert_close(model.weight, reference.weight)
    assert addresses[0] == addresses[2] != addresses[1] == addresses[3]
    optimizer.close()
    torch.testing.assert_close(model.weight, reference.weight)


@pytest.mark.parametrize("user", USERS.values(), ids=USERS.keys())
@pytest.mark.parametrize("backup_model", [False, True])
def test_who_else_uses_the_memory_sees_new_weights(store, user, backup_model):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd, backup_model=backup_model)
    train(model, optimizer)
    kept = user(model)
    address = model.weight.data_ptr()
    train(model, optimizer, 2)
    assert model.weight.data_ptr() == address == kept.data_ptr()
    del kept
    train(model, optimizer)
    assert model.weight.data_ptr() != address


@pytest.mark.parametrize("backup_model", [False, True])
def test_memory_that_is_not_torchs_own_stays(store, backup_model):
    model, sgd = model_and_sgd()
    model.share_memory()
    of_numpy = np.zeros((2,), np.float32)
    model.bias.data = torch.from_numpy(of_numpy)
    optimizer = wrap(store, model, sgd, backup_model=backup_model)
    train(model, optimizer, 2)
    assert model.weight.is_shared()
    np.testing.assert_array_equal(of_numpy, model.bias.detach().numpy())
    assert of_numpy.any()


@pytest.mark.parametrize("backup_model", [False, True])
def test_moved_memory_becomes_one_of_the_two(store, backup_model):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd, backup_model=backup_model)
    train(model, optimizer)
    model.weight.data = model.weight.data.clone()
    moved = model.weight.data_ptr()
    train(model, optimizer)
    assert model.weight.data_ptr() != moved
    train(model, optimizer)
    assert model.weight.data_ptr() == moved


def test_memory_that_torch_has_freed_is_not_read(store):
    """It is so large that the system takes it back at once, and reading it would be a SIGSEGV."""
    model = torch.nn.Linear(4096, 4096, bias=False)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = wrap(store, model, sgd, backup_model=True)
    for _ in range(2):
        model(torch.ones(1, 4096)).sum().backward()
        optimizer.step()
    model.weight.data = model.weight.data.clone()
    with optimizer.global_weights():
        pass
    model.share_memory()  # moves it, too
    with pytest.raises(slimps.FailedPreconditionError, match="changed outside of the optimizer"):
        optimizer.close()


def test_weights_of_all_and_back(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd, backup_model=True)
    train(model, optimizer)
    own = model.weight.detach().clone()
    kept = model.weight.detach()
    for user in (kept, None):
        with optimizer.global_weights():
            assert user is None or user.data_ptr() == model.weight.data_ptr()
        torch.testing.assert_close(model.weight.detach(), own, rtol=0, atol=0)
        kept = None
    train(model, optimizer)


@pytest.mark.parametrize("options", [{}, {"overlap_forward": True}])
def test_weights_that_a_job_resumes_with_stay(tmp_path, monkeypatch, options):
    """The exchange itself has others, which it began with."""
    monkeypatch.setenv("SLIMPS_CHECKPOINT", str(tmp_path))
    with jobs.lone_store() as store:
        model, sgd = model_and_sgd()
        optimizer = slimps.torch.DistributedOptimizer(sgd, model, store=store, **options)
        train(model, optimizer, 2)
        optimizer.save_step(2)
        optimizer.close()
    saved = [parameter.detach().clone() for parameter in model.parameters()]
    (step,) = tmp_path.glob("step-*")
    monkeypatch.setenv("SLIMPS_RESUME", str(step))
    with jobs.lone_store() as store:
        model, sgd = model_and_sgd()
        optimizer = slimps.torch.DistributedOptimizer(sgd, model, store=store, **options)
        optimizer.resume()
        with optimizer.global_weights():
            for parameter, values in zip(model.parameters(), saved):
                torch.testing.assert_close(parameter.detach(), values, rtol=0, atol=0)
        for parameter, values in zip(model.parameters(), saved):
            torch.testing.assert_close(parameter.detach(), values, rtol=0, atol=0)
        train(model, optimizer)
        optimizer.close()


def test_the_optimizer_that_is_wrapped_keeps_its_parameters(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    train(model, optimizer)
    assert sgd.param_groups[0]["params"][0] is model.weight
    with torch.no_grad():
        assert copy.deepcopy(model)(torch.ones(1, 3)).equal(model(torch.ones(1, 3)))
