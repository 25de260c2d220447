# SPDX-License-Identifier: Apache-2.0
"""slimps.torch with tensors on GPUs, of a driver of the tests' own (torch_gpu_scenarios.py)."""

import os

import jobs
import pytest

FAKE = os.path.abspath("tests/worker/device/cuda/fake_libcuda")


@pytest.mark.parametrize(
    "scenario",
    [
        "trains_as_on_the_cpu",
        "no_master_changes_while_it_is_copied",
        "copies_of_gradients_are_freed_before_the_step_ends",
        "a_hook_takes_buckets_of_a_gpu",
        "buffers_of_a_gpu_get_rank_0s_values",
        "gradients_of_halves_stay_halves",
        "half_precision_is_converted",
        "half_precision_beside_compression_is_refused",
    ],
)
def test_two_workers(scenario, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)
    jobs.run("torch_gpu_scenarios", scenario)


def test_a_gradient_that_is_not_finite_fails_the_step(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE)
    with jobs.Daemons(2, 1) as job:
        for rank in (0, 1):
            job.start_scenario(
                rank, "torch_gpu_scenarios", "a_gradient_that_is_not_finite_fails_the_step"
            )
        job.wait_for_end(["worker0", "worker1"], 120.0)
        said = job.output("worker1")
        assert "refused: " in said and "element 0 is nan" in said, said
