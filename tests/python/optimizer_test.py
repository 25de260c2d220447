# SPDX-License-Identifier: Apache-2.0
"""Optimizers as the servers get them."""

import numpy as np
import pytest
import torch

import slimps
from slimps import lr_scheduler, optimizer


def told(made):
    spec = made.spec()
    names = [name for name in dir(spec) if not name.startswith("_") and name != "schedule"]
    return {name: getattr(spec, name) for name in names}


def test_mxnets_arguments_and_defaults():
    assert told(optimizer.SGD()) == {
        "kind": "SGD",
        "learning_rate": 0.01,
        "momentum": 0.0,
        "nesterov": False,
        "weight_decay": 0.0,
        "beta1": 0.0,
        "beta2": 0.0,
        "epsilon": 0.0,
        "rescale_grad": 1.0,
        "clip_gradient": 0.0,
        "average": False,
        "freeze_after": 0,
    }
    sgd = told(
        optimizer.SGD(
            0.5,
            momentum=0.9,
            nesterov=True,
            wd=0.1,
            rescale_grad=0.25,
            clip_gradient=2,
            multi_precision=True,
        )
    )
    assert (sgd["learning_rate"], sgd["momentum"], sgd["nesterov"], sgd["weight_decay"]) == (
        0.5,
        0.9,
        True,
        0.1,
    )
    assert (sgd["rescale_grad"], sgd["clip_gradient"]) == (0.25, 2.0)
    adam = told(optimizer.Adam(beta1=0.8, epsilon=1e-6))
    assert (adam["kind"], adam["learning_rate"], adam["beta1"], adam["beta2"], adam["epsilon"]) == (
        "ADAM",
        0.001,
        0.8,
        0.999,
        1e-6,
    )
    assert told(optimizer.AdamW(wd=0.01))["kind"] == "ADAMW"
    assert told(optimizer.OneBitAdam())["freeze_after"] == 0, "until the variance is stable"
    onebit = told(optimizer.create("onebit_adam", freeze_after=7))
    assert (onebit["kind"], onebit["freeze_after"], onebit["beta1"]) == ("ONEBIT_ADAM", 7, 0.9)
    test = told(optimizer.Test(rescale_grad=-3))
    assert (test["kind"], test["rescale_grad"]) == ("TEST", -3.0)


def test_schedules():
    step = optimizer.SGD(
        lr_scheduler=lr_scheduler.FactorScheduler(10, 0.5, base_lr=0.3, warmup_steps=4)
    ).spec()
    assert step.learning_rate == 0.3
    schedule = step.schedule
    assert (schedule.kind, schedule.every, schedule.factor, schedule.warmup_rounds) == (
        "STEP",
        10,
        0.5,
        4,
    )
    cosine = optimizer.SGD(
        0.2, lr_scheduler=lr_scheduler.CosineScheduler(100, final_lr=0.01, warmup_steps=20)
    ).spec()
    assert cosine.learning_rate == 0.2
    assert (cosine.schedule.kind, cosine.schedule.total_rounds, cosine.schedule.final_lr) == (
        "COSINE",
        80,
        0.01,
    )
    poly = lr_scheduler.PolyScheduler(5).spec()
    assert (poly.kind, poly.power, poly.begin_round) == ("LINEAR", 2, 0), "MXNet's pwr"
    for resumed in (
        lr_scheduler.PolyScheduler(5, 0.1, 1, 0, 2, begin_update=7),
        lr_scheduler.CosineScheduler(5, begin_update=7),
        lr_scheduler.FactorScheduler(5, begin_update=7),
    ):
        assert resumed.spec().begin_round == 7
    assert optimizer.SGD().spec().schedule.kind == "CONSTANT"


