# SPDX-License-Identifier: Apache-2.0
"""Scalars: what this worker has exchanged, step by step, for TensorBoard."""

from __future__ import annotations

from typing import Any, Dict

from slimps.errors import InvalidArgumentError

# Sums, of which log() writes the mean of a step.
_SUMS = (
    "raw_bytes_pushed",
    "bytes_pushed",
    "bytes_pulled",
    "copy_s",
    "encode_s",
    "send_s",
    "wait_s",
    "decode_s",
    "local_update_s",
)
_STATES = ("compression_gain", "compression_error")
_THRESHOLDS = ("threshold_bytes", "pull_threshold_bytes")


class Scalars:
    """Writes a worker's figures through a SummaryWriter, or whatever has its add_scalar.

        scalars = slimps.torch.Scalars(SummaryWriter(), optimizer)
        for step, batch in enumerate(batches):
            ...
            scalars.log(step)

    writer      its add_scalar(tag, value, step) is called
    source      a DistributedOptimizer, a CommHookState or a KVStore, which is open
    first_step  the number of the next step
    prefix      what the tags begin with

    The tags are those of totals() and decision(). Bytes and seconds are means of the steps since
    log() was called before:
        slimps/bytes_pushed, bytes_pulled        payloads
        slimps/raw_bytes_pushed                  the same gradients in fp32
        slimps/copy_s, encode_s, send_s, wait_s, decode_s, local_update_s
        slimps/overlap                           of a DistributedOptimizer: the part of the time of
                                                 communication in which training did not wait
        slimps/compression_gain, compression_error
        slimps/threshold_bytes, pull_threshold_bytes
                                                 once they are decided, and unless no size pays
    """

    def __init__(
        self, writer: Any, source: Any, *, first_step: int = 0, prefix: str = "slimps/"
    ) -> None:
        self._writer = writer
        self._source = source
        self._store = getattr(source, "store", source)
        self._prefix = prefix
        self._next_step = first_step
        self._before: Dict[str, float] = source.totals()

    def log(self, step: int) -> None:
        """Writes the figures of the steps up to `step`, which has ended.

        InvalidArgumentError: `step` is not behind those of the call before.
        """
        steps = step + 1 - self._next_step
        if steps < 1:
            raise InvalidArgumentError(
                "Scalars.log: expected a step from %d on, got %d" % (self._next_step, step)
            )
        totals = self._source.totals()
        spent = {name: totals[name] - self._before[name] for name in totals}
        self._before, self._next_step = totals, step + 1
        found = {name: spent[name] / steps for name in _SUMS if name in spent}
        found.update((name, totals[name]) for name in _STATES)
        if spent.get("overlap_s", 0.0) + spent["wait_s"] > 0 and "overlap_s" in spent:
            found["overlap"] = spent["overlap_s"] / (spent["overlap_s"] + spent["wait_s"])
        decision = self._store.decision() or {}
        found.update(
            (name, decision[name]) for name in _THRESHOLDS if decision.get(name) is not None
        )
        for name, value in found.items():
            self._writer.add_scalar(self._prefix + name, value, step)
