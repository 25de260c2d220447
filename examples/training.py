# SPDX-License-Identifier: Apache-2.0
"""What the torch examples share: flags, each worker's part of the data, the report of a run."""

import argparse
import contextlib
import io
import os
import sys
import time

import numpy as np
import slimps
import slimps.torch
import torch
import torch.distributed as dist
import tqdm


def parser(description, epochs, batch, lr):
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument(
        "--mode",
        choices=["plain", "optimizer", "ddp", "gloo"],
        default="optimizer",
        help="plain: one process without slimps; optimizer: slimps.torch.DistributedOptimizer; "
        "ddp: DistributedDataParallel with slimps.torch.comm_hook; gloo: without it, to compare "
        "(docs/python.md)",
    )
    made.add_argument("--epochs", type=int, default=epochs)
    made.add_argument("--batch", type=int, default=batch, help="of each worker")
    made.add_argument("--lr", type=float, default=lr)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--max_steps", type=int, default=0, help="0: all")
    made.add_argument(
        "--compression", default="none", help="codec, as 1bit (not under Adam) or qsgd:bits=4"
    )
    made.add_argument(
        "--threshold", default="auto", help="bytes from which tensors are compressed, or auto"
    )
    made.add_argument("--pull_compression", default="none")
    made.add_argument("--pull_threshold", default="auto")
    made.add_argument(
        "--backup_model",
        choices=["on", "off"],
        default="off",
        help="of the mode optimizer. on: SlimGC's; the network is hidden behind the next step, one "
        "round of lag",
    )
    made.add_argument(
        "--freeze_after",
        default="",
        help="of the mode optimizer, for Adam: steps after which it goes on as 1-bit Adam, or auto",
    )
    made.add_argument("--emulate_link", default="", help="as 100mbit")
    made.add_argument(
        "--checkpoint_every",
        type=int,
        default=0,
        help="of the mode optimizer, without --backup_model: steps between two checkpoints in "
        "slimps launch --checkpoint DIR, from which the run goes on; 0: none",
    )
    made.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="cuda: the workers of a machine take its GPUs in turn",
    )
    return made


def device(flags):
    """Returns the device to train on."""
    if flags.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SystemExit("--device=cuda: torch %s finds no GPU here" % torch.__version__)
    place = int(os.environ.get("LOCAL_RANK", 0))  # set by slimps launch and torchrun
    return torch.device("cuda", place % torch.cuda.device_count())


def store_options(flags):
    """Returns the flags that DistributedOptimizer and CommHookState take, as their arguments."""

    def threshold(text):
        return text if text == "auto" else int(text)

    options = {
        "compression": flags.compression,
        "threshold": threshold(flags.threshold),
        "pull_compression": flags.pull_compression,
        "pull_threshold": threshold(flags.pull_threshold),
    }
    if flags.emulate_link:
        options["emulate_link"] = flags.emulate_link
    return options


def freeze_after(flags):
    if flags.freeze_after in ("", "auto"):
        return flags.freeze_after or None
    return int(flags.freeze_after)


