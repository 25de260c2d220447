# SPDX-License-Identifier: Apache-2.0
"""What slimps.torch.DistributedOptimizer refuses, in a job of one worker."""

import jobs
import pytest
import slimps
import slimps.torch
import torch
from conftest import model_and_sgd, refused, wrap
from slimps import _open_stores, _said_once
from slimps.pytorch import conversion


def test_optimizers_that_servers_do_not_have(store):
    model, sgd = model_and_sgd()
    with refused("torch.optim.SGD, Adam or AdamW, or .*; got torch.optim.Adagrad"):
        wrap(store, model, torch.optim.Adagrad(model.parameters()))
    with refused("torch.optim.SGD, Adam or AdamW, or .*; got .*torch_errors_test.SGD"):
        wrap(store, model, type("SGD", (torch.optim.SGD,), {})(model.parameters(), lr=0.1))
    with refused("amsgrad"):
        wrap(store, model, torch.optim.Adam(model.parameters(), amsgrad=True))
    groups = [{"params": [model.weight], "momentum": 0.5}, {"params": [model.bias]}]
    with refused("parameter group 1 has momentum=0 and group 0 0.5"):
        wrap(store, model, torch.optim.SGD(groups, lr=0.1))
    with refused("backward_passes_per_step: expected an int from 1, got 0"):
        wrap(store, model, sgd, backward_passes_per_step=0)
    with refused("non_finite: expected \"stop\" or \"skip\", got 'mean'"):
        wrap(store, model, sgd, non_finite="mean")
    for wrong in (0, "1", float("inf")):
        for name in ("clip_gradient", "clip_norm"):
            with refused("%s: expected a finite number above 0, or None, got %r" % (name, wrong)):
                wrap(store, model, sgd, **{name: wrong})
    with refused("freeze_after: expected torch.optim.Adam or AdamW, got torch.optim.SGD"):
        wrap(store, model, sgd, freeze_after=3)
    decayed = torch.optim.Adam(model.parameters(), weight_decay=0.1)
    with refused("freeze_after with torch.optim.Adam: expected weight_decay 0"):
        wrap(store, model, decayed, freeze_after=3)
    for wrong in (0, "soon"):
        with refused('freeze_after: expected a number of steps from 1, "auto" or None, got'):
            wrap(store, model, torch.optim.Adam(model.parameters()), freeze_after=wrong)
    until_stable = conversion.convert(torch.optim.Adam(model.parameters()), freeze_after="auto")
    assert until_stable.spec().kind == "ONEBIT_ADAM" and until_stable.spec().freeze_after == 0
    with refused("local_lr: is the backup model's; expected backup_model=True"):
        wrap(store, model, sgd, local_lr=0.1)
    with refused("local_lr: expected a finite number above 0, or None, got 0"):
        wrap(store, model, sgd, local_lr=0, backup_model=True)


def test_parameters_that_cannot_be_keys(store):
    model, sgd = model_and_sgd()
    with refused("got none for group0.1 of shape"):
        slimps.torch.DistributedOptimizer(sgd, [("weight", model.weight)], store=store)
    with refused("name 'w' stands twice"):
        slimps.torch.DistributedOptimizer(
            sgd, [("w", model.weight), ("w", model.bias)], store=store
        )
    with refused("expected \\(name, tensor\\) pairs"):
        slimps.torch.DistributedOptimizer(sgd, model.parameters(), store=store)
    double = torch.nn.Linear(3, 2).double()
    with refused("parameter weight: expected .*torch.bfloat16, got torch.float64"):
        wrap(store, double, torch.optim.SGD(double.parameters(), lr=0.1))
    lazy = torch.nn.LazyLinear(2)
    of_lazy = torch.optim.SGD(lazy.parameters(), lr=0.1)
    unmade = "parameter %s: has no shape before the first forward pass, .*; expected one pass"
    with refused(unmade % "weight"):
        slimps.torch.CommHookState(lazy, store=store)
    with refused(unmade % "group0.0"):
        slimps.torch.DistributedOptimizer(of_lazy, lazy, store=store)
    whole = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    of_whole = torch.optim.SGD([whole], lr=0.1)
    with refused("parameter group0.0: is complex, .* expected .*torch.view_as_real"):
        slimps.torch.DistributedOptimizer(of_whole, store=store)
    model.requires_grad_(False)
    with refused("expected parameters that need a gradient"):
        wrap(store, model, sgd)


