# SPDX-License-Identifier: Apache-2.0
"""One process of slimps bench gpu: trains a model on random samples by one system.

--about prints what GPU is here, or why there is none. Otherwise it prints {"ready": true} and,
after a line on stdin, figures, or {"why_not": ...} where torch cannot run the system here. It ends
after another line. Its place in a slimps job comes from DMLC_*.
"""

import argparse
import json
import sys
import time

import accelerator
import device_codec
import gpu_models
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

LR = 0.01
# Options of slimps.kv.create, and then of DistributedOptimizer.
SLIMPS = {
    "fp32": ({}, {}),
    "1bit": ({"compression": "1bit"}, {}),
    "2bit": ({"compression": "2bit"}, {}),
    "1bit_2way": ({"compression": "1bit", "pull_compression": "1bit"}, {"backup_model": True}),
}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--about", action="store_true")
    parser.add_argument("--system", help="KIND or KIND_WHAT; KIND: alone, device, ddp or slimps")
    parser.add_argument("--model", choices=list(gpu_models.MODELS))
    parser.add_argument("--batch", type=int)
    parser.add_argument("--warmup", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--threshold", type=int, help="of slimps' compression, in bytes")
    parser.add_argument("--gpus", type=int, help="processes take them in turn")
    parser.add_argument("--kernels", help="levels_kernels.ptx")
    parser.add_argument("--rank", type=int, default=0, help="in a group of torch.distributed")
    parser.add_argument("--world", type=int)
    parser.add_argument("--backend", help="of that group")
    parser.add_argument("--meeting", help="a file at which that group meets")
    return parser.parse_args(arguments)


class Training:
    """A model in training without exchange. SGD has no momentum, so a GPU holds no state of it."""

    def __init__(self, flags, gpu):
        self.gpu = gpu
        made = gpu_models.make(flags.model, flags.batch, gpu.device)
        self.model, self.samples, self.labels = made
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.model(self.samples)
        torch.nn.functional.cross_entropy(scores, self.labels).backward()
        self.after_backward()
        self.optimizer.step()

    def after_backward(self):
        """Does what the system does with the gradients; the step waits for the stream alone."""

    def before_steps(self):
        """Is called before the first step that counts."""

    def figures(self, steps):
        """Returns this system's own figures, after so many steps."""
        return {}

    def close(self):
        pass


class OnDevice(Training):
    """Compresses the gradients on the GPU, and sends nothing."""

    def __init__(self, flags, gpu, codec):
        super().__init__(flags, gpu)
        self.codec = device_codec.DeviceCodec(codec, self.model.parameters(), gpu.launch)

    def after_backward(self):
        self.codec.encode()

    def figures(self, steps):
        return {"kernels_ms": self.gpu.busy_ms(self.codec.encode)}


class Ddp(Training):
    def __init__(self, flags, gpu, hook):
        super().__init__(flags, gpu)
        dist.init_process_group(
            flags.backend,
            init_method="file://" + flags.meeting,
            rank=flags.rank,
            world_size=flags.world,
        )
        # gloo aborts where PowerSGD has small buckets.
        buckets = {"bucket_cap_mb": 100} if hook == "powersgd" else {}
        self.model = DistributedDataParallel(self.model, **buckets)
        if hook == "bf16":
            self.model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        elif hook == "powersgd":
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=4, start_powerSGD_iter=2
            )
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def close(self):
        dist.destroy_process_group()


class Slimps(Training):
    """Compresses on the CPU: gradients are copied to the host while backward goes on."""

    def __init__(self, flags, store, gpu, options):
        import slimps.torch  # not imported for the other systems, which run without it

        super().__init__(flags, gpu)
        self.store = store
        self.optimizer = slimps.torch.DistributedOptimizer(
            self.optimizer, self.model.named_parameters(), store=store, **options
        )

    def before_steps(self):
        self.before = self.optimizer.totals()

    def figures(self, steps):
        after = self.optimizer.totals()
        return {
            "copies_ms": self.gpu.busy_ms(self._copier()),
            "encode_ms": 1e3 * (after["encode_s"] - self.before["encode_s"]) / steps,
            "wait_ms": 1e3 * (after["wait_s"] - self.before["wait_s"]) / steps,
        }

    def _copier(self):
        gradients = [parameter.grad for parameter in self.model.parameters()]
        copies = [(gradient, self.gpu.pinned(gradient)) for gradient in gradients]

        def copy():
            for gradient, pinned in copies:
                pinned.copy_(gradient, non_blocking=True)

        return copy

    def close(self):
        self.optimizer.close()
        self.store.close()


def make(flags, gpu_of):
    """Returns the training. `gpu_of(rank)` returns the process's GPU."""
    kind, _, what = flags.system.partition("_")
    if kind == "slimps":
        import slimps.kv

        compression, options = SLIMPS[what]
        thresholds = {
            name: flags.threshold
            for name, codec in (
                ("threshold", "compression"),
                ("pull_threshold", "pull_compression"),
            )
            if codec in compression
        }
        store = slimps.kv.create("dist_sync", **compression, **thresholds)
        return Slimps(flags, store, gpu_of(store.rank), options)
    gpu = gpu_of(flags.rank)
    if kind == "device":
        return OnDevice(flags, gpu, what)
    return Ddp(flags, gpu, what) if kind == "ddp" else Training(flags, gpu)


def measure(flags, training):
    """Trains, and returns the figures."""
    gpu = training.gpu
    for _ in range(flags.warmup):
        training.step()
    gpu.synchronize()
    gpu.forget_peak()
    training.before_steps()
    times = []
    for _ in range(flags.repeats):
        begun = time.monotonic()
        for _ in range(flags.steps):
            training.step()
        gpu.synchronize()
        times.append(1e3 * (time.monotonic() - begun) / flags.steps)
    figures = {
        "step_ms_of_repeats": times,
        "peak_bytes": gpu.peak_bytes(),
        "bytes_in_use": gpu.bytes_in_use(),
    }
    figures.update(training.figures(flags.steps * flags.repeats))
    return figures


def answer(flags, gpu_of):
    """Returns the training and its figures, or None and why torch cannot run it."""
    try:
        training = make(flags, gpu_of)
        return training, measure(flags, training)
    except (RuntimeError, TypeError) as error:  # TypeError: register_comm_hook's
        if not flags.system.startswith("ddp"):
            raise
        return None, {"why_not": str(error).splitlines()[0]}


def serve(flags, gpu_of):
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    training, figures = answer(flags, gpu_of)
    print(json.dumps(figures), flush=True)
    sys.stdin.readline()  # the bench now expects the job to end
    if training is not None:
        training.close()


def main(arguments):
    flags = parse(arguments)
    if flags.about:
        reason = accelerator.why_not()
        print(json.dumps({"why_not": reason} if reason else accelerator.about()))
    else:
        serve(flags, lambda rank: accelerator.Gpu(flags.kernels, rank % flags.gpus))


if __name__ == "__main__":
    main(sys.argv[1:])
