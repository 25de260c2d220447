# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of kvstore_test.py run: scenarios.py NAME.

What they push is what they can pull. A failed assertion ends the worker, and the test.
"""

import os
import re
import sys

import numpy as np
import scenario
import slimps
from eventually import eventually
from filled import SHAPE, expect, full


def init_takes_rank_0s_value():
    store = slimps.kv.create("dist_sync")
    store.init("w", full(5 + store.rank))
    expect(store, "w", 5)
    out = full(0)
    store.broadcast("b", full(7 * (store.rank + 1)), out)
    np.testing.assert_array_equal(full(7), out)
    # Rows, and a list of the devices' arrays. Rank 0's first array counts on all workers.
    rows = slimps.RowSparse([store.rank], full(store.rank + 1, shape=(1, 4)), SHAPE)
    outs = [slimps.RowSparse.empty(SHAPE), [full(0), full(0)]]
    store.broadcast(["rows", "devices"], [rows, [full(3 + store.rank), full(9)]], out=outs)
    np.testing.assert_array_equal(
        outs[0].dense(), np.concatenate([full(1, shape=(1, 4)), full(0, shape=(2, 4))])
    )
    for out in outs[1]:
        np.testing.assert_array_equal(full(3), out)
    store.close()


def sums_replace_the_value():
    store = slimps.kv.create("dist_sync")
    assert (store.type, store.num_workers) == ("dist_sync", 2) and store.is_capable("optimizer")
    store.init([3, 5], [full(1), full(2)])
    for round_ in (1, 2):
        store.push(3, full(store.rank + round_))  # 1 and 2, then 2 and 3
        store.push(5, [full(1), full(10 * store.rank)])  # devices: 1 and 11
        expect(store, 3, 2 * round_ + 1)
        expect(store, 5, 12)
    store.push([3, 5, 3], [full(1), full(2), full(4)])  # a repeated key is summed in one round
    outs = [full(0), [full(0), full(0)]]
    store.pull([3, 5], out=outs)
    np.testing.assert_array_equal(full(10), outs[0])
    np.testing.assert_array_equal(full(4), outs[1][0])
    np.testing.assert_array_equal(full(4), outs[1][1])
    store.close()


def one_array_at_several_places():
    store = slimps.kv.create("dist_sync")
    same = full(store.rank + 1)
    store.init(["a", "b"], [same, same])
    expect(store, "b", 1)
    store.push(["a", "b"], [[same, same], same])  # 2 + 4, 1 + 2
    out = full(0)
    store.pull(["a", "b"], out=[out, [full(0), out]])  # the later key's value stays
    np.testing.assert_array_equal(full(3), out)
    store.pull(["b", "a"], out=[out, [out, out]])
    np.testing.assert_array_equal(full(6), out)
    store.close()


def pushpull_reads_before_it_writes():
    store = slimps.kv.create("dist_sync")
    store.init(["a", "b"], [full(0), full(0)])
    shared = full(1)
    other = full(0)
    store.pushpull(["a", "b"], [shared, shared], out=[shared, other])
    np.testing.assert_array_equal(full(2), shared)
    np.testing.assert_array_equal(full(2), other)
    values = [full(3), [full(1), full(1)]]
    store.pushpull(["a", "b"], values)  # into the values
    np.testing.assert_array_equal(full(6), values[0])
    for device in values[1]:
        np.testing.assert_array_equal(full(4), device)
    # `small` is a part of `big`. Copying `big` takes longer than the round of `small`.
    big = np.ones(2**23, np.float32)
    small = big[-4:]
    store.init(["small", "big"], [small, big])
    out = np.zeros_like(big)
    store.pushpull(["small", "big"], [small, big], out=[small, out])
    np.testing.assert_array_equal(np.full_like(out, 2), out)
    np.testing.assert_array_equal(out[-4:], small)
    store.close()


def half_precision():
    store = slimps.kv.create("dist_sync")
    store.init(["h", "f"], [full(1 / 3, np.float16), full(1 / 3)])
    half, single = full(0, np.float16), full(0)
    store.pull(["h", "f"], out=[half, single])
    np.testing.assert_array_equal(full(1 / 3, np.float16), half)
    np.testing.assert_array_equal(full(1 / 3), single)
    store.push("h", [full(1 / 3, np.float16), full(2048, np.float16)])  # summed in float32
    store.pull("h", out=single)
    total = 2 * (np.float32(np.float16(1 / 3)) + np.float32(2048))
    # Rounded once, when pulled.
    np.testing.assert_array_equal(full(np.float32(np.float16(total))), single)
    store.pull("f", out=half)
    np.testing.assert_array_equal(full(1 / 3, np.float16), half)
    store.close()


def quantized(kind, threshold, residual, gradient):
    """Returns what MXNet's compression sends, and the residual that stays."""
    x = residual + gradient
    if kind == "1bit":
        sent = np.where(x > threshold, 1, -1).astype(np.float32)
    else:
        sent = (
            np.where(x >= threshold, threshold, 0) + np.where(x <= -threshold, -threshold, 0)
        ).astype(np.float32)
    return sent, x - sent