def test_parameters_without_elements_are_left_out(store):
    model = torch.nn.Linear(3, 2)
    model.nothing = torch.nn.Parameter(torch.zeros(0, 3))
    optimizer = wrap(store, model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.bias.detach().clone()
    (model(torch.ones(1, 3)).sum() + model.nothing.sum()).backward()
    optimizer.step()
    assert torch.allclose(model.bias.detach(), before - 0.1)
    assert not store.has_key("nothing")


def test_scaled_gradients_that_have_gone(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    with refused("push_in_backward=False", slimps.FailedPreconditionError):
        # As torch.amp.GradScaler does.
        optimizer.found_inf, optimizer.grad_scale = torch.zeros(()), None
        optimizer.step()


@pytest.mark.parametrize("non_finite", ["stop", "skip"])
def test_one_nan_stops_or_leaves_the_parameter_out(store, non_finite):
    model, sgd = model_and_sgd()
    before = model.weight.detach().clone()
    optimizer = wrap(store, model, sgd, non_finite=non_finite, backup_model=False)
    model(torch.tensor([[float("nan"), 1.0, 1.0]])).sum().backward()
    if non_finite == "stop":
        with refused("weight"):
            optimizer.step()
        return
    optimizer.step()
    assert torch.equal(before, model.weight)  # also where the gradient was finite
    assert not torch.equal(torch.zeros(2), model.bias)  # its gradient was 1


def test_names_without_named_parameters(store):
    model, sgd = model_and_sgd()
    optimizer = slimps.torch.DistributedOptimizer(sgd, store=store, backup_model=False)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    out = torch.zeros(2)
    store.pull("group0.1", out=out)
    assert torch.equal(out, model.bias.detach())
    assert "DistributedOptimizer" in repr(optimizer) and "lr: 0.1" in repr(optimizer)


def test_a_store_has_its_own_options(store):
    model, sgd = model_and_sgd()
    with refused("store: has its own options; expected no compression, threshold beside it"):
        wrap(store, model, sgd, compression="1bit", threshold=0)
    with refused("expected no timeout_s beside it"):
        slimps.torch.CommHookState(model.named_parameters(), store=store, timeout_s=5)
    wrap(store, model, sgd, compression="none", pull_compression="none")


def test_optimizers_that_share_a_store_are_alike(store):
    """The servers run one optimizer for all keys."""
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    before = [model.bias.detach().clone() for model in (first, second)]
    adam = wrap(
        store,
        first,
        torch.optim.Adam(first.parameters(), lr=0.1, betas=(0.5, 0.999)),
        backup_model=False,
    )
    names = [("second." + name, parameter) for name, parameter in second.named_parameters()]
    for other, complaint in (
        (
            torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9),
            "expected kind='ADAM' as it has, got 'SGD'",
        ),
        (torch.optim.Adam(second.parameters(), lr=0.1), "expected beta1=0.5 as it has, got 0.9"),
    ):
        with refused(
            "a DistributedOptimizer has set this store's: " + complaint,
            slimps.FailedPreconditionError,
        ):
            slimps.torch.DistributedOptimizer(other, names, store=store)
    with refused(
        "CommHookState: .*expected kind='ADAM' as it has, got 'NONE'",
        slimps.FailedPreconditionError,
    ):
        slimps.torch.CommHookState(names, store=store)
    with refused(
        "set_optimizer: .*expected kind='ADAM' as it has, got 'SGD'", slimps.FailedPreconditionError
    ):
        store.set_optimizer(slimps.optimizer.SGD())
    # The rates may differ.
    alike = slimps.torch.DistributedOptimizer(
        torch.optim.Adam(second.parameters(), lr=0.3, betas=(0.5, 0.999)),
        names,
        store=store,
        backup_model=False,
    )
    for model, optimizer, old, rate in (
        (first, adam, before[0], 0.1),
        (second, alike, before[1], 0.3),
    ):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()  # Adam's first step is its rate
        assert torch.allclose(model.bias.detach(), old - rate, atol=1e-5)


def test_a_store_with_another_optimizer(store):
    model, sgd = model_and_sgd()
    store.set_optimizer(slimps.optimizer.SGD(momentum=0.9))
    store.set_optimizer(slimps.optimizer.SGD(momentum=0.5))  # no optimizer relies on it
    with refused(
        "DistributedOptimizer: .*set_optimizer has set this store's: expected momentum=0.5",
        slimps.FailedPreconditionError,
    ):
        wrap(store, model, sgd)


def test_a_step_waits_as_long_as_its_store(monkeypatch):
    waits = []
    make = slimps.kv.KVStore.exchange

    def exchange(self, *arguments):
        waits.append(arguments[-1].timeout_s)
        return make(self, *arguments)

    monkeypatch.setattr(slimps.kv.KVStore, "exchange", exchange)
    with jobs.lone_store(timeout_s=600) as store:
        wrap(store, *model_and_sgd())
    assert waits == [0]  # as long as the store, and a little longer


def test_closing_twice():
    with jobs.Daemons(1, 1) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=1, num_servers=1)
        model, sgd = model_and_sgd()
        with slimps.torch.DistributedOptimizer(sgd) as optimizer:
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            optimizer.close()
        optimizer.close()


