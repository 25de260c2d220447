# SPDX-License-Identifier: Apache-2.0
"""Which values count as arrays, which are copied and which are not."""

import array

import numpy as np
import pytest
import torch

import slimps
from slimps import _arrays, _said_once, kv, native


def shares_memory(one, other):
    return np.shares_memory(one, other)


def test_packed_float32_is_not_copied():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert shares_memory(values, _arrays.packed(_arrays.as_numpy(values, "a")))
    tensor = torch.arange(6.0, requires_grad=True)
    assert shares_memory(tensor.detach().numpy(), _arrays.packed(_arrays.as_numpy(tensor, "a")))
    plain = array.array("f", [1, 2, 3])
    assert shares_memory(
        np.frombuffer(plain, np.float32), _arrays.packed(_arrays.as_numpy(plain, "a"))
    )


def test_other_arrays_become_packed_float32():
    for values in (
        np.arange(6, dtype=np.float16),
        np.arange(12, dtype=np.float32)[::2],
        np.asfortranarray(np.ones((2, 3), np.float32)),
        torch.ones(3, 2).t(),
        torch.ones(2).half(),
    ):
        made = _arrays.packed(_arrays.as_numpy(values, "a"))
        assert made.dtype == np.float32 and made.flags.c_contiguous
        np.testing.assert_array_equal(np.asarray(values, np.float32), made)


