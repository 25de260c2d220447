# SPDX-License-Identifier: Apache-2.0
"""The rows of a training script go on after passes that fail."""

from unittest import mock

import pytest
import torch
from slimps.native import trace
from slimps.pytorch import script_rows


class Failure(Exception):
    pass


def fail(*_):
    raise Failure


@pytest.fixture(name="rows")
def recorded_rows():
    """The (row, name) of each pass that ends."""
    rows = []
    with mock.patch.object(trace, "is_on", True), mock.patch.object(
        trace, "add", lambda row, name, *_: rows.append((row, name))
    ):
        passes = script_rows.passes()
        yield rows
        passes.end()


def train(model):
    model(torch.ones(1)).backward()


def test_another_model_is_recorded_after_a_forward_that_fails(rows):
    with pytest.raises(RuntimeError):
        torch.nn.Linear(2, 2)(torch.ones(1))
    train(torch.nn.Sequential(torch.nn.Linear(1, 1)))
    assert rows == [(trace.FORWARD, "Sequential"), (trace.BACKWARD, "backward")]


def test_modules_of_a_model_are_no_passes_of_their_own(rows):
    inner = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
    torch.nn.Sequential(inner, torch.nn.Linear(1, 1))(torch.ones(1))
    assert rows == [(trace.FORWARD, "Sequential")]


def test_backward_is_recorded_after_one_that_fails(rows):
    model = torch.nn.Linear(1, 1)
    hook = model.weight.register_hook(fail)
    with pytest.raises(Failure):
        train(model)
    hook.remove()
    del rows[:]
    train(model)
    assert rows == [(trace.FORWARD, "Linear"), (trace.BACKWARD, "backward")]


def test_backward_of_two_models_is_one_pass(rows):
    model, loss = torch.nn.Linear(1, 1), torch.nn.MSELoss()
    loss(model(torch.ones(1)), torch.zeros(1)).backward()
    assert [row for row, _ in rows] == [trace.FORWARD, trace.FORWARD, trace.BACKWARD]
