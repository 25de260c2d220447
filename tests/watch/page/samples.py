# SPDX-License-Identifier: Apache-2.0
"""What the scheduler says of some jobs, as in /job.json."""

LAYERS = (
    ("conv1.weight", 864),
    ("layer1.0.conv1.weight", 4608),
    ("layer1.0.bn1.bias", 16),
    ("layer2.0.conv1.weight", 18432),
    ("layer2.0.downsample.0.weight", 2048),
    ("layer3.0.conv1.weight", 73728),
    ("layer3.0.conv2.weight", 147456),
    ("fc.weight", 51200),
    ("fc.bias", 100),
)
HOSTILE = '<img src=x onerror="document.title=1">'


def node(role, rank, **fields):
    is_worker = role == "worker"
    call = {"name": "pull", "in_progress": True, "seconds": 0.02, "where": "train.py:31"}
    return {
        "role": role,
        "rank": rank,
        "host": "node%d" % (rank + 1),
        "pid": (4200 if is_worker else 4100) + rank,
        "state": "ok",
        "restarts": 0,
        "heard_s": 0.4,
        "round": 1824 if is_worker else None,
        "call": call if is_worker else None,
        "push_bytes_per_s": 0.4e6 if is_worker else 0.8e6,
        "pull_bytes_per_s": 0.4e6 if is_worker else 0.8e6,
        "queue": 3 if is_worker else 0,
        "snapshot_age_s": None if is_worker else 12.0,
        **fields,
    }


def silent(node, heard_s, **fields):
    """Its last report stays, and tells no rates any more."""
    node.update(heard_s=heard_s, push_bytes_per_s=0, pull_bytes_per_s=0, **fields)
    node["call"]["seconds"] = heard_s


def unknown(node):
    """It has sent no report."""
    for field in ("round", "call", "push_bytes_per_s", "pull_bytes_per_s", "queue"):
        node[field] = None
    node["snapshot_age_s"] = None


def joined(nodes):
    """Returns the events of nodes that come in this order."""
    events = []
    missing = {role: sum(node["role"] == role for node in nodes) for role in ("server", "worker")}
    for node in nodes:
        missing[node["role"]] -= 1
        place = " listens at tcp://10.0.0.%d:40001" % (node["rank"] + 1)
        counts = [counted(count, role) for role, count in missing.items() if count]
        text = "%(role)s %(rank)d (host %(host)s, pid %(pid)d)" % node
        text += place if node["role"] == "server" else " is there"
        text += "; missing: " + " and ".join(counts) if counts else ""
        events.append({"t": 0.3 + 0.1 * len(events), "text": text})
    return events


def counted(count, word):
    return "%d %s%s" % (count, word, "" if count == 1 else "s")


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
        for second in range(1, seconds + 1)
    ]


def decision():
    """Thresholds, as they were measured."""
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
        "policy": "",
        "reason": "",
        "table": [
            {"direction": way, "bytes": size, "t_c_ms": raw, "t_cq_ms": sent, "t_pq_ms": coded}
            for way, size, raw, sent, coded in rows
        ],
        "keys": [],
    }


def tensors(names=LAYERS, pull_codec="1bit"):
    def size(elements, codec):
        return 1824 * (elements // 8 if codec == "1bit" and elements >= 1024 else 4 * elements)

    return [
        {
            "name": "s:" + name,
            "elements": elements,
            "servers": [0],
            "codec": "1bit" if elements >= 1024 else "none",
            "rounds": 1824,
            "push_bytes": size(elements, "1bit"),
            "pull_bytes": size(elements, pull_codec),
        }
        for name, elements in names
    ]


def timeline():
    """Worker 0 encodes, sends and decodes one tensor after the other."""
    spans = []

    def add(stage, tensor, begin, length):
        spans.append(
            {
                "role": "worker",
                "rank": 0,
                "stage": stage,
                "tensor": "s:" + tensor,
                "begin_s": begin,
                "end_s": begin + length,
            }
        )

    start = 0.0
    for number, (name, elements) in enumerate(reversed(LAYERS)):
        length = 0.001 + elements / 1e8
        add("copy", name, start, length / 3)
        add("encode", name, start + length / 3, length)
        add("send", name, start + 2 * length, 2 * length)
        add("pull", name, start + 4 * length, 0.004)
        add("decode", name, start + 4 * length + 0.004, length / 2)
        start += 0.002 + 0.3 * length * (number % 3)
    return spans


def healthy():
    nodes = [node("server", 0), node("worker", 0), node("worker", 1)]
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
        "nodes": nodes,
        "figures": {
            "rounds_per_s": 10.2,
            "push_bytes_per_s": 0.8e6,
            "pull_bytes_per_s": 0.8e6,
            "raw_push_bytes_per_s": 24.4e6,
            "raw_pull_bytes_per_s": 24.4e6,
            "overlap": 0.91,
            "compression_gain": 0.64,
            "compression_error": 0.36,
            "stage_s": {"copy": 0.02, "encode": 0.11, "send": 0.31, "wait": 0.09, "decode": 0.05},
        },
        "history": history(184, 0.8e6, 0.8e6, 10.2, 0.91),
        "decision": decision(),
        "tensors": tensors(),
        "timeline": timeline(),
        "events": [
            *joined(nodes),
            {"t": 0.7, "text": "all nodes are there: 2 workers, 1 server"},
            {
                "t": 3.9,
                "text": "decision 1, from round 21 on: pushes 1bit from 4096 bytes, "
                "pulls 1bit from 4096 bytes",
            },
        ],
        "stalls": [],
        "advice": "",
    }


