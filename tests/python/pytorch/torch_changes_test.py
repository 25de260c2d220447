# SPDX-License-Identifier: Apache-2.0
"""Changes by the script that the servers cannot know are detected; others are not refused."""

import copy
import pickle

import jobs
import pytest
import slimps
import slimps.torch
import torch
from conftest import model_and_sgd, refused, wrap


def clip_weights(model):
    model.weight.data.clamp_(-0.01, 0.01)


def set_one(model):
    model.bias.detach().numpy()[1] = 5


def move_and_change(model):
    model.weight.data = model.weight.data + 1


# torch counts only the first.
@pytest.mark.parametrize(
    "change, which",
    [
        (lambda model: model.load_state_dict(torch.nn.Linear(3, 2).state_dict()), "weight"),
        (clip_weights, "weight"),
        (set_one, "bias"),
        (move_and_change, "weight"),
    ],
)
@pytest.mark.parametrize("backup_model", [True, False])
def test_weights_that_others_change(store, change, which, backup_model):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd, backup_model=backup_model)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    change(model)
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    with refused(
        "parameter %s: was changed outside of the optimizer" % which, slimps.FailedPreconditionError
    ):
        optimizer.step()


def move(parameter):
    """Moves it as Module.to() does, with its values."""
    parameter.data = parameter.data.clone()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("backup_model", [True, False])
def test_parameters_of_any_layout_that_move_train_on(store, layout, backup_model):
    """And keep their layout."""
    model = torch.nn.Conv2d(3, 4, 2).to(memory_format=layout)
    alone = copy.deepcopy(model)
    strides = model.weight.stride()
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    optimizer = wrap(
        store,
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        backup_model=backup_model,
    )
    for step in range(4):
        images = torch.linspace(step, 1, 2 * 3 * 5 * 5).reshape(2, 3, 5, 5)
        for one, network in ((reference, alone), (optimizer, model)):
            one.zero_grad()
            network(images).square().mean().backward()
        if step == 1:
            move(model.weight)
            old = model.bias.data
            move(model.bias)
        reference.step()
        optimizer.step()
        with optimizer.global_weights():
            for mine, theirs in zip(model.parameters(), alone.parameters()):
                assert torch.allclose(mine, theirs, atol=1e-6), (step, mine, theirs)
        if step == 2:
            old.fill_(float("nan"))  # nobody reads what it was before, unless the library does
            old.copy_(model.bias.data)
    assert model.weight.stride() == strides
    optimizer.close()


@pytest.mark.parametrize("backup_model", [True, False])
def test_a_backward_pass_after_the_step_raises_as_in_torch(store, backup_model):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    optimizer = wrap(
        store, model, torch.optim.SGD(model.parameters(), lr=0.1), backup_model=backup_model
    )
    loss = model(torch.ones(1, 3)).square().sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("kind", ["bfloat16", "backup model", "its own memory"])
