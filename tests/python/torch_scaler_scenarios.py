# SPDX-License-Identifier: Apache-2.0
"""The scenarios of torch_test.py with a GradScaler: torch_scaler_scenarios.py NAME.

A failed assertion ends the worker, and the test.
"""

import sys

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


class Scaler:
    """Does what torch.cuda.amp.GradScaler does with an optimizer of _step_supports_amp_scaling.

    The real one needs CUDA.
    """

    def __init__(self):
        self.scale_now = 1024.0
        self._per_optimizer_states = {}

    def scale(self, loss):
        return loss * self.scale_now

    def unscale_(self, optimizer):
        found = torch.zeros(1)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad /= self.scale_now
                if not bool(torch.isfinite(parameter.grad).all()):
                    found.fill_(1.0)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {"cpu": found}

    def step(self, optimizer):
        assert optimizer._step_supports_amp_scaling
        self._per_optimizer_states[id(optimizer)] = {"found_inf_per_device": {}}
        optimizer.step(grad_scaler=self)

    def update(self, optimizer):
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        self.scale_now *= 0.5 if any(bool(one.item()) for one in found.values()) else 2.0


def gradients_that_a_scaler_scaled():
    alone, model = network(), network()
    reference = OPTIMIZERS["sgd"](alone)
    scaler = Scaler()
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
            scaler.update(optimizer)
            assert farthest(model, alone) < 1e-5, (number, farthest(model, alone))
        assert scaler.scale_now == 1024.0 * 2**6, "one step back on both workers"


def a_worker_without_data_beside_a_scaler():
    """Worker 1 has no data in steps 2 and 4. In step 4 worker 0's gradients are infinite, so no
    worker steps."""
    model = network()
    scaler = Scaler()
    weights = []
    with slimps.torch.DistributedOptimizer(
        OPTIMIZERS["sgd"](model),
        model.named_parameters(),
        backup_model=False,
        push_in_backward=False,
    ) as optimizer:
        rank = optimizer.store.rank
        for number, (images, labels) in enumerate(batches(6), 1):
            if rank == 1 and number in (2, 4):
                optimizer.skip_step()
            else:
                optimizer.zero_grad()
                scaler.scale(loss_of(model, *mine(rank, images, labels))).backward()
                if number == 4:
                    model[0].weight.grad[0, 0, 0, 0] = float("inf")
                scaler.step(optimizer)
            weights.append(model[0].weight.detach().clone())
            assert same_everywhere(optimizer.store, model)
        changed = [not torch.equal(before, after) for before, after in zip(weights, weights[1:])]
        assert changed == [True, True, False, True, True], changed
        try:
            optimizer.leave()
            raise AssertionError("left, though the check needs all")
        except slimps.FailedPreconditionError as error:
            assert "expected skip_step()" in str(error), error


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    print("done")
