# SPDX-License-Identifier: Apache-2.0
"""What slimps.torch.CommHookState refuses, in a job of one worker."""

from unittest import mock

import pytest
import slimps
import slimps.torch
import torch
from conftest import model_and_sgd, refused
from slimps.pytorch import ddp, gpu, params


def test_the_hook_refuses(store):
    model, _ = model_and_sgd()
    with refused("no parameter needs a gradient"):
        slimps.torch.CommHookState([])
    with refused("expected torch.float32 or .*, got torch.float64"):
        slimps.torch.CommHookState(torch.nn.Linear(2, 2).double().named_parameters(), store=store)


@pytest.mark.parametrize(
    "codec",
    [
        "dgc:ratio=0.5",
        "topk:ratio=0.5,momentum=nesterov",
        {"compressor_type": "onebit", "momentum_type": "nesterov", "momentum_mu": 0.9},
    ],
    ids=["dgc", "topk", "byteps"],
)
def test_the_hook_with_momentum_in_the_codec(store, codec):
    model, sgd = model_and_sgd()
    store.set_gradient_compression(codec)

    def state(optimizer):
        return slimps.torch.CommHookState(
            model.named_parameters(), store=store, optimizer=optimizer
        )

    with refused("the codec has momentum of its own, .*; expected optimizer= beside it"):
        state(None)
    for wrong, complaint in (
        (
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            "got SGD with 0.9 in parameter group 0",
        ),
        (torch.optim.AdamW(model.parameters()), "got AdamW with 0.9"),
        (torch.optim.RMSprop(model.parameters(), momentum=0.5), "got RMSprop with 0.5"),
    ):
        with refused("twice; expected an optimizer without .*, " + complaint):
            state(wrong)
    made = state(sgd)
    sgd.param_groups[0]["momentum"] = 0.8
    with refused("got SGD with 0.8"):
        made.exchange(None)  # before it looks at the bucket


@pytest.mark.parametrize(
    "options", [{"compression": "powersgd:rank=1"}, {"compression": "thc"}, {"non_finite": "stop"}]
)
def test_a_scaler_wants_non_finite_gradients_to_pass(options):
    model, _ = model_and_sgd()
    slimps.init(scheduler="127.0.0.1:1", num_workers=1, num_servers=1)
    with refused("expected a store of non_finite=\"pass\" and another codec than powersgd"):
        slimps.torch.CommHookState(
            model.named_parameters(), scaler=torch.amp.GradScaler("cpu"), **options
        )


def test_a_scaler_beside_a_store_that_stops(store):
    model, _ = model_and_sgd()
    with refused("expected a store of non_finite=\"pass\""):
        slimps.torch.CommHookState(
            model.named_parameters(), scaler=torch.amp.GradScaler("cpu"), store=store
        )


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


def test_an_error_that_is_raised_again_holds_no_frames(store):
    model, _ = model_and_sgd()
    state = slimps.torch.CommHookState(model.named_parameters(), store=store)
    state._fail(slimps.UnavailableError("worker 1 has ended"))
    lengths = set()
    for _ in range(3):
        with refused("worker 1 has ended", slimps.UnavailableError) as raised:
            state.exchange(None)
        lengths.add(len(raised.traceback))
    assert len(lengths) == 1, lengths


def test_leaving_the_hooks_context_ends_its_trace(store, monkeypatch):
    ended = []
    monkeypatch.setattr(ddp.script_rows, "passes", lambda: mock.Mock(end=lambda: ended.append(1)))
    model, _ = model_and_sgd()
    with slimps.torch.CommHookState(model.named_parameters(), store=store):
        assert not ended
    assert ended


def test_which_parameters_fill_their_memory():
    whole = torch.empty(2, 3, 4, 5)
    assert params.is_dense(whole) and params.is_dense(whole.to(memory_format=torch.channels_last))
    assert not params.is_dense(whole[:, :2])


def test_the_future_of_a_tensor_on_a_gpu_is_made_with_the_gpu(monkeypatch):
    made = []
    monkeypatch.setattr(torch.futures, "Future", lambda devices=None: made.append(devices))
    on_gpu = torch.device("cuda", 1)
    gpu.future_of(type("OnGpu", (), {"device": on_gpu}))
    gpu.future_of(torch.zeros(1))
    assert made == [[on_gpu], None]
