# SPDX-License-Identifier: Apache-2.0
"""A job's state in words, as the page shows it. Pure."""

import collections
import functools

MOST_NODES = 16  # of a role; beyond it only those in trouble have a line
MOST_TENSORS = 10
MOST_EVENTS = 8
BAR_LETTERS = 40
HISTORY_S = 60
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.:-=+*#"  # where the terminal has no blocks
HEALTHY = ("ok", "waiting", "left")
ABSENT = ("gone", "missing", "away", "left")


def number(value):
    if value is None:
        return "-"
    size = abs(value)
    decimals = 0 if size == 0 or size >= 100 else 1 if size >= 10 else 2 if size >= 0.095 else 3
    return "%.*f" % (decimals, value)


def whole(value):
    return "-" if value is None else "%.0f" % value


def scaled(value, units):
    if value is None:
        return "-"
    place = 0
    while abs(value) >= 1000 and place + 1 < len(units):
        value /= 1000
        place += 1
    return "%s %s" % (number(value) if place else whole(value), units[place])


def size(value):
    return scaled(value, ("B", "kB", "MB", "GB", "TB"))


def rate(value):
    """Bytes per second, in the unit of links."""
    units = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s")
    return scaled(None if value is None else 8 * value, units)


def percent(value):
    return "-" if value is None else "%.0f %%" % (100 * value)


def duration(seconds):
    if seconds is None:
        return "-"
    if seconds < 1:
        return "%.0f ms" % (1000 * seconds)
    if seconds < 120:
        return "%.*f s" % (1 if seconds < 10 else 0, seconds)
    return clock(seconds)


def clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return ("%d:" % hours if hours else "") + "%02d:%02d" % (minutes, seconds)


def codec_name(codec):
    return "raw" if codec in ("", "none") else codec


def counted(count, word):
    return "%d %s%s" % (count, word, "" if count == 1 else "s")


