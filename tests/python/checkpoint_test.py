# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from Python; their weights are read by the library whose format they have."""

import shutil

import jobs
import numpy as np
import pytest
import safetensors.numpy
import slimps


def test_a_job_is_saved_and_goes_on_with_another_number_of_servers(tmp_path):
    said = jobs.run("checkpoint_scenarios", "saves", str(tmp_path), servers=2)
    assert "there is a checkpoint already" in said[0], said[0]
    # The weights are those that workers have seen after the third round.
    weights = safetensors.numpy.load_file(tmp_path / "three" / "weights.safetensors")
    expected = np.load(tmp_path / "three.npz")
    assert sorted(weights) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(weights[name], values, name)
    shutil.copytree(tmp_path / "three", tmp_path / "damaged")
    with open(tmp_path / "damaged" / "server-1.images", "r+b") as file:
        file.seek(1000)
        file.write(b"\xa5")
    jobs.run("checkpoint_scenarios", "loads", str(tmp_path), servers=3)


def test_local_stores_have_no_checkpoints(tmp_path):
    with slimps.kv.create("local") as store:
        with pytest.raises(slimps.UnimplementedError):
            store.save(tmp_path / "saved")
        with pytest.raises(slimps.UnimplementedError):
            store.load(tmp_path / "saved")
