# SPDX-License-Identifier: Apache-2.0
"""One worker of slimps bench torch: makes training steps and says how fast they are.

It trains ResNet-18 on random images of 32 x 32, or with --accelerator has ResNet-50's tensors and
waits instead of computing. Prints "ready" once it could begin, begins when a line comes on stdin,
and leaves a report. Its place in the job comes from DMLC_* and RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import exchanges
import torch
import torch_systems
import waited_model

LR = 0.01
MODEL = "resnet50"  # beside an accelerator that is waited for


def resnet18():
    import torchvision  # not imported beside an accelerator that is waited for, which needs none

    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def trained(batch):
    """Returns (the model, what computes its loss by a model made of it)."""
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    return resnet18(), lambda model: torch.nn.functional.cross_entropy(model(images), labels)


def waited_for(describe_model, milliseconds):
    """Returns the same of a model whose accelerator takes so long for a step."""
    described = json.loads(subprocess.check_output([describe_model, MODEL]))
    seed = int(os.environ["RANK"])  # workers' gradients differ
    return waited_model.WaitedModel(described, milliseconds / 1e3, seed), lambda model: model()


class Meters:
    """What the job has taken so far: of this node's link, and of the cores.

    `daemons` are processes whose time counts, beside this one's.
    """

    def __init__(self, interface, daemons):
        self._counters = "/sys/class/net/%s/statistics/%%s_bytes" % interface
        self._daemons = daemons

    def read(self):
        return {
            "wire_bytes_out": self._count("tx"),
            "wire_bytes_in": self._count("rx"),
            "cpu_ms": 1e3 * (time.process_time() + sum(map(self._seconds_of, self._daemons))),
        }

    def _count(self, direction):
        with open(self._counters % direction, encoding="ascii") as counter:
            return int(counter.read())

    @staticmethod
    def _seconds_of(daemon):
        """Returns the processor time of a process: utime and stime of /proc/PID/stat."""
        with open("/proc/%d/stat" % daemon, encoding="utf-8") as line:
            fields = line.read().rpartition(")")[2].split()  # its name may have blanks
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(exchange, loss_of, meters, warmup, steps):
    """Makes the steps and returns the figures of those after `warmup`, and one more."""
    ends, charged = [], []

    def read():
        return {**meters.read(), **(exchange.totals() or {})}

    for step in range(warmup + steps + 1):
        if step == warmup + 1:
            before = read()
        exchange.zero_grad()
        loss_of(exchange.model).backward()
        exchange.step()
        ends.append(time.monotonic())
        charged.append(exchange.arithmetic_s)
    after = read()
    times, spent = (
        [1e3 * (end - begin) for begin, end in zip(each[warmup:], each[warmup + 1 :])]
        for each in (ends, charged)
    )
    figures = {
        name: (after[name] - before[name]) / steps
        for name in ("bytes_pushed", "bytes_pulled", "wire_bytes_out", "wire_bytes_in", "cpu_ms")
        if name in after
    }
    figures["iteration_ms"] = statistics.fmean(times)
    figures["median_iteration_ms"] = statistics.median(times)
    if "wait_s" in after:
        figures["wait_ms"] = 1e3 * (after["wait_s"] - before["wait_s"]) / steps
    if charged[-1]:
        figures["charged_iteration_ms"] = statistics.median(
            step - arithmetic for step, arithmetic in zip(times, spent)
        )
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", required=True)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--accelerator", type=float, metavar="MS")
    parser.add_argument("--describe_model", help="the program that knows models' tensors")
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threshold", default="4096")
    parser.add_argument("--interface", required=True, help="the node's link")
    parser.add_argument("--daemons", type=int, nargs="*", default=[], metavar="PID")
    parser.add_argument("--report", required=True)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    waits = flags.accelerator is not None
    model, loss_of = (
        waited_for(flags.describe_model, flags.accelerator) if waits else trained(flags.batch)
    )
    system = torch_systems.compared(flags.accelerator)[flags.system]
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    exchange = exchanges.make(system, model, sgd, flags.threshold, waits)
    meters = Meters(flags.interface, flags.daemons)
    print("ready", flush=True)
    sys.stdin.readline()
    figures = run(exchange, loss_of, meters, flags.warmup, flags.steps)
    exchange.close()
    with open(flags.report, "w", encoding="utf-8") as out:
        json.dump(figures, out)
    if system.exchange == "ddp":
        # An interpreter that ends while one of gloo's threads is in a hook's Python aborts.
        os._exit(0)


if __name__ == "__main__":
    main()
