# SPDX-License-Identifier: Apache-2.0
"""state_dict() and load_state_dict() as frameworks call them: rank 0 saves, every rank loads."""

import jobs
import pytest
import slimps
import slimps.torch
import torch
import torch_state_scenarios
from conftest import model_and_sgd, refused, wrap
from slimps import _said_once
from slimps.pytorch import conversion, saved_state

KINDS = ["sgd", "nesterov", "adam", "adamw"]


@pytest.mark.parametrize("kind", KINDS)
def test_rank_0_saves_alone_and_jobs_of_any_size_resume(kind, tmp_path):
    path = str(tmp_path / "saved.pt")
    jobs.run("torch_state_scenarios", "save_on_rank_0", path, kind)
    for workers in (2, 1):
        jobs.run("torch_state_scenarios", "all_resume", path, kind, workers=workers, servers=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["loaded", "wrapped"])
def test_torchs_state_goes_on_at_the_servers(kind, way):
    workers = 1 if kind == "adamw" else 2
    jobs.run("torch_state_scenarios", "takes_what_torch_has", kind, way, workers=workers)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_distributed_checkpoints_make_no_step(kind):
    jobs.run("torch_state_scenarios", "distributed_checkpoints", kind)


@pytest.mark.parametrize(
    "scenario",
    [
        torch_state_scenarios.with_the_backup_model_it_is_the_global_weights,
        torch_state_scenarios.without_rounds_there_is_none_to_name,
        torch_state_scenarios.accelerate_takes_a_new_optimizers_state_and_gives_it_back,
        torch_state_scenarios.residuals_of_other_workers,
        torch_state_scenarios.one_worker_cannot_read_its_state,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_scenario(scenario):
    jobs.run(scenario.__module__, scenario.__name__)


def test_what_one_bit_adam_has_frozen_is_adams_state(tmp_path):
    path = str(tmp_path / "saved.pt")
    for workers in (2, 1):
        jobs.run("torch_state_scenarios", "frozen_moments_are_adams", path, workers=workers)


# ---- one worker ---------------------------------------------------------------------------------


def test_the_state_is_there_from_the_beginning_and_is_not_stepped_by_hand(store):
    model, sgd = model_and_sgd(momentum=0.9)
    optimizer = wrap(store, model, sgd)
    assert len(optimizer.state) == 2
    assert optimizer.state[model.weight]["momentum_buffer"].shape == (2, 3)
    saved = optimizer.state_dict()
    assert torch.equal(saved["state"][0]["momentum_buffer"], torch.zeros(2, 3))
    assert saved["round"] == 0
    assert optimizer.state[model.weight]["momentum_buffer"].isnan().all()
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(RuntimeError):
        sgd.step()  # the servers have the momentum


def test_an_optimizer_is_wrapped_again_after_the_first_is_closed(store):
    model, sgd = model_and_sgd(momentum=0.9)
    wrap(store, model, sgd).close()
    assert not sgd.state
    named = [("again." + name, one) for name, one in model.named_parameters()]
    slimps.torch.DistributedOptimizer(sgd, named, store=store).close()


def test_sgd_without_momentum_has_none(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    assert optimizer.state_dict()["state"] == {0: {}, 1: {}}
    optimizer.load_state_dict({"state": {}, "param_groups": sgd.state_dict()["param_groups"]})


def test_a_parameter_that_never_had_a_gradient_has_zeros(store):
    model, sgd = model_and_sgd(momentum=0.9)
    optimizer = wrap(store, model, sgd)
    saved = optimizer.state_dict()
    saved["state"] = {1: {"momentum_buffer": torch.ones(2)}, 0: {"momentum_buffer": None}}
    optimizer.load_state_dict(saved)
    state = optimizer.state_dict()["state"]
    assert torch.equal(state[0]["momentum_buffer"], torch.zeros(2, 3))
    assert torch.equal(state[1]["momentum_buffer"], torch.ones(2))


def test_a_step_whose_gradients_went_out_is_ended_first(store):
    model, sgd = model_and_sgd(momentum=0.9)
    optimizer = wrap(store, model, sgd)
    saved = optimizer.state_dict()
    model(torch.ones(1, 3)).sum().backward()
    with refused("^state_dict: gradients of a step have gone", slimps.FailedPreconditionError):
        optimizer.state_dict()
    with refused("^load_state_dict: gradients of a step have", slimps.FailedPreconditionError):
        optimizer.load_state_dict(saved)


def test_a_checkpoint_whose_betas_are_a_list(store):
    model, _ = model_and_sgd()
    optimizer = wrap(store, model, torch.optim.Adam(model.parameters()))
    saved = optimizer.state_dict()
    saved["param_groups"][0]["betas"] = [0.9, 0.999]
    optimizer.load_state_dict(saved)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_a_parameter_without_steps_ends_the_freeze_with_a_warning(monkeypatch, recwarn):
    monkeypatch.setattr(_said_once, "_said", set())
    model, _ = model_and_sgd()
    spec = conversion.convert(torch.optim.Adam(model.parameters()), freeze_after=2).spec()
    servers = saved_state.ServerState(None, ["weight", "bias"], list(model.parameters()), spec)

    def state(one, step):
        tensors = dict.fromkeys(["exp_avg", "exp_avg_sq", "server_error"], torch.zeros_like(one))
        return {"step": torch.tensor(step), **tensors}

    for step, kept in ((3.0, 3), (0.0, 2)):
        assert not recwarn.list
        found = servers.read(
            {model.weight: state(model.weight, 3.0), model.bias: state(model.bias, step)}
        )
        assert [len(tensors) for tensors, _ in found] == [kept, kept]
    servers.read({})
    (only,) = recwarn.list
    assert "parameter bias: expected a step above 0 and server_error" in str(only.message)


def test_states_of_something_else(store):
    model, sgd = model_and_sgd(momentum=0.9)
    optimizer = wrap(store, model, sgd)
    groups = sgd.state_dict()["param_groups"]
    with refused("expected a dictionary with state and param_groups.*got one with optimizer, rank"):
        optimizer.load_state_dict({"optimizer": {}, "rank": 0})
    adams = {"step": torch.tensor(1.0), "exp_avg": torch.ones(2, 3)}
    with refused("parameter weight: expected a state with momentum_buffer, got one with step, exp"):
        optimizer.load_state_dict({"state": {0: adams}, "param_groups": groups})
    other = {"momentum_buffer": torch.ones(3, 2)}
    with refused(r"weight: momentum_buffer: expected a tensor of shape \(2, 3\), got .*3, 2"):
        optimizer.load_state_dict({"state": {0: other}, "param_groups": groups})
    with refused("sizes .2., got .1."):
        optimizer.load_state_dict({"state": {}, "param_groups": [dict(groups[0], params=[0])]})
    with refused("parameter group 0: the servers know", slimps.FailedPreconditionError):
        nesterov = [dict(groups[0], nesterov=True)]
        optimizer.load_state_dict({"state": {}, "param_groups": nesterov})
    nan = {"momentum_buffer": torch.full((2, 3), float("nan"))}
    with refused("weight: momentum_buffer: expected finite values, got NaN or infinity"):
        optimizer.load_state_dict({"state": {0: nan}, "param_groups": groups})