def test_closing_keeps_weights_that_the_script_has_restored(kind):
    model, sgd = model_and_sgd()
    if kind == "bfloat16":
        model.bfloat16()
    with jobs.lone_store() as store:
        optimizer = wrap(store, model, sgd, backup_model=kind == "backup model")
        model(torch.ones(1, 3, dtype=model.weight.dtype)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model.weight.fill_(7)
        with refused(
            "parameter weight: was changed outside .*; expected close\\(\\) before that",
            slimps.FailedPreconditionError,
        ):
            optimizer.close()
        assert set(model.weight.flatten().tolist()) == {7.0}
        optimizer.close()


def test_weights_that_a_script_steps_itself_are_not_evaluated(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd, push_in_backward=False)
    model(torch.ones(1, 3)).sum().backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    optimizer.zero_grad()
    with refused("was changed outside of the optimizer", slimps.FailedPreconditionError):
        with optimizer.global_weights():
            pass


def test_a_parameter_unfrozen_later(store):
    model, sgd = model_and_sgd()
    model.weight.requires_grad_(False)
    optimizer = wrap(store, model, sgd)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    model.weight.requires_grad_(True)
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    with refused(
        "parameter weight: has a gradient, and needed none when", slimps.FailedPreconditionError
    ):
        optimizer.step()


def test_a_parameter_frozen_after_it_was_made_known_learns_later(store):
    model, sgd = model_and_sgd()
    before = model.weight.detach().clone()
    optimizer = wrap(store, model, sgd, backup_model=False)
    for learns, expected in ((False, before), (True, before - 0.1)):
        model.weight.requires_grad_(learns)
        optimizer.zero_grad(set_to_none=True)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert torch.allclose(model.weight.detach(), expected)


def test_gradients_twice_and_options_that_must_stay(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    loss = model(torch.ones(1, 3)).sum()
    loss.backward(retain_graph=True)
    with refused(
        "came in 2 backward passes of one step; expected 1, .* or push_in_backward=False",
        slimps.FailedPreconditionError,
    ):
        loss.backward()
    with refused("gradients of a step have gone out", slimps.FailedPreconditionError):
        with optimizer.global_weights():
            pass
    with refused("was changed after it had gone out", slimps.FailedPreconditionError):
        optimizer.step()  # taken, with the gradients of the first pass
    optimizer.zero_grad()
    optimizer.param_groups[0]["momentum"] = 0.5
    with refused(
        "parameter group 0: .*'momentum': 0.* only .* a momentum above 0 may change",
        slimps.FailedPreconditionError,
    ):
        model(torch.ones(1, 3)).sum().backward()
    with refused("before the DistributedOptimizer is made", slimps.FailedPreconditionError):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    for make in (copy.deepcopy, pickle.dumps):
        with refused("cannot be copied or pickled", slimps.FailedPreconditionError):
            make(optimizer)


def test_gradients_clipped_after_they_have_gone(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    model(torch.ones(1, 3)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with refused(
        "gradient of weight: was changed after it had gone out.*in_backward=False.* clip_norm= ",
        slimps.FailedPreconditionError,
    ):
        optimizer.step()


def clamp_another(model, _):
    model.weight.grad = model.weight.grad.clamp(-0.01, 0.01)


def drop(model, _):
    model.weight.grad = None


def clip_by_value(model, _):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def halve_the_rate(_, optimizer):
    optimizer.param_groups[0]["lr"] *= 0.5


@pytest.mark.parametrize(
    "change, complaint",
    [
        (clamp_another, "gradient of weight: was changed after"),
        (drop, "gradient of weight: was changed after"),
        (clip_by_value, "gradient of weight: was changed after"),
        (halve_the_rate, "lr of parameter group 0: changed after gradients had gone out"),
    ],
)
def test_what_changes_between_backward_and_step(store, change, complaint):
    model, sgd = model_and_sgd()
    before = model.weight.detach().clone()
    optimizer = wrap(store, model, sgd, backup_model=False)
    model(torch.ones(1, 3)).sum().backward()
    change(model, optimizer)
    with refused(complaint + ".*push_in_backward=False", slimps.FailedPreconditionError):
        optimizer.step()
    assert torch.allclose(
        model.weight.detach(), before - 0.1
    ), "the step as it was without that change"


def test_a_model_that_ddp_still_wraps(store):
    inner, sgd = model_and_sgd()
    named = [("module." + name, parameter) for name, parameter in inner.named_parameters()]
    optimizer = slimps.torch.DistributedOptimizer(sgd, named, store=store)
    inner(torch.ones(1, 3)).sum().backward()
    inner.bias.grad /= 2
    with refused(
        "gradient of bias: .* no DistributedDataParallel around", slimps.FailedPreconditionError
    ):
        optimizer.step()


class Halved(torch.autograd.Function):
    """weight / 2. Its backward may say that there is no gradient."""

    @staticmethod
    def forward(ctx, weight, learns):
        ctx.learns = learns
        return weight / 2

    @staticmethod
    def backward(ctx, gradient):
        return (gradient / 2 if ctx.learns else None), None


def test_a_function_that_gives_no_gradient(store):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = slimps.torch.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1), store=store, backup_model=False
    )
    for learns, expected in ((False, 1.0), (True, 0.5), (False, 0.5)):
        optimizer.zero_grad(set_to_none=True)
        Halved.apply(weight, learns).sum().backward()
        optimizer.step()
        assert weight.tolist() == [expected] * 3


def test_what_changes_between_backward_and_step_counts_where_nothing_has_gone(store):
    model, sgd = model_and_sgd()
    before = model.weight.detach().clone()
    optimizer = wrap(store, model, sgd, backup_model=False, push_in_backward=False)
    model(torch.ones(1, 3)).sum().backward()
    for change in (clamp_another, halve_the_rate):
        change(model, optimizer)
    optimizer.step()
    assert torch.allclose(model.weight.detach(), before - 0.05 * 0.01)


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.5, total_steps=10, cycle_momentum=False
    )


@pytest.mark.parametrize(
    "make", [one_cycle, lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.5)]
)
def test_schedulers_that_keep_notes_in_the_groups(store, make):
    model, _ = model_and_sgd()
    groups = [
        {"params": [model.weight], "name": "decayed"},
        {"params": [model.bias], "lr_scale": 0.5},
    ]
    optimizer = wrap(
        store, model, torch.optim.SGD(groups, lr=0.1, momentum=0.9), backup_model=False
    )
    schedule = make(optimizer)
    rates = set()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
        rates.add(optimizer.param_groups[0]["lr"])
    assert len(rates) == 3


