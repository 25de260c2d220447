# SPDX-License-Identifier: Apache-2.0
"""The scenarios of torch_test.py with a GradScaler: torch_scaler_scenarios.py NAME.

A failed assertion ends the worker, and the test.
"""

import scenario
import slimps
import slimps.torch
import torch
from torch_training import (
    OPTIMIZERS,
    batches,
    farthest,
    loss_of,
    mine,
    network,
    same_everywhere,
    step,
)


def scaler_of_1024():
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)


def gradients_that_a_scaler_scaled():
    alone, model = network(), network()
    reference = OPTIMIZERS["sgd"](alone)
    scaler = scaler_of_1024()
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS["sgd"](model),
        model.named_parameters(),
        backup_model=False,
        push_in_backward=False,
    ) as optimizer:
        rank = optimizer.store.rank
        for number, (images, labels) in enumerate(batches(8)):
            if number != 3:
                step(reference, alone, images, labels)
            optimizer.zero_grad()
            scaler.scale(loss_of(model, *mine(rank, images, labels))).backward()
            if number == 3 and rank == 1:
                model[0].weight.grad[0, 0, 0, 0] = float("inf")  # only worker 1's, but both skip
            scaler.step(optimizer)
            scaler.update()
            assert farthest(model, alone) < 1e-5, (number, farthest(model, alone))
        expected = 1024.0 * 2 ** (6 if rank == 1 else 8)  # one step back on worker 1 alone
        assert scaler.get_scale() == expected, (scaler.get_scale(), expected)


def a_worker_without_data_beside_a_scaler():
    """Worker 1 has no data in steps 1, 2 and 4. In step 4 worker 0's gradients are infinite, so no
    worker steps."""
    model = network()
    scaler = scaler_of_1024()
    weights = []
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS["sgd"](model),
        model.named_parameters(),
        backup_model=False,
        push_in_backward=False,
    ) as optimizer:
        rank = optimizer.store.rank
        for number, (images, labels) in enumerate(batches(6), 1):
            if rank == 1 and number in (1, 2, 4):
                optimizer.skip_step()
            else:
                optimizer.zero_grad()
                scaler.scale(loss_of(model, *mine(rank, images, labels))).backward()
                if number == 4:
                    model[0].weight.grad[0, 0, 0, 0] = float("inf")
                scaler.step(optimizer)
                scaler.update()
            weights.append(model[0].weight.detach().clone())
            assert same_everywhere(optimizer.store, model)
        changed = [not torch.equal(before, after) for before, after in zip(weights, weights[1:])]
        assert changed == [True, True, False, True, True], changed
        try:
            optimizer.leave()
            raise AssertionError("left, though the check needs all")
        except slimps.FailedPreconditionError as error:
            assert "expected skip_step()" in str(error), error


def a_worker_leaves_before_its_first_step():
    """Worker 0 asks in its first step whether a worker has a scaler, and worker 1 answers."""
    model = network()
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS["sgd"](model), model.named_parameters(), push_in_backward=False
    ) as optimizer:
        if optimizer.store.rank == 1:
            optimizer.leave()
            return
        before = model[0].weight.detach().clone()
        for images, labels in batches(2):
            optimizer.zero_grad()
            loss_of(model, images, labels).backward()
            optimizer.step()
        assert not torch.equal(model[0].weight, before)


if __name__ == "__main__":
    scenario.play(globals())
