# SPDX-License-Identifier: Apache-2.0
"""How a worker of slimps bench torch exchanges gradients.

    exchange = exchanges.make(system, model, sgd, threshold="4096", waits=False)
    for _ in steps:
        exchange.zero_grad()
        loss_of(exchange.model).backward()
        exchange.step()
    exchange.close()
"""

import ddp_hooks
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


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
    """DistributedDataParallel over gloo, as it is or with a hook of ddp_hooks."""

    def __init__(self, model, optimizer, hooks, **options):
        dist.init_process_group("gloo")
        self._hooks = hooks
        if hooks is None:
            super().__init__(DistributedDataParallel(model, **options), optimizer)
        else:
            wrapped = DistributedDataParallel(model, **hooks.options, **options)
            wrapped.register_comm_hook(None, hooks.hook)
            super().__init__(wrapped, optimizer)

    @property
    def arithmetic_s(self):
        return self._hooks.arithmetic_s if self._hooks else 0.0

    def close(self):
        if self._hooks:
            self._hooks.finish()


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
    hooks = dict(system.options)
    kind = hooks.pop("kind", None)
    return DataParallel(
        model,
        optimizer,
        ddp_hooks.KINDS[kind](**hooks) if kind else None,
        gradient_as_bucket_view=waits,
    )
