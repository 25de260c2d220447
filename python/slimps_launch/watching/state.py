# SPDX-License-Identifier: Apache-2.0
"""What the scheduler says of a job in /job.json: its fields. Times are in seconds, sizes in bytes.

null is what is not known. A newer scheduler may say more.
"""

import json

from slimps_launch import schema

OBJECT_OR_NULL = schema.Kind(
    "an object or null", lambda value: value is None or isinstance(value, dict)
)
RATES = {"push_bytes_per_s": schema.NUMBER_OR_NULL, "pull_bytes_per_s": schema.NUMBER_OR_NULL}
NODE = {
    **RATES,
    "role": schema.TEXT,  # server or worker
    "rank": schema.SIZE,
    "host": schema.TEXT,
    "pid": schema.SIZE_OR_NULL,
    "state": schema.TEXT,
    "restarts": schema.SIZE,
    "heard_s": schema.NUMBER_OR_NULL,
    "round": schema.SIZE_OR_NULL,
    "call": OBJECT_OR_NULL,  # a CALL
    "queue": schema.NUMBER_OR_NULL,
    "snapshot_age_s": schema.NUMBER_OR_NULL,
}
CALL = {
    "name": schema.TEXT,
    "in_progress": schema.Kind("true or false", lambda value: isinstance(value, bool)),
    "seconds": schema.NUMBER,
    "where": schema.TEXT,
}
DECISION = {
    "codec": schema.TEXT,
    "pull_codec": schema.TEXT,
    "threshold_bytes": schema.SIZE_OR_NULL,
    "pull_threshold_bytes": schema.SIZE_OR_NULL,
    "policy": schema.TEXT,
    "reason": schema.TEXT,
    "table": [
        {
            "direction": schema.TEXT,
            "bytes": schema.NUMBER,
            "t_c_ms": schema.NUMBER,
            "t_cq_ms": schema.NUMBER,
            "t_pq_ms": schema.NUMBER,
        }
    ],
    "keys": [{"key": schema.TEXT, "codec": schema.TEXT, "reason": schema.TEXT}],
}
STATE = {
    "job": {
        "id": schema.TEXT,
        "phase": schema.TEXT,
        "seconds": schema.NUMBER,
        "num_workers": schema.SIZE,
        "num_servers": schema.SIZE,
        "round": schema.SIZE_OR_NULL,
        "why": schema.TEXT,
    },
    "nodes": [NODE],
    "figures": {
        **RATES,
        "rounds_per_s": schema.NUMBER_OR_NULL,
        "raw_push_bytes_per_s": schema.NUMBER_OR_NULL,
        "raw_pull_bytes_per_s": schema.NUMBER_OR_NULL,
        "overlap": schema.NUMBER_OR_NULL,
        "compression_gain": schema.NUMBER_OR_NULL,
        "compression_error": schema.NUMBER_OR_NULL,
        "stage_s": OBJECT_OR_NULL,
    },
    "history": [
        {
            **RATES,
            "t": schema.NUMBER,
            "rounds_per_s": schema.NUMBER_OR_NULL,
            "overlap": schema.NUMBER_OR_NULL,
        }
    ],
    "decision": OBJECT_OR_NULL,  # a DECISION
    "tensors": [
        {
            "name": schema.TEXT,
            "elements": schema.SIZE,
            "servers": [schema.SIZE],
            "codec": schema.TEXT,
            "rounds": schema.SIZE,
            "push_bytes": schema.NUMBER,
            "pull_bytes": schema.NUMBER,
        }
    ],
    "timeline": [
        {
            "role": schema.TEXT,
            "rank": schema.SIZE,
            "stage": schema.TEXT,
            "tensor": schema.TEXT,
            "begin_s": schema.NUMBER,
            "end_s": schema.NUMBER,
        }
    ],
    "events": [{"t": schema.NUMBER, "text": schema.TEXT}],
    "stalls": [{"text": schema.TEXT, "seconds": schema.NUMBER}],
    "advice": schema.TEXT,
}


def parse(text):
    """Returns the state that a scheduler sent. ValueError: it lacks a field, or one is wrong."""
    state = json.loads(text)
    schema.check(state, STATE)
    for number, node in enumerate(state["nodes"]):
        if node["call"] is not None:
            schema.check(node["call"], CALL, "nodes[%d].call" % number)
    if state["decision"] is not None:
        schema.check(state["decision"], DECISION, "decision")
    for stage, seconds in (state["figures"]["stage_s"] or {}).items():
        schema.check(seconds, schema.NUMBER_OR_NULL, "figures.stage_s." + stage)
    return state