def test_a_scheduler_of_the_optimizer_that_was_wrapped(store, recwarn):
    model, sgd = model_and_sgd()
    schedule = torch.optim.lr_scheduler.StepLR(sgd, step_size=1, gamma=0.5)
    optimizer = wrap(store, model, sgd)
    assert isinstance(optimizer, torch.optim.SGD)
    assert isinstance(optimizer, slimps.torch.DistributedOptimizer)
    assert not isinstance(optimizer, torch.optim.Adam)
    for _ in range(2):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
    assert not [one for one in recwarn.list if "lr_scheduler" in str(one.message)]


ADAMS = (torch.optim.Adam, torch.optim.AdamW)


@pytest.mark.parametrize("backup_model", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, *ADAMS])
def test_momentum_that_a_scheduler_cycles(store, kind, backup_model):
    """One worker's steps are the optimizer's own, with the momentum of each step."""
    options = {"lr": 0.1, **({} if kind in ADAMS else {"momentum": 0.9})}
    (model, _), (alone, _) = model_and_sgd(), model_and_sgd()
    alone.load_state_dict(model.state_dict())
    reference = kind(alone.parameters(), **options)
    optimizer = wrap(store, model, kind(model.parameters(), **options), backup_model=backup_model)
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(one, max_lr=0.2, total_steps=12)
        for one in (reference, optimizer)
    ]
    momenta = set()
    for step in range(10):
        inputs = torch.tensor([[1.0, -0.5 * step, 0.25]])
        for one, network in ((reference, alone), (optimizer, model)):
            one.zero_grad()
            network(inputs).square().sum().backward()
        # The backup model's weights differ by rounding, and its gradients must not.
        for mine, theirs in zip(model.parameters(), alone.parameters()):
            assert torch.allclose(mine.grad, theirs.grad, atol=1e-4)
        reference.step()
        optimizer.step()
        with optimizer.global_weights():
            for mine, theirs in zip(model.parameters(), alone.parameters()):
                assert torch.allclose(mine, theirs, atol=1e-5), (step, mine, theirs)
        for schedule in schedules:
            schedule.step()
        group = optimizer.param_groups[0]
        momenta.add(group["betas"][0] if kind in ADAMS else group["momentum"])
    assert len(momenta) == 10
