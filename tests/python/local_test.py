# SPDX-License-Identifier: Apache-2.0
"""Stores of this process alone: MXNet's `local` and `device`, without a job."""

import os
import stat

import numpy as np
import pytest
import slimps


@pytest.fixture
def store():
    with slimps.kv.create("local") as made:
        yield made


def pulled(store, key, shape):
    out = np.full(shape, np.nan, dtype=np.float32)
    store.pull(key, out=out)
    return out


def test_a_push_replaces_the_value_by_the_sum_over_devices(store):
    store.init("w", np.ones((2, 3), np.float32))
    assert store.type == "local" and store.rank == 0 and store.num_workers == 1
    store.push("w", [np.full((2, 3), 2.0, np.float32), np.full((2, 3), 5.0, np.float16)])
    assert (pulled(store, "w", (2, 3)) == 7).all()
    store.push("w", np.full((2, 3), 3.0, np.float32))
    assert (pulled(store, "w", (2, 3)) == 3).all()


def test_an_optimizer_steps_at_each_push(store):
    store.init([4, 7], [np.ones(3, np.float32), np.zeros(2, np.float32)])
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.5))
    store.push([4, 7], [[np.ones(3, np.float32), np.ones(3, np.float32)], np.ones(2, np.float32)])
    np.testing.assert_array_equal(pulled(store, 4, 3), np.zeros(3))
    np.testing.assert_array_equal(pulled(store, 7, 2), np.full(2, -0.5))


def test_nothing_is_pushed_where_one_key_of_a_list_is_refused(store):
    store.init(["a", "b"], [np.zeros(2, np.float32)] * 2)
    for wrong in ([], np.zeros(3, np.float32), np.zeros(2, np.int64)):
        with pytest.raises(slimps.errors.InvalidArgumentError, match="key 'b'"):
            store.push(["a", "b"], [np.ones(2, np.float32), wrong])
    with pytest.raises(slimps.errors.NotFoundError):
        store.push_nothing(["a", "c"])
    assert (pulled(store, "a", 2) == 0).all()


def test_rows_of_a_local_store(store):
    store.init("e", np.arange(8, dtype=np.float32).reshape(4, 2))
    out = slimps.RowSparse.empty((4, 2))
    store.row_sparse_pull("e", out=out, row_ids=[3, 1, 3])
    np.testing.assert_array_equal([1, 3], out.indices)
    np.testing.assert_array_equal([[2, 3], [6, 7]], out.rows)
    store.pull("e", out=out)  # left as it is
    assert out.indices.size == 2
    store.pull("e", out=out, ignore_sparse=False)
    np.testing.assert_array_equal(np.arange(8).reshape(4, 2), out.dense())
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=1, wd=0.5))
    store.push("e", slimps.RowSparse([2, 2], np.ones((2, 2), np.float32), (4, 2)))
    np.testing.assert_array_equal([[0, 1], [2, 3], [0, 0.5], [6, 7]], pulled(store, "e", (4, 2)))
    other = slimps.RowSparse.empty((4, 2))
    with pytest.raises(slimps.errors.InvalidArgumentError):
        store.row_sparse_pull(["e", "e"], out=[other, other], row_ids=[[0], [4]])
    assert other.indices.size == 0


def test_row_ids_one_for_each_key_or_out(store):
    store.init(
        ["d", "e"], [np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(3, dtype=np.float32)]
    )

    def rows_pulled(row_ids):
        outs = [
            [slimps.RowSparse.empty((4, 2)), slimps.RowSparse.empty((4, 2))],
            [slimps.RowSparse.empty((3,))],
        ]
        store.row_sparse_pull(["d", "e"], out=outs, row_ids=row_ids)
        return [[one.indices.tolist() for one in of_key] for of_key in outs]

    assert rows_pulled([2, 1]) == rows_pulled([[2, 1]]) == [[[1, 2], [1, 2]], [[1, 2]]]
    assert rows_pulled([[3], [0, 2]]) == [[[3], [3]], [[0, 2]]], "one for each key"
    assert rows_pulled([[[3], np.array([1, 0])], [[2]]]) == [
        [[3], [0, 1]],
        [[2]],
    ], "for each key one for each out"
    assert rows_pulled([[3], [1], [2]]) == [[[3], [1]], [[2]]], "one for each out"
    for wrong, complaint in (
        ([[3]] * 4, "expected 1, or 2, one for each key, or 3, one for each out, got 4"),
        ([[[3], [1], [0]], [2]], "expected 2, one for each out of a key, got 3"),
    ):
        with pytest.raises(slimps.InvalidArgumentError, match=complaint):
            rows_pulled(wrong)
    one, two = slimps.RowSparse.empty((4, 2)), slimps.RowSparse.empty((4, 2))
    store.row_sparse_pull(
        "d", out=[one, two], row_ids=[np.array([[0, 1], [3, 1]], np.float16), np.array([2.0])]
    )
    assert one.indices.tolist() == [0, 1, 3] and two.indices.tolist() == [
        2
    ], "MXNet's arrays are float32 by default"
    inexact = (np.array([2048], np.float16), np.array([2.0**24], np.float32))
    for wrong in (np.array([0.5]), np.array([np.nan]), np.array([np.inf]), 2, *inexact):
        with pytest.raises(
            slimps.InvalidArgumentError, match="row_ids of key 'd': expected an array of ints"
        ):
            store.row_sparse_pull("d", out=one, row_ids=wrong)