def compressed(kind, threshold):
    store = slimps.kv.create("dist_sync")
    store.set_gradient_compression({"type": kind, "threshold": threshold})
    store.init("w", full(0.125))
    expect(store, "w", 0.125)  # init is never compressed
    random = np.random.default_rng(3)
    residuals = [np.zeros(SHAPE, np.float32) for _ in range(2)]
    for _ in range(6):
        # Includes 0 and the threshold.
        both = random.integers(-6, 7, size=(2,) + SHAPE).astype(np.float32) / 4
        expected = np.zeros(SHAPE, np.float32)
        for rank in range(2):
            sent, residuals[rank] = quantized(kind, threshold, residuals[rank], both[rank])
            expected += sent
        out = full(0)
        store.pushpull("w", both[store.rank], out=out)
        np.testing.assert_array_equal(expected, out)
    try:
        store.push("w", full(1, np.float16))
    except slimps.InvalidArgumentError as error:
        assert "expected float32, got float16: gradient compression is on" in str(error)
    else:
        raise AssertionError("float16 was pushed")
    store.close()


def compressed_1bit():
    compressed("1bit", 0)


def compressed_2bit():
    compressed("2bit", 0.5)


def a_policy_decides_for_each_key():
    store = slimps.kv.create("dist_sync")
    try:
        store.set_policy("lgrec")
        raise AssertionError("there is no such policy")
    except slimps.InvalidArgumentError as error:
        assert "did you mean 'lgreco'?" in str(error), error
    policy = "lgreco:codec=topk:ratio=0.05,every=8"
    store.set_policy(policy)
    shapes = {"few": (80, 50), "even": (80, 50), "tiny": (3,)}
    store.init(list(shapes), [np.zeros(shape, np.float32) for shape in shapes.values()])
    first = store.decision()
    assert first["policy"] == policy and "nothing is measured yet" in first["reason"], first
    assert first["codecs"] == {"few": "topk:ratio=0.05", "even": "topk:ratio=0.05", "tiny": "none"}
    random = np.random.default_rng(store.rank)
    for _ in range(20):
        for key, shape in shapes.items():
            gradient = random.standard_normal(shape).astype(np.float32)
            store.push(key, np.sign(gradient) if key == "even" else gradient**5)
        for key, shape in shapes.items():
            store.pull(key, out=np.zeros(shape, np.float32))
    now = store.decision()
    assert now["from_round"] > 8 and "times fewer" in now["reason"], now
    ratios = {key: float(now["codecs"][key].split("ratio=")[1]) for key in ("few", "even")}
    # What a kept element saves is the same everywhere in "even", and much more at the top of "few".
    assert ratios["few"] != ratios["even"], now
    assert "error" in now["reasons"]["few"] and now["codecs"]["tiny"] == "none", now
    try:
        store.set_policy("threshold")
        raise AssertionError("a policy was set after a push")
    except slimps.FailedPreconditionError as error:
        assert "before the first push" in str(error), error
    store.close()


