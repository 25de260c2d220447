# SPDX-License-Identifier: Apache-2.0
"""MXNet's semantics over two workers and two servers, each a process. scenarios.py and
optimizer_scenarios.py describe each of them."""

import jobs
import pytest

SCENARIOS = [
    "init_takes_rank_0s_value",
    "sums_replace_the_value",
    "one_array_at_several_places",
    "pushpull_reads_before_it_writes",
    "half_precision",
    "compressed_1bit",
    "compressed_2bit",
    "a_policy_decides_for_each_key",
    "rows_are_summed_and_pulled",
    "a_worker_without_gradients",
    "a_worker_that_ends_early_tells_the_others",
]
OPTIMIZER_SCENARIOS = [
    "an_optimizer_steps_once_a_round",
    "optimizers_as_numpy_has_them",
    "onebit_adam_as_its_paper_has_it",
    "onebit_adam_with_rows_that_come_late_uncompressed",
    "onebit_adam_with_rows_that_come_late_in_one_bit",
    "async_steps_at_each_push",
    "a_bounded_lead",
    "optimizer_states_are_saved_and_loaded",
    "torch_tensors",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_workers(scenario):
    jobs.run("scenarios", scenario)


@pytest.mark.parametrize("scenario", OPTIMIZER_SCENARIOS)
def test_two_workers_whose_servers_step(scenario):
    jobs.run("optimizer_scenarios", scenario)


def test_a_scenario_that_is_a_generator_was_not_played():
    with pytest.raises(AssertionError, match="<generator object a_generator at"):
        jobs.run("scenarios", "a_generator")


def test_what_is_not_in_time_names_the_others_line(tmp_path):
    jobs.run("scenarios", "what_is_not_in_time_names_the_others_line", str(tmp_path / "over"))


def test_four_workers_sum():
    jobs.run("sequences", "11", "none", workers=4)


@pytest.mark.parametrize(
    "scenario, why",
    [
        ("an_exception_tells_the_others", "ArithmeticError: no more data"),
        ("an_exit_within_a_store_tells_the_others", "bad data"),
    ],
)
def test_an_exception_that_nobody_caught_ends_the_job_and_says_why(scenario, why):
    with jobs.Daemons(2, 1) as job:
        for rank in range(2):
            job.start_scenario(rank, "scenarios", scenario)
        ends = job.wait_for_end(["worker0", "worker1"])
        assert ends == {"worker0": 0, "worker1": 1}, job.output("worker0")
        assert "told" in job.output("worker0")
        assert why in job.output("worker1")