@pytest.mark.parametrize(
    "make, complaint",
    [
        (lambda: optimizer.SGD(-1), "learning_rate: expected a number from 0, got -1"),
        (lambda: optimizer.SGD("0.1"), "learning_rate: expected a number from 0, got '0.1'"),
        (lambda: optimizer.SGD(float("nan")), "learning_rate: expected"),
        (lambda: optimizer.SGD(momentum=1.5), "momentum: expected a number from 0 to 1, got 1.5"),
        (lambda: optimizer.SGD(nesterov=True), "nesterov: needs a momentum above 0"),
        (lambda: optimizer.SGD(rescale_grad=0), "rescale_grad: expected a number other than 0"),
        (lambda: optimizer.SGD(clip_gradient=0), "clip_gradient: expected above 0, or None"),
        (lambda: optimizer.SGD(wd=-0.1), "wd: expected"),
        (
            lambda: optimizer.SGD(lr_scheduler=0.5),
            "lr_scheduler: expected one of slimps.lr_scheduler, got float",
        ),
        (lambda: optimizer.Adam(beta1=1), "beta1: expected below 1"),
        (lambda: optimizer.Adam(epsilon=0), "epsilon: expected"),
        (lambda: lr_scheduler.FactorScheduler(0), "step: expected an int from 1 updates, got 0"),
        (lambda: lr_scheduler.FactorScheduler(1, 1.5), "factor: expected above 0 and at most 1"),
        (
            lambda: lr_scheduler.CosineScheduler(5, warmup_steps=5),
            "max_update: expected an int from 6 updates, got 5",
        ),
        (lambda: lr_scheduler.PolyScheduler(5, pwr=0), "pwr: expected a number above 0, got 0"),
        (
            lambda: lr_scheduler.PolyScheduler(5, pwr=float("inf")),
            "pwr: expected a number above 0, got inf",
        ),
        (
            lambda: lr_scheduler.CosineScheduler(5, begin_update=-1),
            "begin_update: expected an int from 0 updates, got -1",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_named(make, complaint):
    with pytest.raises(slimps.InvalidArgumentError, match=complaint):
        make()


def test_mxnets_third_argument_of_a_factor_schedule_is_not_taken_for_another():
    with pytest.raises(TypeError, match="positional"):
        lr_scheduler.FactorScheduler(10, 0.5, 1e-8)  # there: stop_factor_lr


def rates(schedule, updates):
    """Returns the rate that each update of a local store steps by."""
    with slimps.kv.create("local") as store:
        store.init("w", np.zeros(1, np.float32))
        store.set_optimizer(optimizer.SGD(lr_scheduler=schedule))
        out = np.zeros(1, np.float32)
        made = []
        for _ in range(updates):
            before = float(out[0])
            store.pushpull("w", np.ones(1, np.float32), out=out)
            made.append(before - float(out[0]))
        return made


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: lr_scheduler.FactorScheduler(3, 0.5, base_lr=1, warmup_steps=2, **more),
        lambda **more: lr_scheduler.CosineScheduler(9, base_lr=1, warmup_steps=2, **more),
        lambda **more: lr_scheduler.PolyScheduler(9, base_lr=1, final_lr=0.25, **more),
    ],
)
def test_a_run_that_goes_on_has_the_rates_that_one_run_would_have(make):
    whole = rates(make(), 12)
    assert len(set(whole)) > 3, whole
    for done in (1, 4, 10):
        np.testing.assert_allclose(
            rates(make(begin_update=done), 12 - done), whole[done:], rtol=1e-5, atol=1e-5
        )


def weights():
    return [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))]


def test_torch_optimizers_are_read():
    sgd = told(
        optimizer.from_any(
            torch.optim.SGD(weights(), lr=0.5, momentum=0.9, weight_decay=0.1, nesterov=True)
        )
    )
    assert (
        sgd["kind"],
        sgd["learning_rate"],
        sgd["momentum"],
        sgd["weight_decay"],
        sgd["nesterov"],
    ) == ("SGD", 0.5, 0.9, 0.1, True)
    adam = told(
        optimizer.from_any(torch.optim.Adam(weights(), lr=0.02, betas=(0.8, 0.9), eps=1e-5))
    )
    assert (adam["kind"], adam["learning_rate"], adam["beta1"], adam["beta2"], adam["epsilon"]) == (
        "ADAM",
        0.02,
        0.8,
        0.9,
        1e-5,
    )
    adamw = told(optimizer.from_any(torch.optim.AdamW(weights())))
    assert (adamw["kind"], adamw["weight_decay"]) == ("ADAMW", 0.01)
    decoupled = torch.optim.Adam(weights(), decoupled_weight_decay=True)
    assert told(optimizer.from_any(decoupled))["kind"] == "ADAMW"


@pytest.mark.parametrize(
    "make, complaint",
    [
        (
            lambda: torch.optim.SGD(weights(), lr=1, momentum=0.5, dampening=0.5),
            "SGD: the servers have no dampening; expected 0",
        ),
        (
            lambda: torch.optim.SGD(weights(), lr=1, maximize=True),
            "SGD: the servers have no maximize",
        ),
        (
            lambda: torch.optim.Adam(weights(), amsgrad=True),
            "Adam: the servers have no amsgrad; expected False, got True",
        ),
        (
            lambda: torch.optim.RMSprop(weights()),
            "which takes every optimizer; got torch.optim.RMSprop",
        ),
        (
            lambda: torch.optim.SGD(
                [{"params": weights()[:1]}, {"params": weights()[1:], "lr": 0.1}], lr=1
            ),
            "parameter group 1 has lr=0.1 and group 0 1; expected equal options",
        ),
        (
            lambda: "sgd",
            "optimizer: expected one of slimps.optimizer or torch.optim.SGD, Adam or AdamW, got "
            "str",
        ),
    ],
)
def test_what_the_servers_cannot_do_is_named(make, complaint):
    with pytest.raises(slimps.InvalidArgumentError, match=complaint):
        optimizer.from_any(make())
