# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer(node_first=...) in jobs of four workers, on nodes that variables make."""

import jobs
import pytest
import torch_node_scenarios


@pytest.mark.parametrize("sizes", ["2+2", "3+1", "4"])
def test_sums_and_means_are_those_of_all_workers(sizes):
    jobs.run("torch_node_scenarios", "sums_and_means_are_those_of_all_workers", sizes, workers=4)


@pytest.mark.parametrize(
    "scenario",
    [
        torch_node_scenarios.the_norm_is_that_of_all_workers,
        torch_node_scenarios.the_backup_model_is_the_nodes,
        torch_node_scenarios.half_precision_with_a_scaler_and_a_saved_state,
        torch_node_scenarios.two_optimizers_share_a_store,
        torch_node_scenarios.who_shares_a_store_with_one_that_each_pushes_to,
        torch_node_scenarios.learned_thresholds_are_the_leaders,
        torch_node_scenarios.nodes_are_found,
        torch_node_scenarios.what_is_refused,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_scenario(scenario):
    jobs.run(scenario.__module__, scenario.__name__, workers=4)
