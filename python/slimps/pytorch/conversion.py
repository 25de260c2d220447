# SPDX-License-Identifier: Apache-2.0
"""Converts torch optimizers, by their options, to slimps optimizers. Does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Sequence, Union

from slimps import _said_once
from slimps import optimizer as _optimizer
from slimps.errors import InvalidArgumentError

if TYPE_CHECKING:
    from slimps import kv

# _TAKEN: the options that the servers have. _FIXED: options that the servers lack, with the value
# that they must have. Other options do not matter: how torch computes (foreach, fused), a
# scheduler's notes (initial_lr, max_lr), a group's name.
_TAKEN: Dict[str, Sequence[str]] = {
    "SGD": ("lr", "weight_decay", "momentum", "nesterov"),
    "Adam": ("lr", "weight_decay", "betas", "eps", "decoupled_weight_decay"),
    "AdamW": ("lr", "weight_decay", "betas", "eps"),
}
_FIXED: Dict[str, Dict[str, Any]] = {
    "SGD": {"dampening": 0, "maximize": False},
    "Adam": {"amsgrad": False, "maximize": False},
    "AdamW": {"amsgrad": False, "maximize": False},
}


def known_to_servers(kind: str, group: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the options of a parameter group that matter to the servers."""
    return {name: group[name] for name in (*_TAKEN[kind], *_FIXED[kind]) if name in group}


def _options(optimizer: Any, kind: str, by_group: Sequence[str]) -> Dict[str, Any]:
    groups = [known_to_servers(kind, group) for group in optimizer.param_groups]
    for number, group in enumerate(groups):
        for name, value in group.items():
            if name not in by_group and value != groups[0].get(name):
                raise InvalidArgumentError(
                    "torch.optim.%s: parameter group %d has %s=%r and group 0 %r; expected equal "
                    "options, since the servers have one for all keys"
                    % (kind, number, name, value, groups[0].get(name))
                )
    return groups[0]


def is_torchs(optimizer: Any) -> bool:
    """True if the optimizer's class is one of torch's own, not another class of the same name."""
    return type(optimizer).__module__.startswith("torch.optim.")


def warn_of_one_bit(optimizer: Any, store: kv.KVStore) -> None:
    """Warns once, on rank 0, if plain `1bit` carries the gradients of Adam or AdamW."""
    kind = type(optimizer).__name__
    if store.rank == 0 and store.codec_is_one_bit and kind in ("Adam", "AdamW"):
        _said_once.warn(
            "1bit with Adam",
            'compression="1bit" with %s: the variance grows by what the codec adds to gradients, '
            "so the loss stays behind; expected 1-bit Adam, "
            'DistributedOptimizer(..., freeze_after="auto"), or four bits, '
            'compression="qsgd:bits=4,norm=max,error_feedback=on"' % kind,
        )


def convert(
    optimizer: Any, by_group: Sequence[str] = (), freeze_after: Union[int, str, None] = None
) -> _optimizer.Optimizer:
    """Returns the slimps optimizer with the same options.

    Groups may differ in the options `by_group`, for which group 0 counts. With `freeze_after`,
    torch's AdamW, or Adam without weight decay, becomes OneBitAdam.
    InvalidArgumentError: another kind of optimizer, groups that differ in other options, or an
        option that the servers do not have.
    """
    kind = type(optimizer).__name__
    if kind not in _FIXED or not is_torchs(optimizer):
        module = "torch.optim" if is_torchs(optimizer) else type(optimizer).__module__
        raise InvalidArgumentError(
            "optimizer: expected torch.optim.SGD, Adam or AdamW, or DistributedDataParallel with "
            "slimps.torch.comm_hook, which takes every optimizer; got %s.%s" % (module, kind)
        )
    options = _options(optimizer, kind, by_group)
    for name, fixed in _FIXED[kind].items():
        if options.get(name, fixed) != fixed:
            raise InvalidArgumentError(
                "torch.optim.%s: the servers have no %s; expected %r, got %r"
                % (kind, name, fixed, options[name])
            )
    common = {"learning_rate": float(options["lr"]), "wd": options["weight_decay"]}
    if kind == "SGD":
        if freeze_after is not None:
            raise InvalidArgumentError(
                "freeze_after: expected torch.optim.Adam or AdamW, got torch.optim.SGD"
            )
        return _optimizer.SGD(momentum=options["momentum"], nesterov=options["nesterov"], **common)
    beta1, beta2 = options["betas"]
    # Adam(decoupled_weight_decay=True) is AdamW.
    decoupled = kind == "AdamW" or optimizer.param_groups[0].get("decoupled_weight_decay", False)
    if freeze_after is not None:
        if not decoupled and any(group["weight_decay"] for group in optimizer.param_groups):
            raise InvalidArgumentError(
                "freeze_after with torch.optim.Adam: expected weight_decay 0 or torch.optim.AdamW, "
                "since 1-bit Adam's weight decay is decoupled"
            )
        if freeze_after != "auto" and not (isinstance(freeze_after, int) and freeze_after >= 1):
            raise InvalidArgumentError(
                'freeze_after: expected a number of steps from 1, "auto" or None, got %r'
                % (freeze_after,)
            )
        rounds: Any = None if freeze_after == "auto" else freeze_after
        return _optimizer.OneBitAdam(
            beta1=beta1, beta2=beta2, epsilon=options["eps"], freeze_after=rounds, **common
        )
    made = _optimizer.AdamW if decoupled else _optimizer.Adam
    return made(beta1=beta1, beta2=beta2, epsilon=options["eps"], **common)
