# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer(overlap_forward=True), in jobs of two workers with real servers."""

import jobs
import pytest
import slimps
import slimps.torch
import torch
import torch_overlap_scenarios as scenarios


@pytest.mark.parametrize("case", sorted(scenarios.CASES))
def test_modules_that_wait_compute_on_the_same_bits(case):
    jobs.run("torch_overlap_scenarios", "has_the_bits_of_steps_that_wait", case)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_whoever_reads_weights_between_steps_has_them(dtype):
    jobs.run("torch_overlap_scenarios", "whoever_reads_weights_between_steps_has_them", dtype)


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.a_parameter_that_nobody_waited_for_is_named,
        scenarios.attention_has_its_parts_weights,
        scenarios.an_older_graph_raises_torchs_error,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_scenario(scenario):
    jobs.run("torch_overlap_scenarios", scenario.__name__)


def make(model, named, **options):
    with jobs.lone_store("dist_sync") as store:
        return slimps.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            named,
            store=store,
            overlap_forward=True,
            **options,
        )


def test_modules_that_cannot_wait_are_refused_by_name():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    with pytest.raises(slimps.InvalidArgumentError, match="overlap_forward: expected the model"):
        make(model, list(model.named_parameters()))
    model[1].compile()
    with pytest.raises(slimps.InvalidArgumentError, match="overlap_forward: 1 is compiled"):
        make(model, model)
    other = torch.compile(torch.nn.Linear(2, 2))
    with pytest.raises(slimps.InvalidArgumentError, match="overlap_forward: the model is compiled"):
        make(other, other)
    with pytest.raises(slimps.InvalidArgumentError, match="expected push_in_backward=True"):
        plain = torch.nn.Linear(2, 2)
        make(plain, plain, push_in_backward=False)
    with pytest.raises(slimps.InvalidArgumentError, match="expected node_first=False"):
        plain = torch.nn.Linear(2, 2)
        make(plain, plain, node_first=True)
