# SPDX-License-Identifier: Apache-2.0
"""What a store has counted, and what was decided."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar

from slimps.native import structs
from slimps.native.library import check, lib, sized

_Row = TypeVar("_Row", structs.ThresholdRow, structs.KeyCodec)
_TOTALS = (
    "bytes_pushed",
    "bytes_pulled",
    "copy_s",
    "encode_s",
    "send_s",
    "wait_s",
    "decode_s",
    "compression_gain",
    "compression_error",
)
_RAW_BYTES = 4  # of an element


def number(function: Callable[..., int], *arguments: Any) -> int:
    """Returns the number of 32 bits that `function` writes through its last argument."""
    found = ctypes.c_uint32()
    check(function(*arguments, ctypes.byref(found)))
    return found.value


def former_rounds(store: int) -> int:
    rounds = ctypes.c_uint64()
    check(lib.slimps_former_rounds(store, ctypes.byref(rounds)))
    return rounds.value


def timeout_s(store: int) -> float:
    seconds = ctypes.c_double()
    check(lib.slimps_timeout(store, ctypes.byref(seconds)))
    return seconds.value


def totals(store: int) -> Dict[str, float]:
    found, pointer = sized(structs.Totals)
    check(lib.slimps_get_totals(store, pointer))
    raw = {"raw_bytes_pushed": _RAW_BYTES * found.elements_pushed}
    return {**raw, **{name: getattr(found, name) for name in _TOTALS}}


def decision(store: int) -> Optional[Dict[str, Any]]:
    """Returns KVStore.decision()'s dict; None if nothing is decided."""
    found, pointer = sized(structs.Decision)
    check(lib.slimps_get_decision(store, pointer))
    if not found.is_decided:
        return None

    def threshold(size: int) -> Optional[int]:
        return None if size == structs.NOT_COMPRESSED else size

    return {
        "from_round": found.from_round,
        "codec": found.codec.decode("utf-8"),
        "threshold_bytes": threshold(found.threshold_bytes),
        "pull_codec": found.pull_codec.decode("utf-8"),
        "pull_threshold_bytes": threshold(found.pull_threshold_bytes),
        **_policy(store, found),
        "table": [
            {
                "direction": "pull" if row.is_pull else "push",
                "bytes": row.bytes,
                "t_c_ms": row.t_c_ms,
                "t_cq_ms": row.t_cq_ms,
                "t_pq_ms": row.t_pq_ms,
            }
            for row in _listed(lib.slimps_get_threshold_table, structs.ThresholdRow, store)
        ],
    }


def _policy(store: int, found: structs.Decision) -> Dict[str, Any]:
    """Returns what a policy that adapts has decided; empty without one."""
    policy, reason = found.policy.decode("utf-8"), found.reason.decode("utf-8")
    if not policy:
        return {}
    codecs, reasons = {}, {}
    for one in _listed(lib.slimps_get_key_codecs, structs.KeyCodec, store):
        key = one.key.number if one.key.kind == structs.KEY_INT else one.key.text.decode("utf-8")
        codecs[key], reasons[key] = one.codec.decode("utf-8"), one.reason.decode("utf-8")
    return {"policy": policy, "reason": reason, "codecs": codecs, "reasons": reasons}


def _listed(function: Callable[..., int], row: Type[_Row], store: int) -> List[_Row]:
    """Returns all the rows that `function` writes; it says how many there are."""
    count = ctypes.c_size_t()
    room = 0
    while True:
        rows = (row * room)()
        check(function(store, rows, room, ctypes.byref(count)))
        if count.value <= room:
            return list(rows[: count.value])
        room = count.value
