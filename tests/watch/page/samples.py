# SPDX-License-Identifier: Apache-2.0
"""What the scheduler says of four jobs, as in /job.json."""

LAYERS = (
    ("conv1.weight", 864),
    ("layer1.0.conv1.weight", 4608),
    ("layer1.0.bn1.bias", 16),
    ("layer2.0.conv1.weight", 18432),
    ("layer2.0.downsample.0.weight", 2048),
    ("layer3.0.conv1.weight", 73728),
    ("layer3.0.conv2.weight", 147456),
    ("layer4.0.conv2.weight", 2359296),
    ("fc.weight", 51200),
    ("fc.bias", 100),
)
HOSTILE = '<img src=x onerror="document.title=1">'


def node(role, rank, **fields):
    call = None
    if role == "worker":
        call = {"name": "pull", "in_progress": True, "seconds": 0.02, "where": "train.py:31"}
    return {
        "role": role,
        "rank": rank,
        "host": "node%d" % (rank + 1),
        "pid": 4100 + rank,
        "state": "ok",
        "restarts": 0,
        "heard_s": 0.4,
        "round": 1824,
        "call": call,
        "push_bytes_per_s": 0.36e6 if role == "worker" else None,
        "pull_bytes_per_s": 0.36e6 if role == "worker" else None,
        "queue": 3 if role == "worker" else None,
        "snapshot_age_s": 12.0 if role == "server" else None,
        **fields,
    }


def history(seconds, push, pull, rounds, overlap):
    """A slow wave around each figure. The first seconds are without traffic."""

    def at(second, figure, period):
        wave = abs((second % period) / period - 0.5)
        return 0 if second < 4 else figure * (0.85 + 0.6 * wave)

    return [
        {
            "t": float(second),
            "push_bytes_per_s": at(second, push, 37),
            "pull_bytes_per_s": at(second, pull, 53),
            "rounds_per_s": at(second, rounds, 41),
            "overlap": None if second < 4 else min(1.0, at(second, overlap, 29)),
        }
        for second in range(seconds)
    ]


def decision():
    rows = [
        ("push", 1024, 0.21, 0.20, 0.03),
        ("push", 4096, 0.44, 0.21, 0.04),
        ("push", 65536, 5.4, 0.39, 0.09),
        ("push", 1048576, 84.1, 3.0, 0.8),
        ("pull", 4096, 0.45, 0.22, 0.05),
        ("pull", 1048576, 85.0, 3.1, 1.1),
    ]
    return {
        "codec": "1bit",
        "pull_codec": "1bit",
        "threshold_bytes": 4096,
        "pull_threshold_bytes": 4096,
        "policy": "threshold",
        "reason": "compressing pays from 4096 bytes on",
        "table": [
            {"direction": way, "bytes": size, "t_c_ms": raw, "t_cq_ms": sent, "t_pq_ms": coded}
            for way, size, raw, sent, coded in rows
        ],
        "keys": [
            {
                "key": "s:" + name,
                "codec": "1bit" if elements >= 1024 else "none",
                "reason": "at least the threshold" if elements >= 1024 else "below the threshold",
            }
            for name, elements in LAYERS
        ],
    }


def tensors(names=LAYERS, codec="1bit"):
    return [
        {
            "name": "s:" + name,
            "elements": elements,
            "servers": [0],
            "codec": codec if elements >= 1024 else "none",
            "rounds": 1824,
            "push_bytes": elements * 1824 // (8 if codec == "1bit" and elements >= 1024 else 1) * 4,
            "pull_bytes": elements * 1824 * 4,
        }
        for name, elements in names
    ]


def timeline(workers):
    """Each worker encodes, sends and decodes one tensor after the other; servers sum."""
    spans = []

    def add(role, rank, stage, tensor, begin, length):
        spans.append(
            {
                "role": role,
                "rank": rank,
                "stage": stage,
                "tensor": "s:" + tensor,
                "begin_s": begin,
                "end_s": begin + length,
            }
        )

    for rank in workers:
        start = 0.001 * rank
        for number, (name, elements) in enumerate(reversed(LAYERS)):
            length = 0.001 + elements / 1e8
            add("worker", rank, "copy", name, start, length / 3)
            add("worker", rank, "encode", name, start + length / 3, length)
            add("worker", rank, "send", name, start + 2 * length, 2 * length)
            add("worker", rank, "wait", name, start + 4 * length, 0.004)
            add("worker", rank, "decode", name, start + 4 * length + 0.004, length / 2)
            if rank == 0:
                add("server", 0, "sum", name, start + 4 * length, 0.003)
            start += 0.002 + 0.3 * length * (number % 3)
    return spans


