# SPDX-License-Identifier: Apache-2.0
"""slimps: a parameter server for data-parallel training that compresses gradients where that pays.

    import numpy as np
    import slimps

    store = slimps.kv.create("dist_sync")
    store.init("w", np.zeros((784, 10), np.float32))       # rank 0's value counts
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.1))
    store.push("w", gradient)                               # returns when `gradient` may be reused
    store.pull("w", out=weights)                            # waits for all workers' round
    store.close()

Start the script with `slimps launch --workers 2 --servers 2 -- python3 SCRIPT`. Method names and
semantics are MXNet's.
"""

# First, since it says in one line what slimps lacks to run.
from slimps import native  # noqa: F401

from slimps import errors, kv, lr_scheduler, optimizer, row_sparse
from slimps._job import Job, init
from slimps._version import __version__
from slimps.row_sparse import RowSparse
from slimps.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "Error",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "Job",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "RowSparse",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "__version__",
    "errors",
    "init",
    "kv",
    "lr_scheduler",
    "optimizer",
    "row_sparse",
]
