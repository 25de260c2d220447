# SPDX-License-Identifier: Apache-2.0
"""Optimizers that the servers run, by MXNet's names and arguments.

    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=1e-4,
    rescale_grad=1 / batch))

A round's gradient is the sum over workers and devices, never the mean; `rescale_grad` can turn it
into the mean. With g = clip(rescale_grad * sum, +-clip_gradient), element by element in float32:

    SGD    g += wd * w;  m = momentum * m + g;  w -= lr * m
           nesterov: w -= lr * (g + momentum * m)
    Adam   g += wd * w;  m, v as published;  w -= lr * m_hat / (sqrt(v_hat) + epsilon)
    AdamW  w *= 1 - lr * wd, then as Adam without wd
    OneBitAdam  as AdamW during a warm-up; then v_hat is frozen, and workers and servers
           exchange compressed momenta
    Test   w += g

These are torch's formulas. MXNet's differ: its SGD momentum holds lr * g (equal while lr does not
change), and its Adam adds epsilon before the bias correction.
"""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple, Type

from slimps import native
from slimps.errors import InvalidArgumentError
from slimps.lr_scheduler import LRScheduler


def _check(name: str, value: Any, low: float, high: float = math.inf) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not low <= value <= high
        or math.isinf(value)
    ):
        raise InvalidArgumentError(
            "%s: expected a number from %g%s, got %r"
            % (name, low, "" if math.isinf(high) else " to %g" % high, value)
        )
    return float(value)


class Optimizer:
    """Base class: the arguments that all optimizers have.

    learning_rate    at least 0; None: lr_scheduler's base_lr, or the optimizer's default without
                     one
    wd               weight decay, at least 0
    rescale_grad     multiplies the summed gradient; not 0
    clip_gradient    limit of each element's absolute value after rescaling, above 0; None: no limit
    lr_scheduler     one of slimps.lr_scheduler; None: a constant rate
    multi_precision  has no effect (MXNet has it); the servers always keep float32 weights

    Raises
        InvalidArgumentError: an argument is out of range; the message names it.
    """

    _kind = ""

    def __init__(
        self,
        learning_rate: Optional[float] = None,
        *,
        wd: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: Optional[float] = None,
        lr_scheduler: Optional[LRScheduler] = None,
        multi_precision: bool = False,
        default_lr: float = 0.01,
    ) -> None:
        if lr_scheduler is not None and not isinstance(lr_scheduler, LRScheduler):
            raise InvalidArgumentError(
                "lr_scheduler: expected one of slimps.lr_scheduler, got %s"
                % type(lr_scheduler).__name__
            )
        if learning_rate is None:
            learning_rate = default_lr if lr_scheduler is None else lr_scheduler.base_lr
        self.learning_rate = _check("learning_rate", learning_rate, 0)
        self.wd = _check("wd", wd, 0)
        self.rescale_grad = _check("rescale_grad", rescale_grad, -math.inf)
        if self.rescale_grad == 0:
            raise InvalidArgumentError("rescale_grad: expected a number other than 0")
        self.clip_gradient = (
            None if clip_gradient is None else _check("clip_gradient", clip_gradient, 0)
        )
        if self.clip_gradient == 0:
            raise InvalidArgumentError("clip_gradient: expected above 0, or None, got 0")
        self.lr_scheduler = lr_scheduler
        self.multi_precision = multi_precision

    def spec(self) -> native.OptimizerSpec:
        """Returns the optimizer in the form that is sent to the servers."""
        spec = native.OptimizerSpec()
        spec.kind = self._kind
        spec.learning_rate = self.learning_rate
        spec.weight_decay = self.wd
        spec.rescale_grad = self.rescale_grad
        spec.clip_gradient = self.clip_gradient or 0.0
        if self.lr_scheduler is not None:
            spec.schedule = self.lr_scheduler.spec()
        return spec


