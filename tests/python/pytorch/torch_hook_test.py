# SPDX-License-Identifier: Apache-2.0
"""comm_hook under DistributedDataParallel, in jobs of two workers with real servers."""

import jobs
import pytest
import torch


needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch %s finds no GPU here" % torch.__version__
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_the_hook_equals_gloo(device, tmp_path):
    jobs.run("torch_hook_scenarios", "the_hook_equals_gloo", str(tmp_path / "group"), device)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_averaged(dtype, tmp_path):
    path = str(tmp_path / "group")
    jobs.run("torch_hook_scenarios", "halves_are_averaged", path, dtype)


def test_a_compressed_hook_learns(tmp_path):
    jobs.run("torch_hook_scenarios", "a_compressed_hook_learns", str(tmp_path / "group"))


@pytest.mark.parametrize(
    "scenario",
    [
        "sparse_gradients_are_averaged",
        "copies_are_no_part_of_the_job",
        "a_refusal_in_the_hook_reaches_backward",
    ],
)
def test_two_workers(scenario, tmp_path):
    jobs.run("torch_hook_scenarios", scenario, str(tmp_path / "group"))


@pytest.mark.parametrize("compression", ["none", "1bit", "topk:ratio=0.1"])
def test_a_scaler_changes_nothing(compression, tmp_path):
    path = str(tmp_path / "group")
    jobs.run("torch_hook_scenarios", "a_scaler_changes_nothing", path, compression)


@pytest.mark.parametrize(
    "options",
    [
        ("none", "none", "hidden"),
        ("1bit", "none", "shown"),
        ("2bit:threshold=0.01", "1bit", "shown"),
    ],
    ids=" ".join,
)
def test_all_skip_an_overflow(options, tmp_path):
    path = str(tmp_path / "group")
    jobs.run("torch_hook_scenarios", "all_skip_an_overflow", path, *options)


def test_a_hook_that_fails_says_why(tmp_path):
    with jobs.Daemons(2, 1) as job:
        for rank in (0, 1):
            job.start_scenario(
                rank, "torch_hook_scenarios", "a_hook_that_fails_says_why", str(tmp_path / "group")
            )
        ends = job.wait_for_end(["worker0"], 120.0)
        said = job.output("worker0")
        assert ends == {"worker0": 0}, said
        assert "told: " in said and "worker 1 has had enough" in said.split("told: ")[1], said
