# SPDX-License-Identifier: Apache-2.0
"""What slimps.torch refuses, in a job of one worker."""

import copy
import pickle

import jobs
import numpy as np
import pytest
import slimps
import slimps.torch
import torch
import torch.utils.checkpoint
from slimps import _said_once, _torch_parameters


@pytest.fixture(name="store")
def one_store():
    with jobs.lone_store() as store:
        yield store


def model_and_sgd(**settings):
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **settings)


def wrap(store, model, optimizer, **settings):
    return slimps.torch.DistributedOptimizer(optimizer, model.named_parameters(), store=store, **settings)


def refused(match, kind=slimps.InvalidArgumentError):
    return pytest.raises(kind, match=match)


def test_optimizers_that_servers_do_not_have(store):
    model, sgd = model_and_sgd()
    with refused("torch.optim.SGD, Adam or AdamW, got torch.optim.Adagrad"):
        wrap(store, model, torch.optim.Adagrad(model.parameters()))
    with refused("torch.optim.SGD, Adam or AdamW, got .*torch_errors_test.SGD"):
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
    with refused("clip_gradient: expected above 0, or None, got 0"):
        wrap(store, model, sgd, clip_gradient=0)
    with refused("local_lr: is the backup model's; expected backup_model=True"):
        wrap(store, model, sgd, local_lr=0.1)


def test_parameters_that_cannot_be_keys(store):
    model, sgd = model_and_sgd()
    with refused("got none for group0.1 of shape"):
        slimps.torch.DistributedOptimizer(sgd, [("weight", model.weight)], store=store)
    with refused("name 'w' stands twice"):
        slimps.torch.DistributedOptimizer(sgd, [("w", model.weight), ("w", model.bias)], store=store)
    with refused("expected \\(name, tensor\\) pairs"):
        slimps.torch.DistributedOptimizer(sgd, model.parameters(), store=store)
    double = torch.nn.Linear(3, 2).double()
    with refused("parameter weight: expected torch.float32, got torch.float64"):
        wrap(store, double, torch.optim.SGD(double.parameters(), lr=0.1))
    gaps = torch.nn.Parameter(torch.ones(4, 6).t())
    with refused("parameter w: expected contiguous memory"):
        slimps.torch.DistributedOptimizer(torch.optim.SGD([gaps], lr=0.1), [("w", gaps)], store=store)
    model.requires_grad_(False)
    with refused("expected parameters that need a gradient"):
        wrap(store, model, sgd)


def clip_weights(model):
    model.weight.data.clamp_(-0.01, 0.01)


def set_one(model):
    model.bias.detach().numpy()[1] = 5


def move(model):
    model.weight.data = model.weight.data.clone()


# torch counts only the first.
@pytest.mark.parametrize("change, which", [
    (lambda model: model.load_state_dict(torch.nn.Linear(3, 2).state_dict()), "weight"), (clip_weights, "weight"),
    (set_one, "bias"), (move, "weight")])
@pytest.mark.parametrize("backup_model", [True, False])
def test_weights_that_others_change(store, change, which, backup_model):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd, backup_model=backup_model)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    change(model)
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    with refused("parameter %s: was changed outside of the optimizer" % which, slimps.FailedPreconditionError):
        optimizer.step()


def test_a_parameter_unfrozen_later(store):
    model, sgd = model_and_sgd()
    model.weight.requires_grad_(False)
    optimizer = wrap(store, model, sgd)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    model.weight.requires_grad_(True)
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    with refused("parameter weight: has a gradient, and needed none when", slimps.FailedPreconditionError):
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
    with refused("came in 2 backward passes of one step; expected 1, .* or push_in_backward=False", slimps.FailedPreconditionError):
        loss.backward()
    with refused("gradients of a step have gone out", slimps.FailedPreconditionError):
        with optimizer.global_weights():
            pass
    with refused("was changed after it had gone out", slimps.FailedPreconditionError):
        optimizer.step()  # taken, with the gradients of the first pass
    optimizer.zero_grad()
    optimizer.param_groups[0]["momentum"] = 0.5
    with refused("parameter group 0: .* only lr and weight_decay may change", slimps.FailedPreconditionError):
        model(torch.ones(1, 3)).sum().backward()
    with refused("before the DistributedOptimizer is made", slimps.FailedPreconditionError):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    for make in (copy.deepcopy, pickle.dumps):
        with refused("cannot be copied or pickled", slimps.FailedPreconditionError):
            make(optimizer)


