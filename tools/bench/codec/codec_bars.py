# SPDX-License-Identifier: Apache-2.0
"""The bars of slimps bench codec, and which rows of a report meet them."""

from bench.common import verdict

LARGE = 16 << 20
SMALL = 64 << 10
# The bars of a codec on one thread with AVX2, as a fraction of the reference.
ENCODE_BARS = {
    "1bit": 0.80,
    "2bit": 0.80,
    "signsgd": 0.80,
    "fp16": 0.70,
    "bf16": 0.70,
    "terngrad": 0.50,
    "qsgd": 0.50,
    "dithering": 0.50,
    "drive": 0.25,
    "thc": 0.25,
    "threshold": 0.40,
    "adacomp": 0.40,
    "mstopk": 0.40,
    "redsync": 0.40,
    "dgc": 0.40,
    "topk": 0.40,
    "randomk": 0.60,
}
DECODE_BARS = dict.fromkeys(("1bit", "2bit", "signsgd", "terngrad", "qsgd", "dithering"), 0.80)
CACHE_BARS = {"1bit": 0.50, "2bit": 0.50}
BARS = {
    ("encode_ef", LARGE): ENCODE_BARS,
    ("encode_ef", SMALL): CACHE_BARS,
    ("decode_add", LARGE): DECODE_BARS,
    ("levels", LARGE): {"topk": 1.10},
    ("levels", SMALL): {"topk": 1.10},
}
SPARSE = ("threshold", "adacomp", "mstopk", "redsync", "dgc", "topk", "randomk")
SPARSE_DECODE_BAR = 5  # sparse codecs decode at least so many times as fast as raw fp32
AGGREGATE_BAR = 3  # 16 workers take at most so many times the time of one
# Two threads reach so many times one thread's GB/s, or the GB/s of two threads' reference.
THREADS_BAR = 1.7


def find(rows, like, **changes):
    """Returns the row with the identifying fields of `like`, except for `changes`; or None."""
    wanted = {
        field: like[field] for field in ("codec", "op", "workers", "elements", "threads", "isa")
    }
    wanted.update(changes)
    return next(
        (row for row in rows if all(row[field] == value for field, value in wanted.items())), None
    )


def times_raw(rows, row):
    """Returns how many times as fast a row is as DecodeAdd of raw fp32; None: raw was not measured.

    Both count as fractions of their references.
    """
    raw = find(rows, row, codec="none")
    return row["fraction_of_reference"] / raw["fraction_of_reference"] if raw else None


def bar_remarks(rows, row):
    """Yields the row's bars, each with "met" or "MISSED"."""
    single = row["threads"] == 1 and row["isa"] == "avx2"
    bar = BARS.get((row["op"], row["elements"]), {}).get(row["codec"])
    if single and bar is not None:
        yield verdict(row["fraction_of_reference"] >= bar, "%.2f" % bar)
    ratio = times_raw(rows, row)
    if (
        single
        and row["op"] == "decode_add"
        and row["elements"] == LARGE
        and row["codec"] in SPARSE
        and ratio
    ):
        yield verdict(ratio >= SPARSE_DECODE_BAR, "%d x raw" % SPARSE_DECODE_BAR)
    one = find(rows, row, workers=1)
    if (
        single
        and row["op"] == "aggregate"
        and row["workers"] == 16
        and row["elements"] == LARGE
        and one
    ):
        yield verdict(16 * one["gbps"] <= AGGREGATE_BAR * row["gbps"], "%d x" % AGGREGATE_BAR)
    one = find(rows, row, threads=1)
    if row["threads"] == 2 and row["isa"] == "avx2" and row["elements"] == LARGE and one:
        enough = min(THREADS_BAR * one["gbps"], row["reference_gbps"])
        yield verdict(row["gbps"] >= enough, "%.1f x 1 thread" % THREADS_BAR)
