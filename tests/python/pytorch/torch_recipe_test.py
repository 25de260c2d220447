# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Lightning over slimps, in jobs of two workers with real servers."""

import jobs
import pytest


@pytest.mark.parametrize(
    "scenario",
    [
        "accelerate_with_the_hook",
        "accelerate_with_distributed_optimizer",
        "lightning_with_the_hook",
    ],
)
def test_a_recipe_trains_as_one_process(scenario, tmp_path):
    jobs.run("torch_recipe_scenarios", scenario, str(tmp_path / "group"))