def test_scaled_gradients_that_have_gone(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    with refused("push_in_backward=False", slimps.FailedPreconditionError):
        optimizer.found_inf = torch.zeros(())  # as torch.amp.GradScaler does
        optimizer.step()


def test_gradients_clipped_after_they_have_gone(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    model(torch.ones(1, 3)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with refused("gradient of weight: was changed after it had gone out.*push_in_backward=False",
                 slimps.FailedPreconditionError):
        optimizer.step()


def clamp_another(model, _):
    model.weight.grad = model.weight.grad.clamp(-0.01, 0.01)


def drop(model, _):
    model.weight.grad = None


def clip_by_value(model, _):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)  # through .data: torch counts no change


def halve_the_rate(_, optimizer):
    optimizer.param_groups[0]["lr"] *= 0.5


@pytest.mark.parametrize("change, complaint", [
    (clamp_another, "gradient of weight: was changed after"), (drop, "gradient of weight: was changed after"),
    (clip_by_value, "gradient of weight: was changed after"),
    (halve_the_rate, "lr and weight_decay of parameter group 0: changed after gradients had gone out")])
def test_what_changes_between_backward_and_step(store, change, complaint):
    model, sgd = model_and_sgd()
    before = model.weight.detach().clone()
    optimizer = wrap(store, model, sgd, backup_model=False)
    model(torch.ones(1, 3)).sum().backward()
    change(model, optimizer)
    with refused(complaint + ".*push_in_backward=False", slimps.FailedPreconditionError):
        optimizer.step()
    assert torch.allclose(model.weight.detach(), before - 0.1), "the step as it was without that change"


def test_a_model_that_ddp_still_wraps(store):
    inner, sgd = model_and_sgd()
    named = [("module." + name, parameter) for name, parameter in inner.named_parameters()]
    optimizer = slimps.torch.DistributedOptimizer(sgd, named, store=store)
    inner(torch.ones(1, 3)).sum().backward()
    inner.bias.grad /= 2
    with refused("gradient of bias: .* no DistributedDataParallel around", slimps.FailedPreconditionError):
        optimizer.step()


def test_what_begins_to_change_later(store):
    """slimps does not look through the gradients of every step, so it notices a change through
    `.data` a few steps later. torch 2 clips without `.data`, and counts the change itself."""
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    with refused("gradient of weight: was changed after", slimps.FailedPreconditionError):
        for number in range(40):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            if number >= 13:
                clip_by_value(model, optimizer)
            optimizer.step()
    assert number == (20 if torch.__version__ < "2" else 13)


class Halved(torch.autograd.Function):  # pylint: disable=abstract-method
    """weight / 2. Its backward may say that there is no gradient."""

    @staticmethod
    def forward(ctx, weight, learns):  # pylint: disable=arguments-differ
        ctx.learns = learns
        return weight / 2

    @staticmethod
    def backward(ctx, gradient):  # pylint: disable=arguments-differ
        return (gradient / 2 if ctx.learns else None), None


def test_a_function_that_gives_no_gradient(store):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = slimps.torch.DistributedOptimizer(torch.optim.SGD([weight], lr=1), store=store, backup_model=False)
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
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10, cycle_momentum=False)


@pytest.mark.parametrize("make", [one_cycle, lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.5)])
def test_schedulers_that_keep_notes_in_the_groups(store, make):
    model, _ = model_and_sgd()
    groups = [{"params": [model.weight], "name": "decayed"}, {"params": [model.bias], "lr_scale": 0.5}]
    optimizer = wrap(store, model, torch.optim.SGD(groups, lr=0.1, momentum=0.9), backup_model=False)
    schedule = make(optimizer)
    rates = set()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
        rates.add(optimizer.param_groups[0]["lr"])
    assert len(rates) == 3


def test_momentum_that_a_scheduler_changes(store):
    model, sgd = model_and_sgd(momentum=0.9)
    optimizer = wrap(store, model, sgd)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10)
    with refused("parameter group 0: .* only lr and weight_decay may change", slimps.FailedPreconditionError):
        model(torch.ones(1, 3)).sum().backward()


