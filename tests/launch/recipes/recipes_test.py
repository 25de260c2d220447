# SPDX-License-Identifier: Apache-2.0
"""docs/recipes' lines in small scripts, under slimps launch and torchrun: each trains, evaluates,
saves and resumes with DistributedDataParallel's losses."""

import functools
import os
import re
import tempfile

import pytest
from commands import PYTHON, SLIMPS, Command

HERE = os.path.dirname(os.path.realpath(__file__))
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node=2"]
LAUNCH = SLIMPS + ["launch", "--workers=2", "--servers=1", "--", PYTHON]
UNDER_TORCHRUN = TORCHRUN + ["--no_python"] + SLIMPS + ["run", "--", PYTHON]
# What each saves half-way.
SAVED = {
    "trainer": "checkpoint-3",
    "lightning": "epoch=0.ckpt",
    "nanogpt": "checkpoint",
    "imagenet": "checkpoint",
}


def losses(command, script, *arguments):
    """Returns what a job of two workers prints: each loss, by its step and kind."""
    worker = os.path.join(HERE, script + "_worker.py")
    with Command(
        command + [worker, *arguments], OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"
    ) as running:
        assert running.status() == 0, running.said
        found = re.findall(r"(step \d+: \w+) ([\d.]+)", running.said)
        assert running.nobody_is_left()
    return {what: float(loss) for what, loss in found}


@functools.lru_cache(maxsize=None)
def of_ddp(script, norm):
    with tempfile.TemporaryDirectory(prefix="slimps-test-") as folder:
        found = losses(TORCHRUN, script, "ddp", folder, norm)
    trained = [loss for what, loss in found.items() if what.endswith("loss")]
    half = len(trained) // 2
    assert half >= 3 and sum(trained[half:]) < sum(trained[:half]), "it learns: %s" % found
    return found


# What a gradient is clipped by: the norm of the mean, in each way.
@pytest.mark.parametrize(
    "script, way, norm",
    [
        ("trainer", "hook", "1"),
        ("trainer", "servers", "1"),
        ("trainer", "servers", "0"),
        ("lightning", "hook", "0.5"),
        ("nanogpt", "servers", "0"),
        ("nanogpt", "servers", "0.5"),
        ("imagenet", "servers", "0"),
    ],
)
def test_training_saving_and_resuming_equal_ddps(script, way, norm, tmp_path):
    expected = of_ddp(script, norm)
    assert losses(LAUNCH, script, way, str(tmp_path), norm) == pytest.approx(expected, abs=2e-6)
    checkpoint = str(tmp_path / SAVED[script])
    if script == "trainer":
        files = {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"}
        assert files <= set(os.listdir(checkpoint))
    resumed = losses(UNDER_TORCHRUN, script, way, str(tmp_path / "resumed"), norm, checkpoint)
    assert list(resumed)[-1] == list(expected)[-1]
    assert resumed == pytest.approx({what: expected[what] for what in resumed}, abs=2e-6)
