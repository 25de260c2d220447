# SPDX-License-Identifier: Apache-2.0
"""Models of a plan: a preset of tools/bench/models, or a trace of the user's own job."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from typing import Any, Mapping

from cli import setup
from plan.terms import Layer, Model, Tensor
from slimps_launch import job_trace

PROGRAM = {
    "describe_model": ("//tools/bench/cluster:describe_model", "tools/bench/cluster/describe_model")
}
STEPS_BEFORE = 1  # of a trace: the first step loads and allocates
SETTLED = ("decode", "wait", "local_update", "pull")  # what a step's beginning waits for


def find(name: str, program: str) -> Model:
    """Returns a preset, with a third of 3 ms as its forward pass.

    SetupError: there is none of that name; the message lists the names.
    """
    ran = subprocess.run(
        [program, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
    )
    if ran.returncode != 0:
        raise setup.SetupError(ran.stderr.strip() or "describe_model failed")
    return of_description(json.loads(ran.stdout))


def of_description(said: Mapping[str, Any]) -> Model:
    """Returns the model that describe_model printed."""
    tensors = []
    for name, shape in said["tensors"]:
        elements = 1
        for extent in shape:
            elements *= extent
        tensors.append(Tensor(name, elements, tuple(shape)))
    layers, first = [], 0
    for count, share in said["layers"]:
        layers.append(Layer(first, count, share, 2 * share))
        first += count
    return Model(said["name"], tuple(tensors), tuple(layers), said["ratio"])


# ---- traces --------------------------------------------------------------------------------------


def is_trace(name: str) -> bool:
    return os.path.exists(name) or name.endswith(".json") or os.sep in name


def of_trace(path: str) -> Model:
    """Returns the model that a job of `slimps launch --trace` trained, by its first worker.

    A gradient is ready where its copy to grad_buf begins. A step begins where the last weights of
    the round before have arrived. Times are medians over the steps. A trace has no shapes.
    SetupError: it cannot be read, or too little is in it.
    """
    try:
        return _of_events(path, job_trace.Trace(path))
    except job_trace.TraceError as error:
        raise setup.SetupError("--model: %s" % error) from error


def _of_events(path: str, trace: job_trace.Trace) -> Model:
    names: dict[int, str] = {}
    copies: dict[int, dict[str, float]] = {}  # round -> key -> when its gradient was ready
    sizes: dict[str, int] = {}  # key -> elements
    settled: list[float] = []
    for event in trace.events():
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        if event["ph"] != "X" or not names.get(event["pid"], "").endswith("worker 0"):
            continue
        args, began = event["args"], event["ts"] / 1e3
        if event["cat"] == "copy" and "elements" in args:
            copies.setdefault(args["round"], {}).setdefault(args["key"], began)
            sizes[args["key"]] = args["elements"]
        elif event["cat"] in SETTLED:
            settled.append(began + event["dur"] / 1e3)
    if not sizes:
        raise setup.SetupError(
            "--model: %s: worker 0 pushed no gradients in it; expected a trace of a training, as "
            "slimps launch --trace writes it" % path
        )
    steps = _whole_steps(copies, set(sizes), sorted(settled))
    if not steps:
        raise setup.SetupError(
            "--model: %s: no whole step after the first %d; expected at least %d steps"
            % (path, STEPS_BEFORE, STEPS_BEFORE + 2)
        )
    model = _of_steps(path, steps, sizes)
    if model.compute_ms() <= 0:
        raise setup.SetupError(
            "--model: %s: every gradient was ready as its step began; expected the time of a "
            "forward and backward pass before the first and the last of them" % path
        )
    return model


def _whole_steps(
    copies: Mapping[int, Mapping[str, float]], keys: set[str], settled: list[float]
) -> list[dict[str, float]]:
    """Returns, of each step that pushed every key, how long after its beginning each was ready."""
    steps = []
    for round_ in sorted(copies)[STEPS_BEFORE:]:
        ready = copies[round_]
        before = copies.get(round_ - 1)
        if set(ready) != keys or before is None:
            continue
        first = min(ready.values())
        began = max([time for time in settled if time <= first] + [max(before.values())])
        if began <= first:
            steps.append({key: time - began for key, time in ready.items()})
    return steps


def _of_steps(path: str, steps: list[dict[str, float]], sizes: Mapping[str, int]) -> Model:
    ready = {key: statistics.median(step[key] for step in steps) for key in sizes}
    order = sorted(sizes, key=lambda key: (ready[key], key))  # as the backward pass makes them
    forward = ready[order[0]]
    layers: list[Layer] = []
    last = forward
    for index, key in enumerate(reversed(order)):
        layers.append(Layer(index, 1, 0.0, 0.0))
    count = len(order)
    for place, key in enumerate(order):
        index = count - 1 - place
        layers[index] = Layer(index, 1, forward / count, ready[key] - last)
        last = ready[key]
    tensors = tuple(Tensor(key, sizes[key]) for key in reversed(order))
    return Model(os.path.basename(path), tensors, tuple(layers))