@pytest.mark.parametrize("non_finite", ["stop", "skip"])
def test_nan_stops_or_counts_as_zero(store, non_finite):
    model, sgd = model_and_sgd()
    before = model.weight.detach().clone()
    optimizer = wrap(store, model, sgd, non_finite=non_finite, backup_model=False)
    model(torch.full((1, 3), float("nan"))).sum().backward()
    if non_finite == "stop":
        with refused("weight"):
            optimizer.step()
        return
    optimizer.step()
    assert torch.equal(before, model.weight)
    assert not torch.equal(torch.zeros(2), model.bias)  # its gradient was 1


def test_a_state_of_something_else(store):
    model, sgd = model_and_sgd()
    optimizer = wrap(store, model, sgd)
    with refused("got one without num_workers, optimizer, rank, residuals, servers"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})


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
    adam = wrap(store, first, torch.optim.Adam(first.parameters(), lr=0.1, betas=(0.5, 0.999)), backup_model=False)
    names = [("second." + name, parameter) for name, parameter in second.named_parameters()]
    for other, complaint in (
            (torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9), "expected kind='ADAM' as it has, got 'SGD'"),
            (torch.optim.Adam(second.parameters(), lr=0.1), "expected beta1=0.5 as it has, got 0.9")):
        with refused("a DistributedOptimizer has set this store's: " + complaint, slimps.FailedPreconditionError):
            slimps.torch.DistributedOptimizer(other, names, store=store)
    with refused("CommHookState: .*expected kind='ADAM' as it has, got 'NONE'", slimps.FailedPreconditionError):
        slimps.torch.CommHookState(names, store=store)
    with refused("set_optimizer: .*expected kind='ADAM' as it has, got 'SGD'", slimps.FailedPreconditionError):
        store.set_optimizer(slimps.optimizer.SGD())
    # The rates may differ.
    alike = slimps.torch.DistributedOptimizer(torch.optim.Adam(second.parameters(), lr=0.3, betas=(0.5, 0.999)), names,
                                              store=store, backup_model=False)
    for model, optimizer, old, rate in ((first, adam, before[0], 0.1), (second, alike, before[1], 0.3)):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()  # Adam's first step is its rate
        assert torch.allclose(model.bias.detach(), old - rate, atol=1e-5)


def test_a_store_with_another_optimizer(store):
    model, sgd = model_and_sgd()
    store.set_optimizer(slimps.optimizer.SGD(momentum=0.9))
    store.set_optimizer(slimps.optimizer.SGD(momentum=0.5))  # no optimizer relies on it
    with refused("DistributedOptimizer: .*set_optimizer has set this store's: expected momentum=0.5",
                 slimps.FailedPreconditionError):
        wrap(store, model, sgd)


def test_a_step_waits_as_long_as_its_store(monkeypatch):
    waits = []
    make = slimps.kv.KVStore.exchange

    def exchange(self, names, layers, arrays, spec, settings):
        waits.append(settings.timeout_s)
        return make(self, names, layers, arrays, spec, settings)

    monkeypatch.setattr(slimps.kv.KVStore, "exchange", exchange)
    with jobs.lone_store(timeout_s=600) as store:
        wrap(store, *model_and_sgd())
    assert waits == [605]


@pytest.fixture(name="warnings_said")
def warnings_said_before(monkeypatch, recwarn):
    monkeypatch.setattr(_said_once, "_said", set())
    return lambda: [str(one.message) for one in recwarn.list if "evaluated on this worker's own" in str(one.message)]


def own_weights(store, model, **settings):
    """Returns an optimizer after one step with the backup model."""
    optimizer = wrap(store, model, torch.optim.SGD(model.parameters(), lr=0.1), **{"backup_model": True, **settings})
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return optimizer


def test_evaluating_without_global_weights_is_warned_of_once(store, warnings_said):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = own_weights(store, model)
    with optimizer.global_weights(), torch.no_grad():
        model.eval()(torch.ones(2, 3))
    model.train()[1].eval()  # as frozen normalisation does
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.utils.checkpoint.checkpoint(model, torch.ones(2, 3, requires_grad=True), use_reentrant=True).sum().backward()
    optimizer.step()
    torch.nn.Linear(3, 4).eval()(torch.ones(2, 3))  # another model
    assert not warnings_said()
    with torch.no_grad():
        for _ in range(2):
            model.eval()(torch.ones(2, 3))
    assert len(warnings_said()) == 1
    assert "Expected it inside `with optimizer.global_weights():`" in warnings_said()[0]
    optimizer.close()


