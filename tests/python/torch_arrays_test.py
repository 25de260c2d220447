# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch are arrays to a store, as numpy's are."""

import jobs
import numpy as np
import pytest
import slimps
import torch
from slimps import _arrays, _said_once


def packed(values):
    return _arrays.packed(_arrays.as_numpy(values, "a"))


def test_packed_float32_is_not_copied():
    tensor = torch.arange(6.0, requires_grad=True)
    assert np.shares_memory(tensor.detach().numpy(), packed(tensor))


@pytest.mark.parametrize("tensor", [torch.ones(3, 2).t(), torch.ones(2).half()])
def test_other_tensors_become_packed_float32(tensor):
    made = packed(tensor)
    assert made.dtype == np.float32 and made.flags.c_contiguous
    np.testing.assert_array_equal(tensor.float().numpy(), made)


@pytest.mark.parametrize(
    "tensor, complaint",
    [
        (torch.zeros(2, dtype=torch.int64), "expected float32, float16 or float64, got int64"),
        (torch.zeros(2, dtype=torch.bfloat16), "expected float32 or float16, got torch.bfloat16"),
        (torch.zeros(2).to_sparse(), "expected a dense tensor, got layout torch.sparse_coo"),
        (
            torch.zeros(2, device="meta"),
            "expected a tensor on the CPU or a CUDA device, got one on meta",
        ),
    ],
)
def test_other_types_are_refused(tensor, complaint):
    with pytest.raises(slimps.InvalidArgumentError, match="push of key 3: " + complaint):
        _arrays.as_numpy(tensor, "push of key 3")


def test_float64_is_converted_both_ways_with_one_warning(monkeypatch):
    monkeypatch.setattr(_said_once, "_said", set())
    weights = torch.full((2, 3), 1 / 3, dtype=torch.float64)
    with slimps.kv.create("local") as store:
        with pytest.warns(UserWarning, match="init of key 'w': float64 is converted") as warned:
            store.init("w", weights)
            store.set_optimizer(slimps.optimizer.Test())
            store.pushpull("w", torch.ones(2, 3, dtype=torch.float64), out=weights)
        assert len(warned) == 1
    expected = torch.full((2, 3), 1 / 3) + 1  # in float32
    assert torch.equal(weights, expected.double())


def test_two_workers_step_parameters():
    jobs.run("optimizer_scenarios", "torch_tensors")
