# SPDX-License-Identifier: Apache-2.0
"""Checks DistributedOptimizer's arguments."""

from __future__ import annotations

import numbers
from typing import Optional

from slimps import native
from slimps.errors import InvalidArgumentError


def settings_of(
    passes: int,
    non_finite: str,
    clip_gradient: Optional[float],
    clip_norm: Optional[float],
    backup_model: bool,
    local_lr: Optional[float],
    overlap_forward: bool,
) -> native.ExchangeSettings:
    """Returns the exchange's settings. InvalidArgumentError: an argument makes no sense."""
    if not isinstance(passes, int) or passes < 1:
        raise InvalidArgumentError(
            "backward_passes_per_step: expected an int from 1, got %r" % (passes,)
        )
    if non_finite not in ("stop", "skip"):
        raise InvalidArgumentError(
            "non_finite: expected \"stop\" or \"skip\", got %r" % (non_finite,)
        )
    check_limit("clip_gradient", clip_gradient)
    check_limit("clip_norm", clip_norm)
    check_limit("local_lr", local_lr)
    if local_lr is not None and not backup_model:
        raise InvalidArgumentError(
            "local_lr: is the backup model's; expected backup_model=True beside it"
        )
    return native.ExchangeSettings(
        backup_model=backup_model,
        local_lr=local_lr,
        skip_non_finite=non_finite == "skip",
        clip_norm=clip_norm,
        overlap_forward=overlap_forward,
    )


def check_limit(name: str, limit: Optional[float]) -> None:
    if limit is None or isinstance(limit, numbers.Real) and 0 < limit < float("inf"):
        return
    raise InvalidArgumentError(
        "%s: expected a finite number above 0, or None, got %r" % (name, limit)
    )
