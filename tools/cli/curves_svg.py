# SPDX-License-Identifier: Apache-2.0
"""Draws accuracy over time and over bytes, side by side.

A run is a line, an epoch is a dot with a tooltip.

    picture = curves_svg.render("Digits", [Curve("fp32", [Point(0.91, 3.5, 110e6), ...]),
    ...])
"""

import collections
import math
from xml.sax.saxutils import escape

# Seconds and bytes since the start; accuracy from 0 to 1.
Point = collections.namedtuple("Point", "accuracy seconds bytes")
Curve = collections.namedtuple("Curve", "name points")
# `ticks`: the values written at the axis. `write` makes their text. `place` maps a value to 0 .. 1.
Axis = collections.namedtuple("Axis", "title ticks write place")

# Colours that colour-blind people can tell apart.
COLOURS = ("#4477aa", "#66ccee", "#ee7733", "#aa3377", "#228833", "#bbbb00", "#555555")
PLOT_WIDTH = 400.0
PLOT_HEIGHT = 250.0
LEFT = 56.0
GAP = 40.0
TOP = 62.0
WIDTH = LEFT + 2 * PLOT_WIDTH + GAP + 20
HEIGHT = TOP + PLOT_HEIGHT + 46
STYLE = (
    "text{font:12px sans-serif;fill:#222}.heading{font-weight:bold;font-size:14px}"
    ".end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:#ddd}"
)


def round_step(span, most_ticks):
    """Returns the smallest 1, 2 or 5 times a power of ten that fits `most_ticks` times at most."""
    step = 10.0 ** math.floor(math.log10(span / most_ticks))
    return next(
        step * factor
        for factor in (1, 2, 5, 10)
        if span / (step * factor) <= most_ticks * (1 + 1e-9)
    )


def linear_axis(title, first, last, most_ticks, write):
    """Returns an axis of whole steps that holds both ends and spans at least 1 % of `last`."""
    step = round_step(max(last - first, abs(last) / 100, 1e-9), most_ticks)
    low, high = math.floor(first / step + 1e-9), math.ceil(last / step - 1e-9)
    ticks = [number * step for number in range(low, max(high, low + 1) + 1)]
    return Axis(title, ticks, write, lambda value: (value - ticks[0]) / (ticks[-1] - ticks[0]))


def logarithmic_axis(title, first, last, write):
    """Returns an axis whose ends and ticks are 1, 2 or 5 times a power of ten."""
    nice = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
        for factor in (1, 2, 5)
    ]
    low = max(value for value in nice if value <= first * (1 + 1e-9))
    high = min(value for value in nice if value >= last and value > low)
    ticks = [value for value in nice if low <= value <= high]
    return Axis(title, ticks, write, lambda value: math.log(value / low) / math.log(high / low))


def write_bytes(count):
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            break
        count /= 1000.0
    return "%g %s" % (count, unit)


def render(title, curves):
    """Returns the SVG. Leaves out points without accuracy, and curves without points.

    ValueError: nothing is left.
    """
    curves = [
        curve._replace(points=[point for point in curve.points if point.accuracy is not None])
        for curve in curves
    ]
    points = [point for curve in curves for point in curve.points]
    if not points:
        raise ValueError("no run has an accuracy to draw")
    accuracy = linear_axis(
        "test accuracy",
        min(point.accuracy for point in points),
        max(point.accuracy for point in points),
        8,
        lambda value: "%.4g %%" % (100 * value),
    )
    seconds = linear_axis("seconds", 0, max(point.seconds for point in points), 8, "{:g}".format)
    traffic = logarithmic_axis(
        "bytes pushed and pulled by all workers",
        max(min(point.bytes for point in points), 1),
        max(max(point.bytes for point in points), 1),
        write_bytes,
    )
    body = [text(LEFT, 20, title, "heading")] + legend(curves)
    for left, across, of in (
        (LEFT, seconds, lambda point: point.seconds),
        (LEFT + PLOT_WIDTH + GAP, traffic, lambda point: max(point.bytes, 1)),
    ):
        body += frame(left, across, accuracy)
        for number, curve in enumerate(curves):
            places = [
                (
                    left + PLOT_WIDTH * across.place(of(point)),
                    TOP + PLOT_HEIGHT * (1 - accuracy.place(point.accuracy)),
                )
                for point in curve.points
            ]
            body += draw_curve(curve, places, COLOURS[number % len(COLOURS)])
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" '
        'height="%g">\n<style>%s</style>\n<rect width="%g" height="%g" fill="#fff"/>\n%s\n</svg>\n'
        % (WIDTH, HEIGHT, WIDTH, HEIGHT, STYLE, WIDTH, HEIGHT, "\n".join(body))
    )


def text(x, y, words, kind):
    return '<text x="%.1f" y="%.1f" class="%s">%s</text>' % (x, y, kind, escape(words))


def legend(curves):
    body = []
    x = LEFT
    for number, curve in enumerate(curves):
        body.append(
            '<path d="M%.1f 40h20" stroke="%s" stroke-width="3"/>'
            % (x, COLOURS[number % len(COLOURS)])
        )
        body.append(text(x + 26, 44, curve.name, "name"))
        x += 50 + 7 * len(curve.name)
    return body


def frame(left, across, up):
    """Returns one plot's grid, ticks and title."""
    bottom = TOP + PLOT_HEIGHT
    body = []
    for tick in across.ticks:
        x = left + PLOT_WIDTH * across.place(tick)
        body.append('<path class="grid" d="M%.1f %.1fV%.1f"/>' % (x, TOP, bottom))
        body.append(text(x, bottom + 16, across.write(tick), "mid"))
    for tick in up.ticks:
        y = TOP + PLOT_HEIGHT * (1 - up.place(tick))
        body.append('<path class="grid" d="M%.1f %.1fH%.1f"/>' % (left, y, left + PLOT_WIDTH))
        if left == LEFT:
            body.append(text(left - 6, y + 4, up.write(tick), "end"))
    body.append(
        text(left + PLOT_WIDTH / 2, bottom + 36, "%s over %s" % (up.title, across.title), "mid")
    )
    return body


def draw_curve(curve, places, colour):
    if not places:
        return []
    line = " ".join("%.1f,%.1f" % place for place in places)
    body = ['<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (line, colour)]
    for number, (point, place) in enumerate(zip(curve.points, places), 1):
        tip = "%s, epoch %d: %.2f %% after %.1f s and %s" % (
            curve.name,
            number,
            100 * point.accuracy,
            point.seconds,
            write_bytes(float("%.3g" % point.bytes)),
        )
        body.append(
            '<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s</title></circle>'
            % (place[0], place[1], colour, escape(tip))
        )
    return body