def healthy():
    return {
        "job": {
            "id": "resnet",
            "phase": "running",
            "seconds": 184.2,
            "num_workers": 2,
            "num_servers": 1,
            "round": 1824,
            "why": "",
        },
        "nodes": [node("server", 0), node("worker", 0), node("worker", 1)],
        "figures": {
            "rounds_per_s": 10.2,
            "push_bytes_per_s": 0.72e6,
            "pull_bytes_per_s": 0.72e6,
            "raw_push_bytes_per_s": 21.7e6,
            "raw_pull_bytes_per_s": 21.7e6,
            "overlap": 0.91,
            "compression_gain": 0.64,
            "compression_error": 0.36,
            "stage_s": {"copy": 0.02, "encode": 0.11, "send": 0.31, "wait": 0.09, "decode": 0.05},
        },
        "history": history(184, 0.72e6, 0.72e6, 10.2, 0.91),
        "decision": decision(),
        "tensors": tensors(),
        "timeline": timeline(range(2)),
        "events": [
            {"t": 0.3, "text": "server 0 (host node1, pid 4100) has joined"},
            {"t": 0.4, "text": "worker 0 (host node1, pid 4100) has joined"},
            {"t": 0.9, "text": "worker 1 (host node2, pid 4101) has joined"},
            {"t": 3.9, "text": "decided: 1bit from 4096 bytes on, both ways"},
        ],
        "stalls": [],
        "advice": "",
    }


def stopped_worker():
    state = healthy()
    stall = (
        "round 1825 waits 12 s for worker 1: s:conv1.weight, s:fc.weight and 8 more tensors; "
        "worker 1: last call push 12 s ago, at train.py:31"
    )
    call = {"name": "push", "in_progress": False, "seconds": 12.0, "where": "train.py:31"}
    state["nodes"][1].update(state="waiting", push_bytes_per_s=0, pull_bytes_per_s=0)
    state["nodes"][1]["call"] = dict(call, name="pull", in_progress=True)
    state["nodes"][2].update(
        state="slow", heard_s=12.1, call=call, push_bytes_per_s=0, pull_bytes_per_s=0
    )
    state["figures"].update(rounds_per_s=0, push_bytes_per_s=0, pull_bytes_per_s=0, overlap=None)
    for point in state["history"][-12:]:
        point.update(push_bytes_per_s=0, pull_bytes_per_s=0, rounds_per_s=0, overlap=None)
    state["events"].append({"t": 180.2, "text": stall})
    state["stalls"] = [{"text": stall, "seconds": 12.0}]
    return state


def raw_pulls():
    state = healthy()
    state["figures"].update(pull_bytes_per_s=12.3e6, raw_pull_bytes_per_s=12.3e6, rounds_per_s=0.6)
    state["decision"].update(pull_codec="none", pull_threshold_bytes=None)
    state[
        "advice"
    ] = "Pulls are raw and fill the link (98 Mbit/s of some 100): give --pull_compression 1bit."
    return state


def many_workers(workers=64, servers=4):
    state = healthy()
    state["job"].update(num_workers=workers, num_servers=servers)
    state["nodes"] = [
        *(node("server", rank) for rank in range(servers)),
        *(node("worker", rank) for rank in range(workers)),
    ]
    by_rank = state["nodes"][servers:]
    by_rank[17].update(state="gone", heard_s=14.0, restarts=2)
    by_rank[40].update(state="slow", heard_s=3.4)
    for place, rank in enumerate(range(60, 64)):
        by_rank[rank].update(state=("left", "waiting", "away", "missing")[place])
    for rank in (17, 62, 63):
        by_rank[rank].update(call=None, push_bytes_per_s=None, pull_bytes_per_s=None)
    by_rank[63].update(heard_s=None, host="", pid=None)
    state["timeline"] = timeline(range(workers))
    blocks = [
        ("transformer.h.%d.%s" % (block, part), elements)
        for block in range(48)
        for part, elements in (
            ("attn.c_attn.weight", 7077888),
            ("attn.c_proj.weight", 2359296),
            ("ln_1.bias", 768),
            ("mlp.c_fc.weight", 9437184),
        )
    ]
    state["tensors"] = tensors(blocks)
    return state


def hostile():
    """Names that come from peers are markup and escape sequences."""
    state = healthy()
    state["tensors"][0]["name"] = HOSTILE
    state["nodes"][1]["host"] = HOSTILE
    state["nodes"][2]["host"] = "\x1b[31mred\x07"
    state["nodes"][2]["call"]["where"] = HOSTILE
    state["decision"]["keys"][0].update(key=HOSTILE, codec=HOSTILE, reason=HOSTILE)
    state["timeline"][0].update(stage=HOSTILE, tensor=HOSTILE)
    state["events"].append({"t": 5.0, "text": HOSTILE})
    state["stalls"] = [{"text": HOSTILE, "seconds": 3.0}]
    state["advice"] = HOSTILE
    state["job"]["id"] = HOSTILE
    return state


def forming():
    """Nothing is known yet: what may be null or empty is."""
    state = healthy()
    state["job"].update(phase="forming", seconds=2.0, round=None, why="waits for worker 1")
    state["nodes"][2].update(state="missing", heard_s=None, host="", pid=None, round=None)
    for each in state["nodes"]:
        each.update(call=None, push_bytes_per_s=None, pull_bytes_per_s=None, queue=None)
    figures = state["figures"]
    state["figures"] = {name: None for name in figures if name != "stage_s"}
    state["figures"]["stage_s"] = {name: 0 for name in figures["stage_s"]}
    state.update(history=[], decision=None, tensors=[], timeline=[], events=[])
    return state
