# SPDX-License-Identifier: Apache-2.0
"""Draws what a policy has decided: a row per tensor, rounds from left to right, a box per codec.

The darker a box is, the fewer bits of an element travel. Every box has a tooltip with its reason.
"""

from xml.sax.saxutils import escape

PLOT_WIDTH = 640.0
LABEL_WIDTH = 7.0  # of a letter, approximately
ROW = 18.0
TOP = 46.0
MARGIN = 10.0
STYLE = "text{font:12px sans-serif;fill:#222}.light{fill:#fff}.heading{font-weight:bold}"
# From raw to what sends next to nothing. Colour-blind people see them as light and dark.
SHADES = ("#f0f0f0", "#cfe1ee", "#a3c8e0", "#6fa8cf", "#3f84b8", "#1f5f99", "#10406f", "#062648")
FIRST_DARK = 4


def bits_of(codec):
    """Returns about how many bits a codec sends of an element; it needs to be right only as an
    order."""
    name, _, options = codec.partition(":")
    given = dict(one.split("=", 1) for one in options.split(",") if "=" in one)
    if name == "qsgd":
        return float(given.get("bits", 4))
    if "ratio" in given:
        return 40 * float(given["ratio"])
    if "rank" in given:
        return 0.1 * float(given["rank"])
    return {"none": 32.0, "fp16": 16.0, "bf16": 16.0, "2bit": 2.0, "terngrad": 2.0}.get(name, 1.0)


def short(codec):
    """Returns the codec's name and its options' values: "topk 0.01"."""
    name, _, options = codec.partition(":")
    values = [one.split("=", 1)[-1] for one in options.split(",") if one]
    return " ".join([{"none": "raw"}.get(name, name)] + values)


def label_of(codecs):
    """Returns the codecs of a box in words: "topk 0.05, topk 0.1 or raw"."""
    names = [short(codec) for codec in codecs]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def boxes_of(decisions, key, rounds):
    """Returns the boxes of a tensor: (first round, last round, codecs, reason).

    `codecs` has several where each worker chooses for each round.
    """
    boxes = []
    ends = [decision["from_round"] - 1 for decision in decisions[1:]] + [rounds]
    for decision, end in zip(decisions, ends):
        codecs = decision["codecs"].get(key, "none")
        codecs = codecs if isinstance(codecs, list) else [codecs]
        first = decision["from_round"]
        if first > end:
            continue
        if boxes and boxes[-1][2] == codecs:
            first = boxes.pop()[0]
        boxes.append((first, end, codecs, decision["reasons"].get(key, "")))
    return boxes


def shade_of(codec, order):
    """Returns the index of the codec's shade, given all codecs from the least compressed on."""
    if len(order) < 2:
        return 0
    return round(order.index(codec) * (len(SHADES) - 1) / (len(order) - 1))


def render(policy, decisions, tensors, rounds):
    """Returns the picture. `tensors`: [(key, elements)], in the order of the rows."""
    left = MARGIN + LABEL_WIDTH * max(len("%s, %d" % tensor) for tensor in tensors)
    rows = [(key, elements, boxes_of(decisions, key, rounds)) for key, elements in tensors]
    used = {codec for row in rows for box in row[2] for codec in box[2]}
    order = sorted(used, key=lambda codec: (-bits_of(codec), codec))
    width, height = left + PLOT_WIDTH + MARGIN, TOP + ROW * len(rows) + 24

    def x(round_number):
        return left + PLOT_WIDTH * (round_number - 1) / rounds

    parts = ['<text class="heading" x="%g" y="16">%s</text>' % (MARGIN, escape(policy))]
    parts.append('<text x="%g" y="34">tensor, elements</text>' % MARGIN)
    for index, (key, elements, boxes) in enumerate(rows):
        y = TOP + ROW * index
        parts.append(
            '<text x="%g" y="%.1f">%s, %d</text>' % (MARGIN, y + 13, escape(key), elements)
        )
        for first, last, codecs, reason in boxes:
            shade = shade_of(codecs[0], order)
            begin, end = x(first), x(last + 1)
            label = label_of(codecs)
            tip = "%s, rounds %d to %d: %s" % (key, first, last, label)
            tip += ": " + reason if reason else ""
            parts.append(
                '<rect class="box" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" '
                'stroke="#fff"><title>%s</title></rect>'
                % (begin, y, end - begin, ROW - 2, SHADES[shade], escape(tip))
            )
            if LABEL_WIDTH * len(label) + 4 <= end - begin:
                parts.append(
                    '<text%s x="%.1f" y="%.1f">%s</text>'
                    % (
                        ' class="light"' if shade >= FIRST_DARK else "",
                        begin + 4,
                        y + 13,
                        escape(label),
                    )
                )
    free_from = 0.0
    for decision in decisions:
        at = x(decision["from_round"])
        if decision["from_round"] <= rounds and at >= free_from:
            free_from = at + LABEL_WIDTH * len("%d " % rounds)
            parts.append(
                '<text x="%.1f" y="%.1f">%d</text>' % (at, height - 8, decision["from_round"])
            )
    parts.append('<text x="%.1f" y="34">rounds 1 to %d</text>' % (left, rounds))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g">\n'
        "<style>%s</style>\n"
        '<rect width="%g" height="%g" fill="#fff"/>\n%s\n</svg>\n'
        % (width, height, width, height, STYLE, width, height, "\n".join(parts))
    )
