# SPDX-License-Identifier: Apache-2.0
"""The scenarios of kvstore_test.py whose servers run an optimizer: optimizer_scenarios.py NAME.

A failed assertion ends the worker, and the test.
"""

import os
import queue
import tempfile

import numpy as np
import onebit_adam
import scenario
import slimps
from filled import SHAPE, expect, full


def an_optimizer_steps_once_a_round():
    store = slimps.kv.create("dist_sync")
    store.set_optimizer(slimps.optimizer.Test(rescale_grad=2))  # before init, on every worker
    store.init("w", full(1))
    for round_ in (1, 2, 3):
        store.push("w", [full(1), full(2 + store.rank)])  # 3 + 4, never the mean
        expect(store, "w", 1 + round_ * 14)
    store.barrier()
    store.set_optimizer(slimps.optimizer.Test(rescale_grad=-0.5))  # again, after init
    store.push("w", full(2))
    expect(store, "w", 43 - 0.5 * 4)
    store.barrier()
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.5, momentum=0.5))  # of another kind
    for weight in (41 - 0.5 * 4, 39 - 0.5 * (0.5 * 4 + 4)):
        store.push("w", full(2))
        expect(store, "w", weight)
    store.barrier()
    store.set_optimizer(slimps.optimizer.Adam(learning_rate=0.5))  # the momentum is gone
    out = full(0)
    store.pushpull("w", full(2), out=out)
    np.testing.assert_allclose(out, full(36 - 0.5), rtol=1e-5)
    store.close()


def optimizers_as_numpy_has_them():
    store = slimps.kv.create("dist_sync")
    random = np.random.default_rng(7)
    gradients = random.normal(size=(6, 2) + SHAPE).astype(np.float32)
    weights = random.normal(size=SHAPE).astype(np.float32)
    store.init("w", weights)
    store.set_optimizer(
        slimps.optimizer.SGD(
            momentum=0.9,
            wd=0.01,
            rescale_grad=0.5,
            clip_gradient=0.8,
            learning_rate=0.2,
            lr_scheduler=slimps.lr_scheduler.FactorScheduler(step=2, factor=0.5),
        )
    )
    momentum = np.zeros_like(weights)
    expected = weights.copy()
    out = np.empty_like(weights)
    for round_, both in enumerate(gradients):
        gradient = np.clip(0.5 * both.sum(0), -0.8, 0.8) + np.float32(0.01) * expected
        momentum = np.float32(0.9) * momentum + gradient
        expected -= np.float32(0.2 * 0.5 ** (round_ // 2)) * momentum
        store.pushpull("w", both[store.rank], out=out)
        np.testing.assert_allclose(expected, out, rtol=1e-5, atol=1e-6)
    store.close()


def async_steps_at_each_push():
    store = slimps.kv.create("dist_async")
    store.init("w", full(0))
    store.set_optimizer(slimps.optimizer.Test())
    for _ in range(4):
        store.push("w", full(store.rank + 1))
    out = full(-1)
    store.pull("w", out=out)
    assert out[0, 0] >= 4 * (store.rank + 1), out  # at least its own
    store.push("w", full(0))
    answers = queue.Queue()
    out = full(-1)
    store.pull_then("w", out, answers.put)  # the same, answered by a callback
    assert answers.get(timeout=60) is None and out[0, 0] >= 4 * (store.rank + 1), out
    store.wait()
    store.barrier()
    expect(store, "w", 12)
    store.close()


def a_bounded_lead():
    store = slimps.kv.create("dist_ssp", staleness=1)
    assert store.type == "dist_ssp"
    store.init("w", full(0))
    store.set_optimizer(slimps.optimizer.Test())
    out = full(-1)
    for round_ in range(1, 11):
        store.push("w", full(1))
        store.pull("w", out=out)
        # The weights hold this worker's pushes and the other's, who is at most one round ahead or
        # behind.
        assert 2 * round_ - 1 <= out[0, 0] <= 2 * round_ + 2, (round_, out)
    store.wait()
    store.barrier()
    expect(store, "w", 20)
    store.barrier()
    if store.rank == 0:  # a round ahead without a barrier: the bound allows it, rounds would not
        store.push("w", full(1))
        store.pull("w", out=out)
        assert out[0, 0] == 21, out
    store.barrier()
    if store.rank == 1:
        store.push("w", full(1))
    store.wait()
    store.barrier()
    expect(store, "w", 22)
    try:
        store.set_updater(lambda key, gradient, weight: None)
    except slimps.errors.UnimplementedError:
        pass
    else:
        raise AssertionError("the weights are with the servers")
    store.close()


def optimizer_states_are_saved_and_loaded():
    store = slimps.kv.create("dist_sync")
    store.init("w", full(0))
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=1, momentum=0.5))
    store.push("w", full(1))
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "states")
        store.save_optimizer_states(name)
        assert os.listdir(folder) == ["states"]
        store.push("w", full(1))
        store.barrier()
        store.load_optimizer_states(name)
        with open(name, "r+b") as saved:
            saved.seek(20)
            saved.write(b"\xff\xff\xff\xff")
        try:
            store.load_optimizer_states(name)
        except slimps.Error:
            pass
        else:
            raise AssertionError("damaged bytes were taken")
    # The momentum is 2 again, as after the first round: 0.5 * 2 + 2.
    before = full(0)
    store.pull("w", out=before)
    store.push("w", full(1))
    after = full(0)
    store.pull("w", out=after)
    np.testing.assert_array_equal(before - after, full(3))
    store.barrier()
    store.close()


