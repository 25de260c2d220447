# SPDX-License-Identifier: Apache-2.0
"""slimps decisions: what a policy has decided in a run, from the summary that slimps_worker
--summary_json leaves."""

import sys

from bench.common import Parser
from cli import decisions_svg
from slimps_launch import out_files
from slimps_launch import schema

MAX_TENSORS = 60  # of a picture


def is_codecs(value):
    """True for a codec, or for the codecs among which workers choose."""
    several = value if isinstance(value, list) else [value]
    return bool(several) and all(isinstance(codec, str) for codec in several)


def object_of(words, holds):
    return schema.Kind(
        "an object of " + words,
        lambda value: isinstance(value, dict) and all(map(holds, value.values())),
    )


CODECS = object_of("codecs or of lists of them", is_codecs)
REASONS = object_of("texts", lambda value: isinstance(value, str))
SHAPE = {
    "policy": schema.TEXT,
    "steps": schema.COUNT,
    "tensors": [{"key": schema.TEXT, "elements": schema.COUNT}],
    "policy_decisions": [
        {"from_round": schema.COUNT, "reason": schema.TEXT, "codecs": CODECS, "reasons": REASONS}
    ],
}


class Unreadable(Exception):
    pass


def read(path):
    """Returns the summary. Unreadable: it is none, or of a run without a policy that adapts."""
    try:
        summary = out_files.load_json(path)
        schema.check(summary, SHAPE)
        if not summary["tensors"]:
            raise ValueError("tensors: expected at least one, got []")
    except ValueError as error:
        raise Unreadable(
            "%s: expected what slimps_worker --summary_json writes: %s" % (path, error)
        ) from error
    if not summary["policy_decisions"]:
        raise Unreadable(
            "%s: no decisions; expected a run with a policy that adapts, got --policy=%s"
            % (path, summary["policy"])
        )
    return summary


def show(summary, out):
    """Prints each decision, and each tensor whose codec it changed."""
    out.write("policy %s, %d rounds\n" % (summary["policy"], summary["steps"]))
    before = {}
    for decision in summary["policy_decisions"]:
        out.write("\nfrom round %d: %s\n" % (decision["from_round"], decision["reason"]))
        for tensor in summary["tensors"]:
            key = tensor["key"]
            codecs = decision["codecs"].get(key, "none")
            if before.get(key) == codecs:
                continue
            before[key] = codecs
            codecs = codecs if isinstance(codecs, list) else [codecs]
            reason = decision["reasons"].get(key, "")
            out.write("  %-20s %-24s %s\n" % (key, decisions_svg.label_of(codecs), reason))


def draw(summary, path):
    """Draws the largest tensors, in the summary's order, and says so if there are others."""
    largest = sorted(summary["tensors"], key=lambda tensor: -tensor["elements"])[:MAX_TENSORS]
    named = {tensor["key"] for tensor in largest}
    tensors = [
        (tensor["key"], tensor["elements"])
        for tensor in summary["tensors"]
        if tensor["key"] in named
    ]
    title = "policy " + summary["policy"]
    picture = decisions_svg.render(title, summary["policy_decisions"], tensors, summary["steps"])
    out_files.save_text(path, picture)
    print("\nwrote %s" % path)
    left_out = len(summary["tensors"]) - len(largest)
    if left_out > 0:
        print("%d smaller tensors are not drawn" % left_out)


def main(arguments):
    parser = Parser(
        prog="slimps decisions",
        allow_abbrev=False,
        description="Prints what a policy has decided in a run, and why. docs/policies.md says "
        "which policies there are.",
    )
    parser.add_argument("summary", help="what slimps_worker --summary_json FILE has written")
    parser.add_argument("--svg", metavar="FILE", help="draw it: a row per tensor, a box per codec")
    given = parser.parse_args(arguments)
    out_files.refuse_unwritable(parser, "--svg", given.svg)
    try:
        summary = read(given.summary)
    except Unreadable as error:
        print("slimps decisions: %s" % error, file=sys.stderr)
        return 1
    show(summary, sys.stdout)
    if given.svg:
        draw(summary, given.svg)
    return 0
