# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer and broadcast_parameters in jobs of two workers with real servers."""

import jobs
import pytest
import slimps
import slimps.torch
import torch
import torch_scaler_scenarios
import torch_scenarios


@pytest.mark.parametrize("kind", sorted(torch_scenarios.OPTIMIZERS))
def test_training_equals_one_process_on_the_joint_batch(kind):
    jobs.run("torch_scenarios", "equals_the_joint_batch", kind)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_clips_as_torch_clips_the_joint_batch(kind):
    jobs.run("torch_scenarios", "clips_as_torch_clips_the_joint_batch", kind)


@pytest.mark.parametrize(
    "scenario",
    [
        torch_scenarios.layouts_may_differ,
        torch_scenarios.the_backup_model_is_one_local_step_ahead,
        torch_scenarios.tied_frozen_and_unused_parameters,
        torch_scenarios.gradients_accumulate,
        torch_scenarios.clipped_gradients,
        torch_scenarios.a_step_that_is_not_finite_is_skipped,
        torch_scenarios.the_limit_may_be_set_before_a_step,
        torch_scenarios.what_an_optimizer_does_not_step_is_rank_0s,
        torch_scaler_scenarios.a_worker_leaves_before_its_first_step,
        torch_scaler_scenarios.a_worker_without_data_beside_a_scaler,
        torch_scaler_scenarios.gradients_that_a_scaler_scaled,
        torch_scenarios.data_that_ends_unevenly,
        torch_scenarios.compressed_both_ways_learns,
        torch_scenarios.values_are_broadcast,
        torch_scenarios.frozen_weights_stay_without_init_sync,
        torch_scenarios.buffers_are_broadcast_before_each_step,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_scenario(scenario):
    jobs.run(scenario.__module__, scenario.__name__)


def test_modes_without_rounds_and_the_hook_refuse_it_by_name():
    for mode in ("dist_async", "dist_ssp"):
        model = torch.nn.Linear(2, 1)
        with jobs.lone_store(mode) as store:
            with pytest.raises(slimps.InvalidArgumentError, match="clip_norm with %s" % mode):
                slimps.torch.DistributedOptimizer(
                    torch.optim.SGD(model.parameters(), lr=0.1), model, store=store, clip_norm=1.0
                )
    with pytest.raises(
        slimps.InvalidArgumentError, match="expected torch.nn.utils.clip_grad_norm_"
    ):
        slimps.torch.CommHookState(torch.nn.Linear(2, 1), clip_norm=1.0)
    with pytest.raises(slimps.InvalidArgumentError, match="clip_norm: expected a finite number"):
        slimps.torch.DistributedOptimizer(
            torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1), clip_norm=0.0
        )


def test_the_servers_keep_no_frozen_weights(tmp_path):
    scenario = torch_scenarios.frozen_weights_are_broadcast_and_the_servers_keep_none
    jobs.run("torch_scenarios", scenario.__name__, str(tmp_path / "states"))


needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch %s finds no GPU here" % torch.__version__
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_training_equals_ddp_over_gloo(device, tmp_path):
    path = str(tmp_path / "meeting")
    jobs.run("torch_scenarios", "has_the_weights_of_ddp", device, path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    jobs.run("torch_scenarios", "half_precision_parameters", dtype)


def test_compiled_models_keep_their_names():
    jobs.run("torch_scenarios", "compiled_models_keep_their_names")


@pytest.mark.parametrize("name", ["compressed", "onebit_adam", "policy"])
def test_a_run_that_was_saved_goes_on_bit_for_bit(tmp_path, name):
    for scenario in ("run_through", "save_half_way", "resume"):
        jobs.run("torch_saved_scenarios", scenario, str(tmp_path / "run"), name)