def test_a_key_is_initialised_from_rows_or_by_devices(store):
    dense = np.array([[0, 0], [1, 2], [0, 0], [3, 4]], np.float32)
    rows = slimps.RowSparse.from_dense(dense)
    assert rows.indices.tolist() == [1, 3]
    store.init("rows", rows)
    np.testing.assert_array_equal(dense, pulled(store, "rows", (4, 2)))
    store.init("half", slimps.RowSparse([2], np.full((1, 2), 1 / 3, np.float16), (4, 2)))
    np.testing.assert_array_equal(np.full(2, 1 / 3, np.float16), pulled(store, "half", (4, 2))[2])
    store.init(["one", "two"], [[dense], [dense + 1, dense + 2]])  # the first device's counts
    np.testing.assert_array_equal(dense + 1, pulled(store, "two", (4, 2)))
    out, sparse, other = (
        np.zeros((4, 2), np.float32),
        slimps.RowSparse.empty((4, 2)),
        slimps.RowSparse.empty((4, 2)),
    )
    store.broadcast("b", [dense, dense], out=[out, sparse])
    store.broadcast("c", rows, out=other)
    for pulled_rows in (sparse, other):
        np.testing.assert_array_equal(dense, pulled_rows.dense())
        assert pulled_rows.indices.size == 4, "all rows"
    np.testing.assert_array_equal(dense, out)
    for wrong, complaint in (
        ([], "expected at least one array, got an empty list"),
        ([dense, dense.T], r"expected shape \(4, 2\), on all devices, got \(2, 4\)"),
        ([dense, slimps.RowSparse.empty((5, 2))], r".*got \(5, 2\)"),
    ):
        with pytest.raises(slimps.InvalidArgumentError, match="init of key 'x': " + complaint):
            store.init("x", wrong)
    store.init("x", dense)


@pytest.mark.parametrize(
    "name, compresses",
    [
        ("local_update_cpu", False),
        ("local_allreduce_cpu", False),
        ("local_allreduce_device", True),
        ("LOCAL", False),
    ],
)
def test_mxnets_other_names(name, compresses):
    with slimps.kv.create(name) as store:
        assert store.type == name and store.is_local
        if compresses:
            store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        store.set_optimizer(slimps.optimizer.create("Test", rescale_grad=2))
        store.init(3, np.zeros(2, np.float32))
        store.push(3, np.ones(2, np.float32))
        assert pulled(store, 3, 2).tolist() == ([1.0] * 2 if compresses else [2.0] * 2)
        store._barrier()  # the name in MXNet's scripts
    assert (
        slimps.optimizer.Test(2, learning_rate=-3).rescale_grad == 6
    ), "MXNet 2.0 subtracts by the rate"
    with pytest.raises(
        slimps.InvalidArgumentError, match="expected adam, adamw, onebit_adam, sgd, test, got 'ada'"
    ):
        slimps.optimizer.create("ada")


def test_errors_are_those_of_distributed_stores(store):
    store.init("w", np.zeros(2, np.float32))
    with pytest.raises(slimps.errors.AlreadyExistsError):
        store.init("w", np.zeros(2, np.float32))
    with pytest.raises(slimps.errors.InvalidArgumentError, match="shape"):
        store.push("w", [np.zeros(2, np.float32), np.zeros(3, np.float32)])
    with pytest.raises(slimps.errors.InvalidArgumentError, match="nan"):
        store.push("w", np.array([0, np.nan], np.float32))
    with pytest.raises(KeyError):
        store.pull("v", out=np.zeros(2, np.float32))
    with pytest.raises(slimps.errors.Error, match="compression"):
        store.set_gradient_compression({"type": "2bit"})


def test_device_stores_compress_what_each_device_pushes():
    with slimps.kv.create("device") as store:
        store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        store.init("w", np.zeros(3, np.float32))
        store.push(
            "w", [np.array([0.5, -0.7, 0.3], np.float32), np.array([0.5, 0.1, 0.3], np.float32)]
        )
        np.testing.assert_array_equal(pulled(store, "w", 3), np.array([1.0, -0.5, 0.0], np.float32))
        # Each device has its own residual: 0.3 + 0.3 is sent by both.
        store.push("w", [np.array([0, 0, 0.3], np.float32)] * 2)
        np.testing.assert_array_equal(pulled(store, "w", 3)[2:], np.array([1.0], np.float32))


def test_distributed_options_are_checked_here_too():
    with pytest.raises(slimps.errors.InvalidArgumentError, match="staleness"):
        slimps.kv.create("local", staleness=-1)


def test_optimizer_states_are_saved_and_loaded(tmp_path):
    path, weights = str(tmp_path / "states"), []
    for begin, steps in ((0, 2), (2, 4), (0, 4)):
        with slimps.kv.create("local") as store:
            store.init(3, weights[0] if begin else np.ones(3, np.float32))
            store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.5, momentum=0.9))
            if begin:
                store.load_optimizer_states(path)
            for step in range(begin, steps):
                store.push(3, np.full(3, step + 1, np.float32))
            weights.append(pulled(store, 3, 3))
            if steps == 2:
                store.save_optimizer_states(path)
    np.testing.assert_array_equal(weights[1], weights[2])  # in two halves, and in one


def test_optimizer_states_are_on_the_disk_when_they_are_saved(store, tmp_path, monkeypatch):
    store.init("w", np.ones(3, np.float32))
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    done = []
    sync, replace = os.fsync, os.replace
    kinds = {True: "folder", False: "file"}
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: (done.append(kinds[stat.S_ISDIR(os.fstat(file).st_mode)]), sync(file)),
    )
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("name"), replace(*names)))
    store.save_optimizer_states(str(tmp_path / "states"))
    assert done == ["file", "name", "folder"]


def test_a_key_without_elements_is_refused(store):
    with pytest.raises(
        slimps.InvalidArgumentError,
        match=r"init of key 'e': expected a shape with elements, got \(0, 3\)",
    ):
        store.init("e", np.zeros((0, 3), np.float32))
