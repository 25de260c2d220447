# SPDX-License-Identifier: Apache-2.0
"""What a worker of slimps bench torch --accelerator has: its model and its hooks.

Clocks and all-reduces are the test's.
"""

import os
import sys
import types

import pytest
import torch

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "..", "..", "tools", "bench", "torch"))

import ddp_hooks  # noqa: E402
import waited_model  # noqa: E402

# A step of 3 s is 1 s forward. Layer a: a quarter of both passes; b.c: the rest.
DESCRIBED = {
    "tensors": [["a.weight", [2, 2]], ["a.bias", [2]], ["b.c.weight", [3]]],
    "layers": [[2, 0.25], [1, 0.75]],
}


class Clock:
    """Time that passes only where somebody sleeps, or a test says so."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(waited_model, "time", made)
    monkeypatch.setattr(ddp_hooks, "time", made)
    return made


class Model:
    """A waited model that notes when each gradient comes, in seconds since the step's start."""

    def __init__(self, clock):
        self.clock, self.came, self.after = clock, {}, {}
        self.module = waited_model.WaitedModel(DESCRIBED, step_s=3.0, seed=1)
        for name, parameter in self.module.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: self.note(name))

    def note(self, name):
        self.came[name] = self.clock.now - self.began
        self.clock.now += self.after.get(name, 0.0)

    def step(self):
        self.came.clear()
        self.module.zero_grad()
        self.began = self.clock.now
        self.module().backward()
        return self.came


def test_gradients_come_out_of_autograd_at_their_times(clock):
    model = Model(clock)
    for _ in range(2):
        came = model.step()
        assert came == pytest.approx({"b.c.weight": 2.5, "a.weight": 3.0, "a.bias": 3.0})
        assert list(came)[0] == "b.c.weight"


def test_gradients_are_made_once_and_not_copied(clock):
    model = Model(clock)
    kept = [gradient.clone() for layer in model.module._layers for gradient in layer.gradients]
    for _ in range(2):
        model.step()
        made = [gradient for layer in model.module._layers for gradient in layer.gradients]
        for parameter, gradient, before in zip(model.module.parameters(), made, kept):
            assert parameter.grad.data_ptr() == gradient.data_ptr()
            assert parameter.grad.equal(before) and before.count_nonzero() == before.numel()
    others = waited_model.WaitedModel(DESCRIBED, step_s=3.0, seed=2)
    assert not others._layers[0].gradients[0].equal(made[0])


def test_what_the_host_takes_moves_no_gradient(clock):
    model = Model(clock)
    model.after = {"b.c.weight": 0.2}
    assert model.step()["a.weight"] == pytest.approx(3.0)
    # The accelerator went on in the meantime: nothing is waited for, and the next step is whole.
    model.after = {"b.c.weight": 5.0}
    assert model.step()["a.weight"] == pytest.approx(7.5)
    model.after = {}
    assert model.step()["a.weight"] == pytest.approx(3.0)


def test_a_hook_that_waits_before_a_layer_holds_the_accelerator_up(clock):
    model = Model(clock)
    model.module.b.c.register_forward_pre_hook(lambda *_: clock.sleep(2.0))
    came = model.step()
    assert came == pytest.approx({"b.c.weight": 4.25, "a.weight": 4.75, "a.bias": 4.75})


def test_a_hook_that_returns_before_the_layer_would_begin_costs_nothing(clock):
    model = Model(clock)
    model.module.b.c.register_forward_pre_hook(lambda *_: clock.sleep(0.2))
    assert model.step()["a.weight"] == pytest.approx(3.0)


# ---- hooks ---------------------------------------------------------------------------------------


class Bucket:
    def __init__(self, *gradients):
        self._buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._shapes = [gradient.shape for gradient in gradients]

    def buffer(self):
        return self._buffer

    def gradients(self):
        parts = self._buffer.split([shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]

    def index(self):
        return 0

    def is_last(self):
        return True


class Group:
    """torch.distributed with two workers of equal tensors. `complete` ends the oldest reduction."""

    def __init__(self):
        self.flying = []

    def get_world_size(self):
        return 2

    def all_reduce(self, tensor, group=None, async_op=False):
        future = torch.futures.Future()
        self.flying.append((future, tensor))
        return types.SimpleNamespace(get_future=lambda: future)

    def complete(self):
        future, tensor = self.flying.pop(0)
        future.set_result([tensor.mul_(2)])


def test_delayed_returns_the_mean_of_the_step_before(monkeypatch):
    group = Group()
    monkeypatch.setattr(ddp_hooks, "dist", group)
    monkeypatch.setattr(
        ddp_hooks.default_hooks, "allreduce_hook", lambda _, bucket: bucket.buffer() + 0.5
    )
    hooks = ddp_hooks.Delayed()

    def step(value):
        return hooks.hook(None, Bucket(torch.full([4], value)))

    assert step(1.0).tolist() == [1.5] * 4  # as torch's own hook
    second = step(2.0)
    assert second.done() and second.value().tolist() == [0.0] * 4
    third = step(3.0)
    assert not third.done()
    group.complete()
    assert third.done() and third.value().tolist() == [2.0] * 4
    fourth = step(4.0)  # in the memory of the second step's mean
    assert not fourth.done()
    group.complete()
    assert fourth.done() and fourth.value().tolist() == [3.0] * 4
    group.complete()
    hooks.finish()


def test_powersgds_arithmetic_is_its_time_without_reductions(monkeypatch, clock):
    class Slow(Group):
        def all_reduce(self, tensor, group=None, async_op=False):
            work = super().all_reduce(tensor)
            clock.now += 10.0
            self.complete()
            return work

    calls = []

    def orthogonalize(matrix, epsilon=0):
        calls.append(matrix)
        clock.now += 1.0

    monkeypatch.setattr(ddp_hooks, "dist", Slow())
    monkeypatch.setattr(ddp_hooks.powerSGD_hook, "dist", None)  # restores it after the test
    monkeypatch.setattr(ddp_hooks.powerSGD_hook, "_orthogonalize", orthogonalize)
    hooks = ddp_hooks.PowerSgd(rank=1)
    hooks.state.process_group = types.SimpleNamespace(size=lambda: 2)
    hooks.state.iter = hooks.state.start_powerSGD_iter
    began = clock.now
    hooks.hook(None, Bucket(torch.ones(8, 8), torch.ones(8))).wait()
    assert len(calls) == 2 and hooks.arithmetic_s == 2.0
    assert clock.now - began == 32.0