class SGD(Optimizer):
    """Stochastic gradient descent.

    `momentum` is from 0 to 1. `nesterov` follows torch's formula and needs a momentum above 0.
    """

    _kind = "SGD"

    def __init__(
        self,
        learning_rate: Optional[float] = None,
        momentum: float = 0.0,
        *,
        nesterov: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(learning_rate, **common)
        self.momentum = _check("momentum", momentum, 0, 1)
        self.nesterov = bool(nesterov)
        if self.nesterov and self.momentum == 0:
            raise InvalidArgumentError("nesterov: needs a momentum above 0")

    def spec(self) -> native.OptimizerSpec:
        spec = super().spec()
        spec.momentum = self.momentum
        spec.nesterov = self.nesterov
        return spec


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015). The betas are at least 0 and below 1, epsilon is above 0."""

    _kind = "ADAM"

    def __init__(
        self,
        learning_rate: Optional[float] = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **common: Any,
    ) -> None:
        super().__init__(learning_rate, default_lr=0.001, **common)
        self.betas: Tuple[float, float] = (
            _check("beta1", beta1, 0, 1),
            _check("beta2", beta2, 0, 1),
        )
        for name, beta in zip(("beta1", "beta2"), self.betas):
            if beta == 1:
                raise InvalidArgumentError("%s: expected below 1, got 1" % name)
        self.epsilon = _check("epsilon", epsilon, 1e-38)

    def spec(self) -> native.OptimizerSpec:
        spec = super().spec()
        spec.beta1, spec.beta2 = self.betas
        spec.epsilon = self.epsilon
        return spec


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    _kind = "ADAMW"


class OneBitAdam(AdamW):
    """1-bit Adam (Tang et al., ICML 2021): Adam that trains with one bit per element, both ways.

    freeze_after     rounds of the warm-up, from 1: AdamW without compression. Then v_hat is frozen
                     and `compression` and `pull_compression` of the store compress momenta. None:
                     until v_hat's sum is at least 0.96 of what it was 1 / (1 - beta2) rounds
                     before, once the schedule's own warm-up is over

    It needs dist_sync, threshold and pull_threshold given as numbers, no backup model, and a pull
    of each key between two pushes of it. A missing gradient counts as zero. Store options for one
    bit: compression="1bit", pull_compression="1bit", threshold=0, pull_threshold=0.
    """

    _kind = "ONEBIT_ADAM"

    def __init__(
        self,
        learning_rate: Optional[float] = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        *,
        freeze_after: Optional[int] = None,
        **common: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **common)
        if freeze_after is not None and (type(freeze_after) is not int or freeze_after < 1):
            raise InvalidArgumentError(
                "freeze_after: expected a number of rounds from 1, or None, got %r"
                % (freeze_after,)
            )
        self.freeze_after = freeze_after

    def spec(self) -> native.OptimizerSpec:
        spec = super().spec()
        spec.freeze_after = self.freeze_after or 0
        return spec


class Test(Optimizer):
    """MXNet's optimizer for tests: weight += rescale_grad * gradient.

    With a `learning_rate` of any sign (MXNet 2.0 and later):
    weight -= learning_rate * rescale_grad * gradient.
    """

    _kind = "TEST"
    __test__ = False  # no test case, whatever its name

    def __init__(
        self, rescale_grad: float = 1.0, *, learning_rate: Optional[float] = None, **common: Any
    ) -> None:
        factor = (
            1.0 if learning_rate is None else -_check("learning_rate", learning_rate, -math.inf)
        )
        super().__init__(rescale_grad=rescale_grad * factor, **common)


_KINDS: Tuple[Type[Optimizer], ...] = (SGD, Adam, AdamW, OneBitAdam, Test)
_BY_NAME = {kind._kind.lower(): kind for kind in _KINDS}


def create(name: str, **options: Any) -> Optimizer:
    """Returns the optimizer `name` ("sgd", "adam", "adamw", "onebit_adam", "test"; in any case).

    Raises
        InvalidArgumentError: there is no optimizer of that name, or an option is out of range.
    """
    kind = _BY_NAME.get(str(name).lower())
    if kind is None:
        raise InvalidArgumentError(
            "optimizer: expected %s, got %r" % (", ".join(sorted(_BY_NAME)), name)
        )
    return kind(**options)


def from_any(optimizer: Any) -> Optimizer:
    """Returns a slimps optimizer as it is; converts a torch optimizer to one with its options.

    Raises
        InvalidArgumentError: `optimizer` is neither, or the servers lack one of its options, which
            the message names.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    from slimps.pytorch import conversion

    if conversion.is_torchs(optimizer):
        return conversion.convert(optimizer)
    raise InvalidArgumentError(
        "optimizer: expected one of slimps.optimizer or torch.optim.SGD, Adam or AdamW, got %s"
        % type(optimizer).__name__
    )
