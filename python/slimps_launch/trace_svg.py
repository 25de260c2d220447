# SPDX-License-Identifier: Apache-2.0
"""Draws a window of a trace: a row per process and stage, boxes coloured by stage, time in ms.

Time goes from left to right. Boxes of one row that overlap in time lie in lanes below each other.
Every box has a tooltip.
"""

import collections
import math
from xml.sax.saxutils import escape

# In the order of a tensor's journey, which is the order of the rows. Colour-blind people can tell
# the colours apart, as far as that is possible with so many.
STAGES = collections.OrderedDict(
    [
        ("phase", "#777777"),
        ("news", "#000000"),
        ("forward", "#66ccee"),
        ("backward", "#4477aa"),
        ("step", "#994455"),
        ("call", "#cc6677"),
        ("compute", "#4477aa"),
        ("wait", "#cc3311"),
        ("copy", "#88ccee"),
        ("encode", "#aa4499"),
        ("send", "#ee7733"),
        ("pull", "#ddaa33"),
        ("decode", "#228833"),
        ("local_update", "#66aa88"),
        ("aggregate", "#555555"),
        ("reply", "#bbaa88"),
        ("decide", "#000000"),
    ]
)
OTHER_COLOUR = "#999999"

MAX_ROWS = 40
MAX_BOXES = 20000
MAX_LANES = 5
PLOT_WIDTH = 1100.0
LABELS_WIDTH = 110.0
MARGIN = 12.0
LANE_HEIGHT = 7.0
ROW_HEIGHT = 16.0  # at least
ROW_GAP = 3.0
HEADING_HEIGHT = 18.0
LETTER_WIDTH = 5.4  # in the small font, approximately

Row = collections.namedtuple("Row", "process stage lanes")


def lanes_of(boxes):
    """Returns the lanes of one row. A box goes to the first free lane, or else to the last."""
    lanes = []
    for box in sorted(boxes, key=lambda box: (box.began_ms, -box.ended_ms)):
        for lane in lanes:
            if lane[-1].ended_ms <= box.began_ms:
                lane.append(box)
                break
        else:
            if len(lanes) < MAX_LANES:
                lanes.append([box])
            else:
                lanes[-1].append(box)
    return lanes


def rows_of(boxes):
    """Returns the rows, ordered by process and then by stage."""
    by_row = collections.OrderedDict()
    for box in boxes:
        by_row.setdefault(box.process, {}).setdefault(box.stage, []).append(box)
    order = list(STAGES)
    rows = []
    for process, stages in by_row.items():
        for stage in sorted(
            stages, key=lambda name: (order.index(name) if name in order else len(order), name)
        ):
            rows.append(Row(process, stage, lanes_of(stages[stage])))
    return rows


def tick_step(span_ms):
    """Returns 1, 2 or 5 times a power of ten that gives five to twelve ticks."""
    step = 10.0 ** math.floor(math.log10(span_ms / 5.0))
    for factor in (1, 2, 5):
        if span_ms / (step * factor) <= 12:
            return step * factor
    return step * 10


def render(boxes, first_ms, last_ms):
    """Returns (the SVG, a remark on what it leaves out or "").

    ValueError: there are too many boxes for a picture.
    """
    if len(boxes) > MAX_BOXES:
        raise ValueError(
            "%d events from %g to %g ms: a picture holds at most %d; choose a shorter window"
            % (len(boxes), first_ms, last_ms, MAX_BOXES)
        )
    rows = rows_of(boxes)
    remark = ""
    if len(rows) > MAX_ROWS:
        left_out = list(collections.OrderedDict.fromkeys(row.process for row in rows[MAX_ROWS:]))
        remark = (
            "%d rows: the picture has the first %d, which lacks stages of %s; choose with --process"
            % (len(rows), MAX_ROWS, ", ".join(left_out))
        )
        rows = rows[:MAX_ROWS]
    return Picture(first_ms, max(last_ms, first_ms + 1e-3)).draw(rows), remark


