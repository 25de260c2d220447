# SPDX-License-Identifier: Apache-2.0
"""One worker of slimps bench torch: trains ResNet-18 on random images of 32 x 32; says how fast.

Prints "ready" once it could begin, begins when a line comes on stdin, and leaves a report. Its
place in the job comes from DMLC_* and RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

LR = 0.01
SLIMPS = {
    "slimps_fp32": {},
    "slimps_1bit": {"compression": "1bit", "backup_model": True},
    "slimps_1bit_2way": {"compression": "1bit", "pull_compression": "1bit", "backup_model": True},
}
SLIMPS.update({name + "_clipped": {**SLIMPS[name], "clip_norm": 1.0} for name in list(SLIMPS)})


def resnet18():
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def make(flags, model):
    """Returns (the model, its optimizer, the DistributedOptimizer to close or None)."""
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    if flags.system in SLIMPS:
        import slimps.torch  # not imported for gloo's systems, which run without it

        options = dict(SLIMPS[flags.system])
        threshold = flags.threshold if flags.threshold == "auto" else int(flags.threshold)
        options.update(
            {
                name: threshold
                for name, codec in (
                    ("threshold", "compression"),
                    ("pull_threshold", "pull_compression"),
                )
                if codec in options
            }
        )
        optimizer = slimps.torch.DistributedOptimizer(sgd, model.named_parameters(), **options)
        return model, optimizer, optimizer
    if flags.system == "alone":
        return model, sgd, None
    dist.init_process_group("gloo")
    if flags.system == "powersgd":
        model = DistributedDataParallel(model, bucket_cap_mb=100)  # gloo aborts with small buckets
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        model = DistributedDataParallel(model)
    return model, sgd, None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threshold", default="4096")
    parser.add_argument("--report", required=True)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, optimizer, job = make(flags, resnet18())
    images, labels = torch.randn(flags.batch, 3, 32, 32), torch.randint(0, 10, (flags.batch,))
    print("ready", flush=True)
    sys.stdin.readline()
    ends = []
    before = {}
    for step in range(flags.warmup + flags.steps + 1):
        if job is not None and step == flags.warmup + 1:
            before = job.totals()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        ends.append(time.monotonic())
    times = [
        1e3 * (end - begin) for begin, end in zip(ends[flags.warmup :], ends[flags.warmup + 1 :])
    ]
    figures = {
        "iteration_ms": (ends[-1] - ends[flags.warmup]) * 1e3 / flags.steps,
        "median_iteration_ms": statistics.median(times),
    }
    if job is not None:
        after = job.totals()
        each = {
            name: (after[name] - before[name]) / flags.steps
            for name in ("bytes_pushed", "bytes_pulled", "wait_s")
        }
        figures.update(
            {
                "bytes_pushed": each["bytes_pushed"],
                "bytes_pulled": each["bytes_pulled"],
                "wait_ms": 1e3 * each["wait_s"],
            }
        )
        job.close()
    with open(flags.report, "w", encoding="utf-8") as out:
        json.dump(figures, out)


if __name__ == "__main__":
    main()