def test_closing_ends_everything_also_after_an_error(monkeypatch):
    with jobs.Daemons(1, 1) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=1, num_servers=1)
        model, sgd = model_and_sgd()
        optimizer = slimps.torch.DistributedOptimizer(sgd, model, broadcast_buffers=True)

        def drain():
            raise slimps.UnavailableError("worker 1 has ended")

        monkeypatch.setattr(optimizer._exchange, "drain", drain)
        with refused("worker 1 has ended", slimps.UnavailableError):
            optimizer.close()
        assert not sgd.state and not model._forward_pre_hooks
        assert not _open_stores.distributed()


def test_broadcast_buffers_without_a_model_has_joined_no_job():
    model, sgd = model_and_sgd()
    slimps.init(scheduler="127.0.0.1:1", num_workers=1, num_servers=1)
    with refused("broadcast_buffers: expected the model as named_parameters"):
        slimps.torch.DistributedOptimizer(
            sgd, dict(model.named_parameters()), broadcast_buffers=True
        )


def test_broadcast_buffers_on_a_worker_that_was_started_again(store, monkeypatch):
    monkeypatch.setattr(slimps.kv.KVStore, "former_rounds", 3)
    model, sgd = model_and_sgd()
    with refused(
        "broadcast_buffers: this worker was started again", slimps.FailedPreconditionError
    ):
        wrap(store, model, sgd, broadcast_buffers=True)


def test_a_store_that_is_not_there():
    with refused("expected one that is open, found 0", slimps.FailedPreconditionError):
        slimps.torch.broadcast_parameters(torch.nn.Linear(2, 2).named_parameters())


@pytest.mark.parametrize(
    "codec, made, warned",
    [
        ("1bit", torch.optim.Adam, True),
        ("1bit:scaling=l1", torch.optim.AdamW, True),
        ("1bit", torch.optim.SGD, False),
        ("qsgd:bits=4", torch.optim.Adam, False),
    ],
    ids=["adam", "adamw", "sgd", "qsgd"],
)
def test_one_bit_with_adam_is_warned_of_once(monkeypatch, recwarn, codec, made, warned):
    """By the library where the servers step, so that Python warns only under the hook."""
    monkeypatch.setattr(_said_once, "_said", set())
    model = torch.nn.Linear(3, 2)
    optimizer = made(model.parameters(), lr=0.1)
    with jobs.lone_store(compression=codec, threshold=0) as store:
        wrap(store, model, optimizer)
    assert not [one for one in recwarn.list if "the variance grows" in str(one.message)]
    with jobs.lone_store(compression=codec, threshold=0) as store:
        slimps.torch.CommHookState(model.named_parameters(), store=store, optimizer=optimizer)
    told = [str(one.message) for one in recwarn.list if "the variance grows" in str(one.message)]
    assert len(told) == warned, told
    assert all('freeze_after="auto"' in one and "qsgd:bits=4" in one for one in told)
