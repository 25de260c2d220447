# SPDX-License-Identifier: Apache-2.0
"""Hooks of DistributedDataParallel that slimps bench torch compares with.

    hooks = ddp_hooks.PowerSgd(rank=4)
    model = DistributedDataParallel(model, **hooks.options)
    model.register_comm_hook(None, hooks.hook)
    hooks.finish()    # after the last step
"""

import time
import types

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook


class Default:
    """One of torch's default hooks, by its name. The base of the others.

    options        what DistributedDataParallel takes beside the hook
    arithmetic_s   seconds of the hook's arithmetic so far, if it is measured
    """

    options = {}
    arithmetic_s = 0.0

    def __init__(self, hook):
        self.hook = getattr(default_hooks, hook)

    def finish(self):
        """Waits for what is still being reduced."""


class TimedReductions:
    """torch.distributed as a hook sees it. Notes the seconds in which all-reduces are under way."""

    def __init__(self):
        self.seconds = 0.0

    def __getattr__(self, name):
        return getattr(dist, name)

    def all_reduce(self, *arguments, **options):
        began = time.monotonic()

        def completed(future):
            self.seconds += time.monotonic() - began
            return future.value()

        timed = dist.all_reduce(*arguments, **options).get_future().then(completed)
        return types.SimpleNamespace(get_future=lambda: timed)


class PowerSgd(Default):
    """torch's PowerSGD hook. Its arithmetic is what it takes from call to result, less all-reduces.

    One bucket: over gloo it aborts with several, and so its parts follow each other.
    """

    options = {"bucket_cap_mb": 1 << 20}

    def __init__(self, rank):
        self.state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=rank, start_powerSGD_iter=2
        )
        self._reductions = powerSGD_hook.dist = TimedReductions()

    def hook(self, _, bucket):
        began, reduced = time.monotonic(), self._reductions.seconds

        def completed(future):
            waited = self._reductions.seconds - reduced
            self.arithmetic_s += time.monotonic() - began - waited
            return future.value()

        return powerSGD_hook.powerSGD_hook(self.state, bucket).then(completed)


class Delayed(Default):
    """Returns last step's mean, so that this step's is reduced while the next step computes."""

    def __init__(self):
        self._first = True
        self._flights = {}  # bucket -> (its newest mean's future, its memory, memory to reuse)

    def hook(self, _, bucket):
        if self._first:  # after that step DistributedDataParallel makes its buckets anew
            self._first = not bucket.is_last()
            return default_hooks.allreduce_hook(None, bucket)
        gradient = bucket.buffer()
        before, reduced, memory = self._flights.get(
            bucket.index(), (None, torch.empty_like(gradient), torch.empty_like(gradient))
        )
        torch.div(gradient, dist.get_world_size(), out=memory)
        reducing = dist.all_reduce(memory, async_op=True).get_future()
        mean = reducing.then(lambda done: done.value()[0])
        self._flights[bucket.index()] = (mean, memory, reduced)
        if before is None:  # nothing was reduced before: a step by nothing
            before = torch.futures.Future()
            before.set_result(gradient.zero_())
        return before

    def finish(self):
        torch.futures.wait_all([mean for mean, _, _ in self._flights.values()])


KINDS = {"default": Default, "powersgd": PowerSgd, "delayed": Delayed}