class Run:
    """One worker's run: model and optimizer, wrapped as the mode needs. A context manager.

    with Run(flags, model, torch.optim.SGD(...)) as run:
        for step in run.steps(len(images)):
            loss = ...; run.step(loss)
    """

    def __init__(self, flags, model, optimizer):
        self.flags = flags
        self.model = model
        self.optimizer = optimizer
        self.rank, self.workers = 0, 1
        self._parameters = sum(
            parameter.numel() for parameter in model.parameters() if parameter.requires_grad
        )
        self._first = self._steps = self._samples = 0  # steps: before this run, and of it
        self._exchange = None  # has totals()

    def __enter__(self):
        if self.flags.checkpoint_every > 0 and self.flags.mode != "optimizer":
            raise SystemExit("--checkpoint_every: expected --mode optimizer")
        self._ended = contextlib.ExitStack()
        if self.flags.mode == "optimizer":
            self.optimizer = self._exchange = self._ended.enter_context(
                slimps.torch.DistributedOptimizer(
                    self.optimizer,
                    self.model.named_parameters(),
                    backup_model=self.flags.backup_model == "on",
                    freeze_after=freeze_after(self.flags),
                    **store_options(self.flags),
                )
            )
        elif self.flags.mode in ("ddp", "gloo"):
            # slimps launch and torchrun set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
            dist.init_process_group("gloo")
            self.rank, self.workers = dist.get_rank(), dist.get_world_size()
            if self.flags.mode == "ddp":
                self._exchange = self._ended.enter_context(
                    slimps.torch.CommHookState(
                        self.model.named_parameters(), **store_options(self.flags)
                    )
                )
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
            if self.flags.mode == "ddp":
                self.model.register_comm_hook(self._exchange, slimps.torch.comm_hook)
        if self._exchange is not None:
            self.rank, self.workers = self._exchange.store.rank, self._exchange.store.num_workers
            slimps.torch.broadcast_parameters(self._plain().named_buffers(), self._exchange.store)
            self._first = self._exchange.store.former_rounds
            if self.flags.checkpoint_every > 0:
                self._resume()
            self._before = self._exchange.totals()
        self._start = time.monotonic()
        return self

    def __exit__(self, *error):
        return self._ended.__exit__(*error)

    def _resume(self):
        """Goes on where the job is: after a checkpoint, or where this worker's former process was.

        Weights are the servers'. The model's buffers are each worker's own.
        """
        found = self.optimizer.resume()
        self._first = found.rounds
        if found.own_state:
            buffers = torch.load(io.BytesIO(found.own_state))
            for name, buffer in self.model.named_buffers():
                buffer.copy_(buffers[name])

    def _save(self):
        buffers = io.BytesIO()
        torch.save(dict(self.model.named_buffers()), buffers)
        self.optimizer.save_step(self._first + self._steps, buffers.getvalue())

    def _plain(self):
        return self.model.module if self.flags.mode in ("ddp", "gloo") else self.model

    def steps(self, count):
        """Yields the indices of this worker's samples, step by step, out of `count` samples.

        All workers shuffle the samples alike; a worker takes every num_workers-th of them.
        """
        per_epoch = count // (self.workers * self.flags.batch)
        if per_epoch == 0:
            raise SystemExit(
                "--batch=%d: %d samples are too few for %d workers"
                % (self.flags.batch, count, self.workers)
            )
        total = per_epoch * self.flags.epochs
        total = min(total, self.flags.max_steps or total)
        bar = tqdm.tqdm(total=total, unit="step", disable=self.rank != 0 or not sys.stderr.isatty())
        with bar:
            bar.update(self._first)
            for step in range(self._first, total):
                epoch, place = divmod(step, per_epoch)
                order = np.random.default_rng((self.flags.seed, epoch)).permutation(count)
                mine = order[self.rank :: self.workers]
                yield torch.from_numpy(
                    mine[place * self.flags.batch : (place + 1) * self.flags.batch]
                )
                bar.update()

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self._steps += 1
        self._samples += self.flags.batch
        every = self.flags.checkpoint_every
        if every > 0 and (self._first + self._steps) % every == 0:
            self._save()

    def report(self, evaluate, what):
        """Evaluates the servers' weights on rank 0 and prints the run's last line.

        It is the last call of a run: the other workers do not wait for it.
        """
        seconds = time.monotonic() - self._start
        held = (
            self.optimizer.global_weights()
            if self.flags.mode == "optimizer"
            else contextlib.nullcontext()
        )
        with held:
            if self.rank == 0:
                self._plain().eval()
                with torch.no_grad():
                    print(
                        "%s, %s" % (what % evaluate(self._plain()), self._figures(seconds)),
                        flush=True,
                    )

    def _figures(self, seconds):
        speed = "%.0f samples/s" % (self._samples * self.workers / seconds)
        if self._exchange is None:
            return speed
        totals = {
            name: figure - self._before[name] for name, figure in self._exchange.totals().items()
        }
        ratio = 4 * self._parameters * self._steps / max(1, totals["bytes_pushed"])
        return "%s, pushed %.2f MB, pulled %.2f MB a worker, ratio %.1f" % (
            speed,
            totals["bytes_pushed"] / 1e6,
            totals["bytes_pulled"] / 1e6,
            ratio,
        )
