# SPDX-License-Identifier: Apache-2.0
"""How a worker of slimps bench torch exchanges gradients.

    exchange = exchanges.make(system, model, sgd, threshold="4096", waits=False)
    for _ in steps:
        exchange.zero_grad()
        loss_of(exchange.model).backward()
        exchange.step()
    exchange.close()
"""

import time
import types

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

ONE_BUCKET_MB = 1 << 20  # PowerSGD over gloo aborts with several


class Exchange:
    """No exchange, which is the base of the others. `optimizer` is None where nothing is stepped.

    arithmetic_s   seconds that the exchange's arithmetic took of the training so far
    """

    arithmetic_s = 0.0

    def __init__(self, model, optimizer):
        self.model, self._optimizer = model, optimizer

    def zero_grad(self):
        (self._optimizer or self.model).zero_grad()

    def step(self):
        if self._optimizer is not None:
            self._optimizer.step()

    def totals(self):
        """Returns DistributedOptimizer.totals(); None: slimps exchanges nothing here."""
        return None

    def close(self):
        pass


class Slimps(Exchange):
    """DistributedOptimizer, whose steps run on the servers."""

    def __init__(self, model, sgd, threshold, options):
        import slimps.torch  # not imported for gloo's systems, which run without it

        options = dict(options)
        threshold = threshold if threshold == "auto" else int(threshold)
        for name, codec in (("threshold", "compression"), ("pull_threshold", "pull_compression")):
            if codec in options:
                options.setdefault(name, threshold)
        super().__init__(
            model, slimps.torch.DistributedOptimizer(sgd, model.named_parameters(), **options)
        )

    def totals(self):
        return self._optimizer.totals()

    def close(self):
        self._optimizer.close()


class DataParallel(Exchange):
    """DistributedDataParallel over gloo, as it is or with one of torch's hooks by its name."""

    def __init__(self, model, optimizer, hook=None, **options):
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        super().__init__(DistributedDataParallel(model, **options), optimizer)
        if hook is not None:
            self.model.register_comm_hook(None, getattr(default_hooks, hook))


class TimedReductions:
    """torch.distributed as a hook sees it. Notes the seconds in which all-reduces are under way."""

    def __init__(self):
        self.seconds = 0.0

    def __getattr__(self, name):
        return getattr(dist, name)

    def all_reduce(self, *arguments, **options):
        began = time.monotonic()
        reducing = dist.all_reduce(*arguments, **options).get_future()

        def completed(future):
            self.seconds += time.monotonic() - began
            return future.value()

        timed = reducing.then(completed)
        return types.SimpleNamespace(get_future=lambda: timed)


class PowerSgd(DataParallel):
    """torch's PowerSGD hook. One bucket, so that its arithmetic and all-reduces are in turn.

    Its arithmetic is the time between the hook's call and its result, less the all-reduces.
    """

    def __init__(self, model, optimizer, rank, **options):
        super().__init__(model, optimizer, bucket_cap_mb=ONE_BUCKET_MB, **options)
        self._reductions = powerSGD_hook.dist = TimedReductions()
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=rank, start_powerSGD_iter=2
        )
        self.model.register_comm_hook(state, self._hook)

    def _hook(self, state, bucket):
        began, reduced = time.monotonic(), self._reductions.seconds

        def completed(future):
            waited = self._reductions.seconds - reduced
            self.arithmetic_s += time.monotonic() - began - waited
            return future.value()

        return powerSGD_hook.powerSGD_hook(state, bucket).then(completed)


class Delayed(DataParallel):
    """Hands out last step's mean, so that this step's is reduced while the next step computes."""

    def __init__(self, model, optimizer, **options):
        super().__init__(model, optimizer, **options)
        self._first = True
        self._flights = {}  # bucket -> (its newest mean's future, its memory, memory to reuse)
        self.model.register_comm_hook(None, self._hook)

    def _hook(self, _, bucket):
        if self._first:  # after it DistributedDataParallel makes its buckets anew
            self._first = not bucket.is_last()
            return default_hooks.allreduce_hook(None, bucket)
        gradient = bucket.buffer()
        before, reduced, memory = self._flights.get(
            bucket.index(), (None, torch.empty_like(gradient), torch.empty_like(gradient))
        )
        torch.div(gradient, dist.get_world_size(), out=memory)
        mean = (
            dist.all_reduce(memory, async_op=True).get_future().then(lambda done: done.value()[0])
        )
        self._flights[bucket.index()] = (mean, memory, reduced)
        if before is None:  # nothing was reduced before: a step by nothing
            before = torch.futures.Future()
            before.set_result(gradient.zero_())
        return before

    def close(self):
        torch.futures.wait_all([mean for mean, _, _ in self._flights.values()])


BY_KIND = {"plain": DataParallel, "powersgd": PowerSgd, "delayed": Delayed}


def make(system, model, sgd, threshold, waits):
    """Returns the exchange of a system of torch_systems.

    waits   an accelerator is waited for: only slimps' servers step, and no gradient is copied back
            from DistributedDataParallel's buckets
    """
    if system.exchange == "slimps":
        return Slimps(model, sgd, threshold, system.options)
    optimizer = None if waits else sgd
    if system.exchange == "alone":
        return Exchange(model, optimizer)
    options = dict(system.options, gradient_as_bucket_view=waits)
    return BY_KIND[options.pop("kind", "plain")](model, optimizer, **options)