@pytest.mark.parametrize("how", ["without gradients alone", "in evaluation mode alone", "after close", "without backup model"])
def test_which_evaluations_are_on_this_workers_own_weights(store, warnings_said, how):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = own_weights(store, model, backup_model=how != "without backup model")
    if how == "after close":
        optimizer.close()
    with torch.set_grad_enabled(how == "in evaluation mode alone"):
        model.train(how == "without gradients alone")(torch.ones(2, 3))
    assert len(warnings_said()) == (1 if how.endswith("alone") else 0)


def test_layers_are_told_by_their_modules():
    """nn.Bilinear's weight has three dimensions but is no convolution, so adacomp's bins are wider
    there."""
    gradient = (np.random.default_rng(1).normal(size=(20, 10, 10)) ** 9).astype(np.float32)  # few large ones

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
            torch.optim.SGD(model.parameters(), lr=0.1), named(model), store=store)

    def by_hook(named):
        return lambda model, store: slimps.torch.CommHookState(named(model), store=store)

    for by, key in ((by_optimizer, "weight"), (by_hook, "gradient/weight")):
        by_shape, by_module = pushed(by(torch.nn.Module.named_parameters), key), pushed(by(lambda model: model), key)
        assert by_module < by_shape, (by_module, by_shape)


def test_kinds_of_layers():
    network = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 1), torch.nn.BatchNorm1d(3), torch.nn.LSTM(3, 4), torch.nn.Embedding(5, 6),
                                  torch.nn.Linear(6, 7))
    assert _torch_parameters.layers_of(network, list(network.parameters())) == (
        ["convolution"] * 2 + ["normalisation"] * 2 + ["recurrent"] * 4 + ["embedding"] + ["dense"] * 2)
    assert _torch_parameters.layers_of(network.named_parameters(), list(network.parameters())) == [""] * 11


def test_closing_twice():
    with jobs.Daemons(1, 1) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=1, num_servers=1)
        model, sgd = model_and_sgd()
        with slimps.torch.DistributedOptimizer(sgd) as optimizer:
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            optimizer.close()
        optimizer.close()


def test_the_hook_refuses(store):
    model, _ = model_and_sgd()
    with refused("no parameter needs a gradient"):
        slimps.torch.CommHookState([])
    with refused("expected torch.float32, got torch.float64"):
        slimps.torch.CommHookState(torch.nn.Linear(2, 2).double().named_parameters(), store=store)


@pytest.mark.parametrize("codec", ["dgc:ratio=0.5", "topk:ratio=0.5,momentum=nesterov", {
    "compressor_type": "onebit", "momentum_type": "nesterov", "momentum_mu": 0.9}], ids=["dgc", "topk", "byteps"])
def test_the_hook_with_momentum_in_the_codec(store, codec):
    model, sgd = model_and_sgd()
    store.set_gradient_compression(codec)

    def state(optimizer):
        return slimps.torch.CommHookState(model.named_parameters(), store=store, optimizer=optimizer)

    with refused("the codec has momentum of its own, .*; expected optimizer= beside it"):
        state(None)
    for wrong, complaint in ((torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), "got SGD with 0.9 in parameter group 0"),
                             (torch.optim.AdamW(model.parameters()), "got AdamW with 0.9"),
                             (torch.optim.RMSprop(model.parameters(), momentum=0.5), "got RMSprop with 0.5")):
        with refused("twice; expected an optimizer without .*, " + complaint):
            state(wrong)
    made = state(sgd)
    sgd.param_groups[0]["momentum"] = 0.8
    with refused("got SGD with 0.8"):
        made.exchange(None)  # before it looks at the bucket


def test_a_hook_that_is_refused_has_joined_no_job():
    model, _ = model_and_sgd()
    slimps.init(scheduler="127.0.0.1:1", num_workers=1, num_servers=1)
    with refused("expected optimizer= beside it"):
        slimps.torch.CommHookState(model.named_parameters(), compression="dgc")


def test_the_hook_leaves_momentum_to_the_optimizer_where_the_codec_has_none(store):
    model, _ = model_and_sgd()
    momentum = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for codec in ("1bit", "topk:ratio=0.5", {"type": "2bit", "threshold": 0.5}):
        store.set_gradient_compression(codec)
        assert not store.codec_has_momentum
    slimps.torch.CommHookState(model.named_parameters(), store=store, optimizer=momentum)


def test_a_store_that_is_not_there():
    with refused("expected one that is open, found 0", slimps.FailedPreconditionError):
        slimps.torch.broadcast_parameters(torch.nn.Linear(2, 2).named_parameters())