def no_figures():
    """Nothing has travelled for ten seconds."""
    figures = healthy()["figures"]
    parts = dict.fromkeys(("overlap", "compression_gain", "compression_error"))
    return {**dict.fromkeys(figures, 0), **parts, "stage_s": dict.fromkeys(figures["stage_s"], 0)}


def stopped_worker():
    """As with --heartbeat_timeout_ms=60000: the job goes on where a node is silent for 12 s."""
    state = healthy()
    unheard = "worker 1 has not been heard for %g s"
    waits = (
        "round 1825 waits %d s for worker 1: s:conv1.weight, s:fc.weight and at least 6 more "
        "tensors; worker 1: not heard for %d s, last call push %d s ago, at train.py:31"
    )
    for each in state["nodes"]:
        each.update(push_bytes_per_s=0, pull_bytes_per_s=0)
    state["nodes"][1]["state"] = "waiting"
    state["nodes"][1]["call"]["seconds"] = 12.0
    state["nodes"][2]["call"].update(name="push", in_progress=False)
    silent(state["nodes"][2], 12.0, state="slow")
    state["figures"] = no_figures()
    for point in state["history"][-12:]:
        point.update(push_bytes_per_s=0, pull_bytes_per_s=0, rounds_per_s=0, overlap=None)
    state["events"] += [
        *({"t": 172.2 + age, "text": unheard % age} for age in (2.5, 5, 10)),
        {"t": 182.2, "text": waits % (10, 10, 10)},
    ]
    state["stalls"] = [
        {"text": waits % (12, 12, 12), "seconds": 12.0},
        {"text": unheard % 12, "seconds": 12.0},
    ]
    return state


def raw_pulls():
    state = healthy()
    state["figures"].update(rounds_per_s=9.9, pull_bytes_per_s=23.8e6, raw_pull_bytes_per_s=23.8e6)
    state["figures"].update(overlap=0.31)
    state["decision"].update(pull_codec="", pull_threshold_bytes=None)
    state["decision"]["table"] = [
        row for row in state["decision"]["table"] if row["direction"] == "push"
    ]
    state["tensors"] = tensors(pull_codec="none")
    state[
        "advice"
    ] = "pulls take 23.8 MB/s raw, 30 times the pushes: compress them too (pull_compression)"
    return state


def policy():
    """A policy decides for each tensor, and nobody measures thresholds."""
    state = healthy()
    reason = (
        "lgreco: 37412 bytes a round instead of uniform's 39801, 1.06 times fewer, at an error of "
        "0.998 of the budget and 0.36 of that of sending nothing"
    )
    state["decision"] = {
        "codec": "none",
        "pull_codec": "",
        "threshold_bytes": None,
        "pull_threshold_bytes": None,
        "policy": "lgreco",
        "reason": reason,
        "table": [],
        "keys": [
            {
                "key": "s:" + name,
                "codec": "1bit" if elements >= 1024 else "none",
                "reason": "%d bytes for uniform's %d, error 0.36 of |x|^2 for 0.37"
                % (elements // 8, elements // 8 + 8)
                if elements >= 1024
                else "not measured: as before",
            }
            for name, elements in LAYERS
        ],
    }
    text = "decision 2, from round 60 on: policy lgreco, %d keys; %s" % (len(LAYERS), reason)
    state["events"].append({"t": 8.1, "text": text})
    return state


def many_workers(workers=64, servers=4):
    state = healthy()
    state["job"].update(num_workers=workers, num_servers=servers)
    state["nodes"] = [
        *(node("server", rank) for rank in range(servers)),
        *(node("worker", rank) for rank in range(workers)),
    ]
    by_rank = state["nodes"][servers:]
    silent(by_rank[17], 4.0, state="gone", restarts=2)
    silent(by_rank[40], 3.4, state="slow")
    silent(by_rank[60], 9.0, state="left")
    by_rank[61].update(state="waiting")
    by_rank[61]["call"]["seconds"] = 3.4
    silent(by_rank[62], 70.0, state="away")
    by_rank[63].update(state="missing", heard_s=None, host="", pid=None)
    unknown(by_rank[63])
    state["events"] = joined(state["nodes"][:-1])
    state["stalls"] = [{"text": "worker 40 has not been heard for 3.4 s", "seconds": 3.4}]
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
    state = policy()
    state["tensors"][0]["name"] = HOSTILE
    state["nodes"][1]["host"] = HOSTILE
    state["nodes"][2]["host"] = "\x1b[31mred\x07"
    state["nodes"][2]["call"]["where"] = HOSTILE
    state["decision"]["keys"][0].update(key=HOSTILE, codec=HOSTILE, reason=HOSTILE)
    state["timeline"][0].update(stage=HOSTILE, tensor=HOSTILE)
    state["events"].append({"t": 9.0, "text": HOSTILE})
    state["stalls"] = [{"text": HOSTILE, "seconds": 3.0}]
    state["advice"] = HOSTILE
    state["job"]["id"] = HOSTILE
    return state


def forming():
    """Nothing is known yet: what may be null or empty is."""
    state = healthy()
    state["job"].update(phase="forming", seconds=12.0, round=0)
    server, here, missing = state["nodes"]
    for each in state["nodes"]:
        unknown(each)
    missing.update(state="missing", heard_s=None, host="", pid=None)
    text = "after %%d s the job waits for 1 worker; there: %s" % ", ".join(
        "%(role)s %(rank)d (host %(host)s, pid %(pid)d)" % each for each in (server, here)
    )
    state["figures"] = no_figures()
    state["history"] = history(12, 0, 0, 0, 0)
    for point in state["history"]:
        point["overlap"] = None
    state["events"] = state["events"][:2] + [{"t": 10.0, "text": text % 10}]
    state["stalls"] = [{"text": text % 12, "seconds": 12.0}]
    state.update(decision=None, tensors=[], timeline=[])
    return state
