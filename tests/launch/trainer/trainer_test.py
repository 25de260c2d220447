# SPDX-License-Identifier: Apache-2.0
"""A script with transformers' Trainer, under slimps launch: both ways train, evaluate, save and
resume as DistributedDataParallel does."""

import os
import re

import pytest
from commands import PYTHON, SLIMPS, Command

WORKER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "trainer_worker.py")


def losses(*arguments):
    """Returns what a job of two workers prints: each loss, by its step and kind."""
    job = SLIMPS + ["launch", "--workers=2", "--servers=1", "--", PYTHON, WORKER, *arguments]
    with Command(job, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1") as running:
        assert running.status() == 0, running.said
        found = re.findall(r"worker0\| (step \d+: \w+) ([\d.]+)", running.said)
        assert running.nobody_is_left()
    return {what: float(loss) for what, loss in found}


# What a gradient is clipped by: the norm of the mean, with both ways.
@pytest.mark.parametrize("way, norm", [("hook", "1"), ("servers", "1"), ("servers", "0")])
def test_training_saving_and_resuming_equal_ddps(way, norm, tmp_path):
    of_ddp = losses("ddp", str(tmp_path / "ddp"), norm)
    assert len(of_ddp) == 8, of_ddp
    assert of_ddp["step 6: loss"] < of_ddp["step 1: loss"], "it learns"
    folder = str(tmp_path / way)
    assert losses(way, folder, norm) == pytest.approx(of_ddp, abs=2e-6)
    checkpoint = os.path.join(folder, "checkpoint-3")
    files = {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"}
    assert files <= set(os.listdir(checkpoint))
    # As noted until step 3, and as trained from there on.
    assert losses(way, folder, norm, checkpoint) == pytest.approx(of_ddp, abs=2e-6)