def rows_are_summed_and_pulled():
    store = slimps.kv.create("dist_sync")
    store.init("e", np.ones((5, 2), np.float32))
    store.set_optimizer(slimps.optimizer.Test())
    # Worker 0 names row 3 twice, and worker 1 names rows 3 and 0. Only these rows change.
    rows = [3, 3] if store.rank == 0 else [3, 0]
    store.push("e", slimps.RowSparse(rows, np.full((2, 2), 1.0, np.float32), (5, 2)))
    out, half = slimps.RowSparse.empty((5, 2)), slimps.RowSparse.empty((5, 2), np.float16)
    store.row_sparse_pull("e", out=[out, half], row_ids=np.array([4, 3, 3, 0]))
    assert out.indices.tolist() == [0, 3, 4] and half.rows.dtype == np.float16, out
    np.testing.assert_array_equal(out.rows, [[2, 2], [4, 4], [1, 1]])
    np.testing.assert_array_equal(half.rows, out.rows)
    store.row_sparse_pull("e", out=out, row_ids=[])
    assert out.indices.size == 0 and out.rows.shape == (0, 2)
    # Several devices, and a push without any row, which counts as a round.
    two = slimps.RowSparse([1], np.ones((1, 2), np.float32), (5, 2))
    store.push("e", [two, two] if store.rank == 0 else slimps.RowSparse.empty((5, 2)))
    dense = np.zeros((5, 2), np.float32)
    store.pull("e", out=[dense, out])  # a RowSparse is left as it is
    assert out.indices.size == 0
    np.testing.assert_array_equal(dense[:, 0], [2, 3, 1, 4, 1])
    for wrong, message in (
        (lambda: store.row_sparse_pull("e", out=dense, row_ids=[1]), "expected a RowSparse"),
        (lambda: store.row_sparse_pull("e", out=out, row_ids=[5]), "got row 5"),
        (lambda: store.row_sparse_pull("e", out=out, row_ids=[0.5]), "ints"),
        (lambda: store.row_sparse_pull("e", out=out), "row_ids"),
        (lambda: store.pull("e", out=out, ignore_sparse=False), "dense"),
        (
            lambda: store.push("e", slimps.RowSparse([], np.zeros((0, 3), np.float32), (5, 3))),
            "shape",
        ),
        (lambda: store.push("e", [two, dense]), "RowSparse of one shape"),
        (lambda: slimps.RowSparse([5], np.zeros((1, 2), np.float32), (5, 2)), "from 0 to 4, got 5"),
        (lambda: slimps.RowSparse([1], np.zeros((2, 2), np.float32), (5, 2)), "rows of shape"),
    ):
        try:
            wrong()
        except slimps.InvalidArgumentError as error:
            assert message in str(error), error
        else:
            raise AssertionError(message)
    np.testing.assert_array_equal(two.dense()[1], [1, 1])
    store.barrier()
    store.close()


def a_worker_without_gradients():
    store = slimps.kv.create("dist_sync")
    store.init(["a", "b"], [full(1), full(1)])
    if store.rank == 0:
        store.push(["a", "b"], [full(5), full(6)])
    else:
        store.push("a", full(2))
        store.push_nothing("b")
    expect(store, "a", 7)
    expect(store, "b", 6)
    store.barrier()
    if store.rank == 1:
        store.leave()  # its data is used up
    else:
        store.push("a", full(3))
    if store.rank == 0:
        expect(store, "a", 3)
    store.close()


def an_exception_tells_the_others():
    """Rank 1 fails. Rank 0 waits for rank 1's round, and learns why it does not come."""
    store = slimps.kv.create("dist_sync")
    store.init("w", full(1))
    if store.rank == 1:
        store.push("w", full(1))
        raise ArithmeticError("no more data")
    try:
        store.push("w", full(1))
        store.push("w", full(1))
        store.pull("w", out=full(0))
    except slimps.Error as error:
        assert "worker 1: ArithmeticError: no more data" in str(error), error
        print("told")
    else:
        raise AssertionError("the round was complete")


def an_exit_within_a_store_tells_the_others():
    """As an_exception_tells_the_others, but by sys.exit."""
    store = slimps.kv.create("dist_sync")
    store.init("w", full(1))
    if store.rank == 1:
        with store:
            sys.exit("bad data")
    try:
        store.push("w", full(1))
        store.pull("w", out=full(0))
    except slimps.Error as error:
        assert "worker 1: SystemExit: bad data" in str(error), error
        print("told")
    else:
        raise AssertionError("the round was complete")


def a_worker_that_ends_early_tells_the_others():
    """Rank 1 ends after one round. Rank 0 learns it at once, long before its timeout."""
    store = slimps.kv.create("dist_sync", timeout_s=3600)
    store.init("w", full(1))
    store.pushpull("w", full(1), full(0))
    if store.rank == 1:
        return
    try:
        store.pushpull("w", full(1), full(0))
    except slimps.FailedPreconditionError as error:
        for part in (
            "key w partition 0: round 2 waits for the push of worker 1",
            "has ended after its round 1",
            "leave()",
            "skip_step()",
        ):
            assert part in str(error), error
    else:
        raise AssertionError("the round was complete")


def what_is_not_in_time_names_the_others_line(over):
    """Rank 0 waits for rank 1, which waits for a file."""
    store = slimps.kv.create("dist_sync", timeout_s=15)
    store.init("w", full(1))
    if store.rank == 0:
        try:
            store.pushpull("w", full(1), full(0))
        except slimps.DeadlineExceededError as error:
            for part in (
                "round 1 lacks the push of worker 1",
                "timeout_s is 15",
                r"round 1 waits [\d.]+ s for worker 1: s:w",
                r"worker 1: last call init [\d.]+ s ago, at eventually.py:\d+",
            ):
                assert re.search(part, str(error)), error
        open(over, "w").close()
        store.abort("it has seen enough")
        return
    assert eventually(lambda: os.path.exists(over))
    store.abort("it has seen enough")


def a_generator():
    yield "never run"


if __name__ == "__main__":
    scenario.play(globals())