class Picture:
    def __init__(self, first_ms, last_ms):
        self.first_ms = first_ms
        self.last_ms = last_ms
        self.left = MARGIN + LABELS_WIDTH
        self.width = self.left + PLOT_WIDTH + MARGIN
        self.body = []

    def x(self, ms):
        share = (min(max(ms, self.first_ms), self.last_ms) - self.first_ms) / (
            self.last_ms - self.first_ms
        )
        return self.left + PLOT_WIDTH * share

    def draw(self, rows):
        y = self.draw_legend([row.stage for row in rows])
        top = y
        process = None
        for row in rows:
            if row.process != process:
                process = row.process
                y += HEADING_HEIGHT
                self.text(MARGIN, y - 5, process, "heading")
            y = self.draw_row(row, y)
        self.draw_axis(top, y + 2)
        height = y + 36
        style = (
            "text{font:11px sans-serif;fill:#222}.heading{font-weight:bold;font-size:12px}"
            ".in{font-size:9px;fill:#fff;pointer-events:none}"
            ".end{text-anchor:end}.mid{text-anchor:middle}"
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g">\n'
            "<style>%s</style>\n"
            '<rect class="page" width="%g" height="%g" fill="#fff"/>\n%s\n</svg>\n'
            % (
                self.width,
                height,
                self.width,
                height,
                style,
                self.width,
                height,
                "\n".join(self.body),
            )
        )

    def text(self, x, y, words, kind):
        self.body.append(
            '<text x="%.1f" y="%.1f" class="%s">%s</text>' % (x, y, kind, escape(words))
        )

    def draw_legend(self, stages):
        x = self.left
        for stage in [name for name in STAGES if name in stages] + sorted(
            set(stages) - set(STAGES)
        ):
            self.body.append(
                '<rect class="legend" x="%.1f" y="%.1f" width="10" height="10" fill="%s"/>'
                % (x, MARGIN, STAGES.get(stage, OTHER_COLOUR))
            )
            self.text(x + 14, MARGIN + 9, stage, "")
            x += 30 + 6.5 * len(stage)
        return MARGIN + 16

    def draw_row(self, row, y):
        height = max(ROW_HEIGHT, LANE_HEIGHT * len(row.lanes))
        self.text(self.left - 6, y + height / 2 + 4, row.stage, "end")
        self.body.append(
            '<rect class="row" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#f4f4f4"/>'
            % (self.left, y, PLOT_WIDTH, height)
        )
        lane_height = height / len(row.lanes)
        for number, lane in enumerate(row.lanes):
            for box in lane:
                self.draw_box(box, y + number * lane_height, lane_height - 0.6)
        return y + height + ROW_GAP

    def draw_box(self, box, y, height):
        x = self.x(box.began_ms)
        width = max(self.x(box.ended_ms) - x, 0.4)
        tip = "%s %s, round %d: %.3f ms from %.3f ms" % (
            box.stage,
            box.name,
            box.round,
            box.ended_ms - box.began_ms,
            box.began_ms,
        )
        self.body.append(
            '<rect class="box" x="%.2f" y="%.2f" width="%.2f" height="%.2f" '
            'fill="%s"><title>%s</title></rect>'
            % (x, y, width, height, STAGES.get(box.stage, OTHER_COLOUR), escape(tip))
        )
        label = box.name[2:] if box.name[:2] in ("s:", "i:") else box.name
        if height >= 10 and width >= LETTER_WIDTH * len(label) + 4:
            self.text(x + 2, y + height / 2 + 3, label, "in")

    def draw_axis(self, top, bottom):
        step = tick_step(self.last_ms - self.first_ms)
        decimals = max(0, -int(math.floor(math.log10(step) + 1e-9)))
        number = math.ceil(self.first_ms / step - 1e-9)
        while number * step <= self.last_ms * (1 + 1e-12):
            x = self.x(number * step)
            self.body.append(
                '<path d="M%.1f %.1fV%.1f" stroke="#ccc" stroke-width="0.5"/>'
                % (x, top, bottom + 4)
            )
            self.text(x, bottom + 15, "%.*f" % (decimals, number * step), "mid")
            number += 1
        self.text(self.left - 6, bottom + 15, "ms", "end")
