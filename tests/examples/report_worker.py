# SPDX-License-Identifier: Apache-2.0
"""A worker of torch_examples_test.py (report_worker.py FILE). Worker 0 evaluates until worker 1 has
ended."""

import os
import sys

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "examples"), os.path.join(ROOT, "tests", "repo")]

import training  # noqa: E402
from eventually import eventually  # noqa: E402


def wait_for(path):
    if not eventually(lambda: os.path.exists(path), seconds=100):
        raise TimeoutError("worker 1 has not ended")
    return 42


def main():
    flags = training.parser("", epochs=1, batch=4, lr=0.1).parse_args(["--max_steps=1"])
    model = torch.nn.Linear(2, 2)
    with training.Run(flags, model, torch.optim.SGD(model.parameters(), lr=flags.lr)) as run:
        for samples in run.steps(8):
            run.step(model(torch.ones(len(samples), 2)).sum())
        run.report(lambda trained: wait_for(sys.argv[1]), "patience %d %%")
    if run.rank == 1:
        with open(sys.argv[1], "w", encoding="ascii"):
            pass


if __name__ == "__main__":
    main()
