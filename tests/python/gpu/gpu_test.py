# SPDX-License-Identifier: Apache-2.0
"""Arrays on GPUs, of a driver of the tests' own. gpu_scenarios.py describes each scenario."""

import contextlib
import importlib.util
import os
import subprocess
import sys

import jobs
import numpy as np
import pytest
import slimps

FAKE = os.path.abspath("tests/worker/device/cuda/fake_libcuda")


@pytest.mark.parametrize(
    "scenario",
    [
        "pushes_and_pulls",
        "a_gradient_lives_until_it_was_read",
        "a_push_that_is_refused_frees_no_gradient",
        "what_cannot_be_taken_is_refused",
        "everything_else_takes_arrays_of_a_gpu",
        "functions_without_a_place_find_arrays_by_their_address",
        "an_exchange_on_a_gpu",
        "an_exchange_takes_gradients_of_halves",
        "a_local_store",
        "arrays_that_do_not_say_their_gpu_are_found",
    ],
)
def test_two_workers(scenario, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)
    jobs.run("gpu_scenarios", scenario)


@pytest.mark.parametrize(
    "scenario, version",
    [
        ("an_old_driver_is_refused", "10020"),
        ("copies_keep_the_largest_buffer_alone", "11000"),
        ("first_values_wait_for_their_own_stream", "12090"),
        ("ctrl_c_ends_the_wait_for_a_copy", "12090"),
    ],
)
def test_one_process(scenario, version, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)
    monkeypatch.setenv("SLIMPS_FAKE_CUDA_VERSION", version)
    path = importlib.util.find_spec("gpu_scenarios").origin
    subprocess.run([sys.executable, path, scenario], check=True, timeout=300)


class Elsewhere:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (4096, False)}


@contextlib.contextmanager
def local_store():
    yield slimps.kv.create("local")


@pytest.mark.parametrize("a_store", [jobs.lone_store, local_store])
def test_a_machine_without_a_driver_says_so(a_store):
    with a_store() as store:
        store.init("w", np.zeros(3, np.float32))
        for call, what in (
            (lambda: store.push("w", Elsewhere()), "push of key w"),
            (lambda: store.init("v", Elsewhere()), "init of key 'v'"),
        ):
            with pytest.raises(
                (slimps.FailedPreconditionError, slimps.InvalidArgumentError),
                match=what + ": (no CUDA d|the CUDA driver is too old|memory of the host)",
            ):
                call()
