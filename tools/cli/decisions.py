# SPDX-License-Identifier: Apache-2.0
"""slimps decisions: what a policy has decided in a run, from the summary that slimps_worker
--summary_json leaves."""

import argparse
import json
import sys

from cli import decisions_svg

MAX_TENSORS = 60  # of a picture


class Unreadable(Exception):
    pass


def read(path):
    """Returns the summary. Unreadable: it is none, or of a run without a policy that adapts."""
    try:
        with open(path, encoding="utf-8") as text:
            summary = json.load(text)
    except (OSError, ValueError) as error:
        raise Unreadable("%s: %s" % (path, error)) from error
    if not isinstance(summary, dict) or "policy_decisions" not in summary:
        raise Unreadable("%s: expected what slimps_worker --summary_json writes" % path)
    if not summary["policy_decisions"]:
        raise Unreadable(
            "%s: no decisions; expected a run with a policy that adapts, got --policy=%s"
            % (path, summary.get("policy"))
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


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps decisions",
        description="Prints what a policy has decided in a run, and why. docs/policies.md says "
        "which policies there are.",
    )
    parser.add_argument("summary", help="what slimps_worker --summary_json FILE has written")
    parser.add_argument("--svg", metavar="FILE", help="draw it: a row per tensor, a box per codec")
    given = parser.parse_args(arguments)
    try:
        summary = read(given.summary)
    except Unreadable as error:
        print("slimps decisions: %s" % error, file=sys.stderr)
        return 1
    show(summary, sys.stdout)
    if given.svg:
        rows = sorted(summary["tensors"], key=lambda tensor: -tensor["elements"])[:MAX_TENSORS]
        named = {tensor["key"] for tensor in rows}
        tensors = [
            (tensor["key"], tensor["elements"])
            for tensor in summary["tensors"]
            if tensor["key"] in named
        ]
        with open(given.svg, "w", encoding="utf-8") as picture:
            picture.write(
                decisions_svg.render(
                    "policy " + summary["policy"],
                    summary["policy_decisions"],
                    tensors,
                    summary["steps"],
                )
            )
        print("\nwrote %s" % given.svg)
    return 0