def by_onebit_adam(out, codec, freeze_after=5):
    """Opens a store whose servers step "w", which begins as `out`. Also returns the reference."""
    rate, betas, epsilon = 0.01, (0.9, 0.99), 1e-6
    store = slimps.kv.create(
        "dist_sync", compression=codec, pull_compression=codec, threshold=0, pull_threshold=0
    )
    store.init("w", out)
    store.set_optimizer(
        slimps.optimizer.create(
            "onebit_adam",
            learning_rate=rate,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=epsilon,
            freeze_after=freeze_after,
            rescale_grad=0.5,
        )
    )
    compress = {"1bit": onebit_adam.one_bit, "none": onebit_adam.uncompressed}[codec]
    reference = onebit_adam.OneBitAdam(out, 2, freeze_after, compress, rate, betas, epsilon)
    return store, reference


def onebit_adam_as_its_paper_has_it():
    size = 5000
    random = np.random.default_rng(3)
    out = random.normal(size=size).astype(np.float32)
    store, reference = by_onebit_adam(out, "1bit")
    for t in range(1, 16):
        gradients = (random.normal(size=(2, size)) + np.sin(np.arange(size))).astype(np.float32)
        store.push("w", gradients[store.rank])
        store.pull("w", out=out)
        expected = reference.step(gradients)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5, err_msg="round %d" % t)
    store.close()


def onebit_adam_with_rows_that_come_late(codec):
    """Worker 1 alone has gradients of the rows 30 to 39, from round 9 on; nobody has any of those
    that follow. The variance is frozen after round 5.
    """
    shape, rate = (60, 100), 0.01
    random = np.random.default_rng(3)
    start = random.normal(size=shape).astype(np.float32)
    out = start.copy()
    store, reference = by_onebit_adam(out.ravel(), codec)
    for t in range(1, 21):
        gradients = random.normal(size=(2,) + shape).astype(np.float32)
        gradients[0, 30:] = 0
        gradients[1, 40 if t >= 9 else 30 :] = 0
        before = out.copy()
        store.push("w", gradients[store.rank].ravel())
        store.pull("w", out=out.ravel())
        why = "round %d" % t
        assert np.array_equal(out[40:], start[40:]), (why, np.abs(out[40:] - start[40:]).max())
        moved = np.abs(out - before)[30:40]
        if t < 9:
            assert moved.max() == 0, (why, moved.max())
        else:
            assert moved.max() < 5 * rate, (why, moved.max())
            assert moved.mean() > rate / 50, (why, moved.mean())
        expected = reference.step(gradients.reshape(2, -1)).reshape(shape)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5, err_msg=why)
    store.close()


def onebit_adam_with_rows_that_come_late_uncompressed():
    onebit_adam_with_rows_that_come_late("none")


def onebit_adam_with_rows_that_come_late_in_one_bit():
    onebit_adam_with_rows_that_come_late("1bit")


def torch_tensors():
    import torch

    store = slimps.kv.create("dist_sync")
    parameter = torch.nn.Parameter(torch.full(SHAPE, 2.0))
    store.init("w", parameter)
    store.set_optimizer(torch.optim.SGD([parameter], lr=0.5, momentum=0.9))
    reference = torch.nn.Parameter(torch.full(SHAPE, 2.0))
    stepped = torch.optim.SGD([reference], lr=0.5, momentum=0.9)
    for round_ in range(3):
        parameter.grad = torch.full(SHAPE, float(store.rank + round_))
        store.push("w", parameter.grad)
        store.pull("w", out=parameter)  # in place, though it requires a gradient
        reference.grad = torch.full(SHAPE, 2.0 * round_ + 1)
        stepped.step()
        assert torch.allclose(reference, parameter, rtol=1e-6), (reference, parameter)
    turned = torch.zeros(SHAPE[::-1]).t()  # not contiguous
    store.pull("w", out=[turned, torch.zeros(SHAPE, dtype=torch.float16)])
    assert torch.equal(turned, parameter.detach())
    store.close()


if __name__ == "__main__":
    scenario.play(globals())