class DlpackOnly:
    """An array of another library."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def test_dlpack_is_read_without_copying():
    values = np.arange(3, dtype=np.float32)
    assert shares_memory(values, _arrays.as_numpy(DlpackOnly(values), "a"))


@pytest.mark.parametrize(
    "value, complaint",
    [
        (np.zeros(2, np.int32), "expected float32, float16 or float64, got int32"),
        (np.zeros(2, ">f4"), "expected float32, float16 or float64, got >f4"),
        (torch.zeros(2, dtype=torch.int64), "expected float32, float16 or float64, got int64"),
        (torch.zeros(2, dtype=torch.bfloat16), "expected float32 or float16, got torch.bfloat16"),
        (torch.zeros(2).to_sparse(), "expected a dense tensor, got layout torch.sparse_coo"),
        (
            torch.zeros(2, device="meta"),
            "expected a tensor on the CPU or a CUDA device, got one on meta",
        ),
        (
            1.5,
            "expected a numpy array, a torch tensor or another array of float32 or float16, got "
            "float",
        ),
        ({}, "got dict"),
        (None, "got NoneType"),
    ],
)
def test_anything_else_is_refused(value, complaint):
    with pytest.raises(slimps.InvalidArgumentError) as raised:
        _arrays.as_numpy(value, "push of key 3")
    assert str(raised.value).startswith("push of key 3: ")
    assert complaint in str(raised.value)


@pytest.fixture(name="nothing_said")
def nothing_said_before(monkeypatch):
    monkeypatch.setattr(_said_once, "_said", set())


@pytest.mark.parametrize("make", [lambda values: values, torch.from_numpy], ids=["numpy", "torch"])
def test_float64_is_converted_both_ways_with_one_warning(make, nothing_said):
    del nothing_said
    weights = make(np.full((2, 3), 1 / 3))
    with slimps.kv.create("local") as store:
        with pytest.warns(UserWarning, match="init of key 'w': float64 is converted") as warned:
            store.init("w", weights)
            store.set_optimizer(slimps.optimizer.Test())
            store.push("w", weights)
            store.push("w", slimps.RowSparse([1], np.full((1, 3), 1.0), (2, 3)))
            store.pull("w", out=weights)
            store.pushpull("w", make(np.zeros((2, 3))), out=weights)
        assert len(warned) == 1
        assert warned[0].filename == __file__, "the user's line is shown"
    third = np.float32(1 / 3)
    np.testing.assert_array_equal(
        np.float64([[third + third] * 3, [third + third + np.float32(1)] * 3]), np.asarray(weights)
    )


def test_which_arrays_overlap():
    whole = np.zeros(12, np.float32)
    apart = [
        whole[4:8],
        whole[:4],
        np.zeros(0, np.float32),
        whole[8:],
        np.zeros((2, 2), np.float32),
    ]
    assert native.are_apart([]) and native.are_apart(apart)
    for overlapping in (
        whole,
        whole[3:5],
        whole[5:6],
        whole[11:],
    ):  # around, across, inside, at the end
        assert not native.are_apart(apart + [overlapping])
    assert not native.are_apart([whole, whole[1:2], whole[10:11]])


class Subclass(np.ndarray):
    pass


def test_what_is_taken_as_it_stands():
    assert _arrays.is_packed(np.zeros((2, 3), np.float32), (2, 3))
    assert _arrays.is_packed(np.zeros((0, 3), np.float32), (0, 3))
    for other in (
        np.zeros((3, 2), np.float32),
        np.zeros(6, np.float32),
        np.zeros((2, 3), np.float16),
        np.zeros((2, 3), ">f4"),
        np.zeros((3, 2), np.float32).T,
        np.zeros((2, 6), np.float32)[:, ::2],
        np.zeros((2, 3), np.float32).view(Subclass),
        [[0.0] * 3] * 2,
    ):
        assert not _arrays.is_packed(other, (2, 3))
    assert not _arrays.is_packed(np.zeros((), np.float32), ())


def test_outputs_are_filled_in_place():
    direct, half, gaps = np.zeros(3, np.float32), np.zeros(3, np.float16), np.zeros(6, np.float32)
    outputs = _arrays.Outputs([half, direct, gaps[::2]], (3,), "pull", "w")
    assert outputs.buffer is direct
    outputs.buffer[:] = [1, 1 / 3, 3]
    outputs.finish()
    np.testing.assert_array_equal(np.array([1, 1 / 3, 3], np.float16), half)
    np.testing.assert_array_equal(np.array([1, 0, np.float32(1 / 3), 0, 3, 0], np.float32), gaps)


def test_outputs_that_cannot_be_written_are_refused():
    read_only = np.zeros(3, np.float32)
    read_only.flags.writeable = False
    for out, complaint in (
        (read_only, "read-only"),
        (np.zeros(4, np.float32), r"expected shape \(3,\).*got \(4,\)"),
        (b"123", "expected float32, float16 or float64, got uint8"),
    ):
        with pytest.raises(ValueError, match="pull of key 'w': .*" + complaint):
            _arrays.Outputs([out], (3,), "pull", "w")


def overlapping(*slices):
    memory = np.zeros(10, np.float32)
    outputs = [_arrays.Outputs([memory[part]], memory[part].shape, "pull", "w") for part in slices]
    before = [output.buffer for output in outputs]
    _arrays.keep_apart(outputs)
    return [output.buffer is not buffer for output, buffer in zip(outputs, before)]


def test_only_outputs_that_overlap_get_memory_of_their_own():
    assert overlapping(slice(0, 5), slice(5, 10)) == [False, False]
    assert overlapping(slice(0, 6), slice(5, 10)) == [True, True]
    assert overlapping(slice(5, 10), slice(0, 3), slice(5, 10)) == [True, False, True]
    assert overlapping(slice(0, 10), slice(1, 2), slice(8, 9)) == [True, True, True]
    assert overlapping(slice(4, None, -1), slice(0, 5), slice(5, 10)) == [True, True, False]


class FillsByTurns:
    """Replaces the library's store. It pulls the n-th key as n, all keys at once."""

    def init(self, keys, shapes, values, halves, layers):
        pass

    def close(self):
        pass

    def abort(self, why):
        pass

    rank = 0

    def pull(self, keys, outs, priority):
        assert not any(
            np.shares_memory(out, other) for i, out in enumerate(outs) for other in outs[:i]
        )
        for number, out in reversed(list(enumerate(outs, 1))):
            out[...] = number


def test_one_array_for_several_keys_holds_the_last_ones_value():
    out = np.zeros(3, np.float32)
    with kv.KVStore(FillsByTurns(), "dist_sync", native.Options()) as store:
        store.init(["a", "b"], [out, out])
        store.pull(["a", "b"], out=[out, [out, out]])
        np.testing.assert_array_equal(np.full(3, 2, np.float32), out)
        store.pull(["b", "a"], out=[out[::-1], out])
        np.testing.assert_array_equal(np.full(3, 2, np.float32), out)
