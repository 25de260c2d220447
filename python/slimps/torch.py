# SPDX-License-Identifier: Apache-2.0
"""slimps for PyTorch: three lines make a training script a worker of a parameter-server job.

    import slimps.torch
    optimizer = slimps.torch.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    optimizer.close()    # at the end

Gradients leave as backward produces them. With compression="qsgd:bits=4,norm=max,error_feedback=on"
(or "1bit": SGD, or Adam with freeze_after="auto") they are compressed where the threshold table
says that it pays.
The servers step with the mean over the workers. With backup_model=True (SlimGC's backup model), the
next forward pass starts from this worker's own step while the round is under way. In a script that
already uses DistributedDataParallel, comm_hook replaces the all-reduce:

    state = slimps.torch.CommHookState(model.named_parameters(), **options)
    model = DistributedDataParallel(model)
    model.register_comm_hook(state, slimps.torch.comm_hook)

Start the script with `slimps launch --workers 2 --servers 2 -- python3 SCRIPT`, or under torchrun
with `torchrun --nproc-per-node 2 --no-python slimps run -- python3 SCRIPT`. Errors are subclasses
of slimps.Error. Scalars writes what a worker has exchanged to TensorBoard.
"""

import torch as _torch

if [int(number) for number in _torch.__version__.split(".")[:2]] < [2, 4]:
    raise ImportError(
        "slimps.torch: expected torch 2.4 or newer, got torch %s" % _torch.__version__
    )

from slimps.pytorch.ddp import CommHookState, comm_hook
from slimps.pytorch.distributed import DistributedOptimizer
from slimps.pytorch.params import broadcast_parameters
from slimps.pytorch.scalars import Scalars

__all__ = ["CommHookState", "DistributedOptimizer", "Scalars", "broadcast_parameters", "comm_hook"]
