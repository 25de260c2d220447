# SPDX-License-Identifier: Apache-2.0
"""Arrays on GPUs, of a driver of the tests' own. gpu_scenarios.py describes each scenario."""

import contextlib
import os

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
        "a_local_store",
    ],
)
def test_two_workers(scenario, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)
    jobs.run("gpu_scenarios", scenario)


class Elsewhere:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (4096, False)}


@contextlib.contextmanager
def local_store():
    yield slimps.kv.create("local")


@pytest.mark.parametrize("a_store", [jobs.lone_store, local_store])
def test_a_machine_without_a_driver_says_so(a_store):
    with a_store() as store:
        store.init("w", np.zeros(3, np.float32))
        with pytest.raises(
            (slimps.FailedPreconditionError, slimps.InvalidArgumentError),
            match="push of key w: (no CUDA d|the CUDA driver is too old|memory of the host)",
        ):
            store.push("w", Elsewhere())