def printable(text):
    """Names come from peers: without the letters that steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def table(heads, rows, right=()):
    """Returns lines of columns. The columns whose numbers are in `right` end at one place."""
    rows = [heads] + [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def name_of(node):
    return "%(role)s %(rank)d" % node


def call_of(node):
    call = node["call"]
    if not call or not call["name"]:
        age = node["snapshot_age_s"]
        return "" if age is None else "snapshot %s ago" % duration(age)
    where = ", at " + call["where"] if call["where"] else ""
    form = "in %s for %s%s" if call["in_progress"] else "%s %s ago%s"
    return form % (call["name"], duration(call["seconds"]), where)


def head(state):
    job = state["job"]
    there = collections.Counter(
        node["role"] for node in state["nodes"] if node["state"] not in ABSENT
    )
    yield "job %s: %s, %s, round %s; %d of %s, %d of %s there" % (
        job["id"],
        job["phase"],
        clock(job["seconds"]),
        whole(job["round"]),
        there["worker"],
        counted(job["num_workers"], "worker"),
        there["server"],
        counted(job["num_servers"], "server"),
    )
    if job["why"]:
        yield "failed: " + job["why"]
    for stall in state["stalls"]:
        yield "stalled for %s: %s" % (duration(stall["seconds"]), stall["text"])
    if state["advice"]:
        yield "advice: " + state["advice"]


def figures(state):
    now = state["figures"]

    def way(direction):
        raw, sent = now["raw_%s_bytes_per_s" % direction], now["%s_bytes_per_s" % direction]
        fewer = " (%s times fewer bytes than raw)" % number(raw / sent) if raw and sent else ""
        return "%s %s%s" % (direction, rate(sent), fewer)

    yield "%s rounds/s, %s, %s" % (number(now["rounds_per_s"]), way("push"), way("pull"))
    yield "overlap %s, compression gain %s, error %s" % (
        percent(now["overlap"]),
        percent(now["compression_gain"]),
        percent(now["compression_error"]),
    )
    stages = now["stage_s"] or {}
    if stages:
        yield "seconds per second: " + ", ".join(
            "%s %s" % (stage, number(seconds)) for stage, seconds in stages.items()
        )


def nodes(state):
    shown, others = [], []
    for role in ("server", "worker"):
        of_role = [node for node in state["nodes"] if node["role"] == role]
        healthy = [node for node in of_role if node["state"] in HEALTHY]
        if len(of_role) <= MOST_NODES or len(healthy) < 2:
            shown += of_role
            continue
        shown += [node for node in of_role if node["state"] not in HEALTHY]
        counts = collections.Counter(node["state"] for node in healthy)
        in_words = ", ".join("%d %s" % (count, word) for word, count in counts.items())
        others.append("%s: %s" % (counted(len(healthy), "other " + role), in_words))
    heads = ["node", "state", "heard", "round", "push", "pull", "queue", "restarts", "host", ""]
    rows = [
        [
            name_of(node),
            node["state"],
            duration(node["heard_s"]),
            whole(node["round"]),
            rate(node["push_bytes_per_s"]),
            rate(node["pull_bytes_per_s"]),
            whole(node["queue"]),
            node["restarts"],
            node["host"] or "-",
            call_of(node),
        ]
        for node in shown
    ]
    return table(heads, rows, right=range(2, 8)) + others


def events(state):
    newest = reversed(state["events"][-MOST_EVENTS:])
    return ["%8s  %s" % (clock(event["t"]), event["text"]) for event in newest]


def how(codec, threshold):
    if codec_name(codec) == "raw":
        return "raw"
    if threshold is None:
        return "raw, since %s pays for no size" % codec
    return "%s from %s on" % (codec, counted(threshold, "byte"))


def decision(state):
    made = state["decision"]
    if made is None:
        yield "nothing is decided yet"
        return
    if made["policy"]:
        yield "policy %s decides by tensor: %s" % (made["policy"], made["reason"])
    else:
        yield "pushes: %s; pulls: %s" % (
            how(made["codec"], made["threshold_bytes"]),
            how(made["pull_codec"], made["pull_threshold_bytes"]),
        )
    if made["table"]:
        rows = []
        for row in made["table"]:
            coded = row["t_cq_ms"] + row["t_pq_ms"]
            cells = [number(row[name]) for name in ("t_c_ms", "t_cq_ms", "t_pq_ms")]
            gain = row["t_c_ms"] / coded if coded > 0 else None
            rows.append([row["direction"], "%d" % row["bytes"], *cells, number(gain)])
        heads = ["direction", "bytes", "raw ms", "compressed ms", "coding ms", "gain"]
        yield from table(heads, rows, right=range(1, 6))
    chosen = collections.Counter((key["codec"], key["reason"]) for key in made["keys"])
    for (codec, reason), count in chosen.most_common(MOST_TENSORS):
        yield "%s %s: %s" % (counted(count, "tensor"), codec_name(codec), reason or "-")


def tensors(state):
    ordered = sorted(state["tensors"], key=lambda tensor: -tensor["push_bytes"])
    rows = [
        [
            tensor["name"],
            tensor["elements"],
            ",".join(map(str, tensor["servers"])),
            codec_name(tensor["codec"]),
            tensor["rounds"],
            size(tensor["push_bytes"]),
            size(tensor["pull_bytes"]),
        ]
        for tensor in ordered[:MOST_TENSORS]
    ]
    heads = ["tensor", "elements", "servers", "codec", "rounds", "pushed", "pulled"]
    lines = table(heads, rows, right=(1, 4, 5, 6)) if rows else []
    if len(ordered) > MOST_TENSORS:
        rest = counted(len(ordered) - MOST_TENSORS, "further tensor")
        lines.append(rest + "; --json has all")
    return lines


def timeline(state):
    """A line per stage; "#" is where it works."""
    stages = collections.defaultdict(list)
    for span in state["timeline"]:
        stages[span["stage"]].append(span)
    last = max((span["end_s"] for span in state["timeline"]), default=0)
    if last <= 0:
        return []
    rows = []
    for stage, spans in stages.items():
        bar = ["."] * BAR_LETTERS
        for span in spans:
            begin = min(max(int(BAR_LETTERS * span["begin_s"] / last), 0), BAR_LETTERS - 1)
            end = min(max(int(BAR_LETTERS * span["end_s"] / last), begin + 1), BAR_LETTERS)
            bar[begin:end] = "#" * (end - begin)
        rows.append([stage, "".join(bar)])
    head = "newest round of " + name_of(state["timeline"][0])
    return table([head, "0 to " + duration(last)], rows)


def curve(values, top, letters):
    """Returns a letter for each value: the last of `letters` is `top`, a space is unknown."""
    steps = len(letters) - 1
    return "".join(
        " " if value is None else letters[round(steps * min(value / top, 1)) if top else 0]
        for value in values
    )


def over_time(state, letters):
    points = state["history"]
    points = [point for point in points if point["t"] > points[-1]["t"] - HISTORY_S]
    rows = []
    for title, field, show, top in (
        ("push", "push_bytes_per_s", rate, None),
        ("pull", "pull_bytes_per_s", rate, None),
        ("rounds/s", "rounds_per_s", number, None),
        ("overlap", "overlap", percent, 1),
    ):
        values = [point[field] for point in points]
        most = max((value for value in values if value is not None), default=None)
        if values:
            drawn = curve(values, top or most, letters)
            rows.append([title, show(values[-1]), show(most), drawn])
    heads = ["over time", "newest", "most", "the newest %d s" % HISTORY_S]
    return table(heads, rows, right=(1, 2)) if rows else []


def status(state, letters=BLOCKS):
    """Returns the lines of `slimps status`, the most urgent first. Curves are of `letters`."""
    lines = []
    curves = functools.partial(over_time, letters=letters)
    for section in (head, figures, nodes, curves, events, decision, tensors, timeline):
        found = [printable(line) for line in section(state)]
        lines += [""] * bool(lines and found) + found
    return lines
