# SPDX-License-Identifier: Apache-2.0
"""Checks DistributedOptimizer's arguments."""

from __future__ import annotations

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
    if clip_gradient is not None and not clip_gradient > 0:
        raise InvalidArgumentError(
            "clip_gradient: expected above 0, or None, got %r" % (clip_gradient,)
        )
    check_clip_norm(clip_norm)
    if local_lr is not None and not backup_model:
        raise InvalidArgumentError(
            "local_lr: is the backup model's; expected backup_model=True beside it"
        )
    if local_lr is not None and not local_lr > 0:
        raise InvalidArgumentError("local_lr: expected above 0, or None, got %r" % (local_lr,))
    return native.ExchangeSettings(
        backup_model=backup_model,
        local_lr=local_lr,
        skip_non_finite=non_finite == "skip",
        clip_norm=clip_norm,
    )


def check_clip_norm(clip_norm: Optional[float]) -> None:
    if clip_norm is not None and not 0 < clip_norm < float("inf"):
        raise InvalidArgumentError("clip_norm: expected above 0, or None, got %r" % (clip_norm,))
