# SPDX-License-Identifier: Apache-2.0
"""What a training script with slimps.torch leaves in a trace."""

import json
from unittest import mock

import jobs
import pytest
import torch
from slimps.native import trace
from slimps.pytorch import script_rows
from torch_trace_scenarios import STEPS


def spans_of(path, rank):
    """Returns {stage: [event]} of a worker's part, in order of beginning."""
    with open("%s.worker%d.json" % (path, rank), encoding="utf-8") as text:
        events = [event for event in json.load(text)["traceEvents"] if event["ph"] == "X"]
    stages = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        stages.setdefault(event["cat"], []).append(event)
    return stages


@pytest.fixture(name="traced")
def a_traced_job(tmp_path, monkeypatch):
    def run(scenario):
        monkeypatch.setenv("SLIMPS_TRACE", str(tmp_path / "job.json"))
        jobs.run("torch_trace_scenarios", scenario, str(tmp_path / "meeting"))
        return [spans_of(tmp_path / "job", rank) for rank in (0, 1)]

    return run


def test_forward_backward_and_step_follow_each_other(traced):
    for stages in traced("an_optimizer"):
        assert [event["name"] for event in stages["forward"]] == ["Sequential"] * (STEPS + 1)
        assert [event["args"]["round"] for event in stages["step"]] == list(range(1, STEPS + 1))
        assert len(stages["backward"]) == STEPS
        rounds = zip(stages["forward"], stages["backward"], stages["step"])
        for forward, backward, step in rounds:
            assert forward["ts"] + forward["dur"] <= backward["ts"]
            assert backward["ts"] + backward["dur"] <= step["ts"]


def test_gradients_are_encoded_while_backward_goes_on(traced):
    for stages in traced("an_optimizer"):
        calls = [event["name"] for event in stages["call"]]
        assert calls.count("exchange_gradient_at") == 6 * STEPS
        first = stages["backward"][0]
        given = [event for event in stages["call"] if event["name"] == "exchange_gradient_at"][0]
        assert first["ts"] <= given["ts"] <= first["ts"] + first["dur"]


def test_a_script_with_the_hook_has_its_passes(traced):
    for stages in traced("a_hook"):
        assert {event["name"] for event in stages["forward"]} == {"DistributedDataParallel"}
        assert len(stages["forward"]) == STEPS + 1
        assert len(stages["backward"]) == STEPS


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
