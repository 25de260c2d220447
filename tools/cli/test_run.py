# SPDX-License-Identifier: Apache-2.0
"""Runs all tests and counts their cases."""

import json
import os
import sys
import tempfile
import urllib.parse
import xml.etree.ElementTree as ElementTree

from cli import lint
from cli import setup
from cli import torch2_environment


WITHOUT_TORCH2 = "--without-torch2"


class Tally:
    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []  # names

    def last_line(self):
        line = "%d passed, %d failed" % (self.passed, len(self.failures))
        return line + (", %d skipped" % self.skipped if self.skipped else "")


def count_cases(label, status, documents, tally):
    """Adds one target's cases to `tally`; `documents` are the contents of its test.xml files.

    A target without cases counts as one case.
    """
    cases = []
    for document in documents:
        try:
            cases += ElementTree.fromstring(document).iter("testcase")
        except ElementTree.ParseError:
            pass  # the target's status still counts
    failures = []
    for case in cases:
        name = "%s %s" % (label, ".".join(filter(None, (case.get("classname"), case.get("name")))))
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(name)
        elif case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
            tally.skipped += 1
        elif case.get("status") == "notrun":
            pass  # a disabled case does not count
        else:
            tally.passed += 1
    if status == "PASSED" and not cases:
        tally.passed += 1
    if status != "PASSED" and not failures:
        failures.append("%s (%s)" % (label, status.lower().replace("_", " ")))
    tally.failures += failures


def read_events(path):
    """Reads Bazel's event stream. Returns {label: (status, test.xml files)} of all targets."""
    targets = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if "testSummary" in event.get("id", {}) and "testSummary" in event:
                label = event["id"]["testSummary"]["label"]
                targets.setdefault(label, ["", {}])[0] = event["testSummary"].get(
                    "overallStatus", "UNKNOWN"
                )
            if "testResult" in event.get("id", {}) and "testResult" in event:
                result_id = event["id"]["testResult"]
                for output in event["testResult"].get("testActionOutput", []):
                    if output.get("name") == "test.xml" and output.get("uri", "").startswith(
                        "file://"
                    ):
                        # Attempts come in order, and the last one counts.
                        part = (result_id.get("shard", 0), result_id.get("run", 0))
                        xml = urllib.parse.unquote(output["uri"][len("file://") :])
                        targets.setdefault(result_id["label"], ["", {}])[1][part] = xml
    return {label: (status, list(parts.values())) for label, (status, parts) in targets.items()}


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as text:
        return text.read()


def count_lint(tally):
    """Adds one case to `tally`: clang-tidy finds nothing in changed C++ sources."""
    if lint.changed_is_clean():
        tally.passed += 1
    else:
        tally.failures.append("slimps lint")


def torch2_options(targets, left_out):
    """Returns Bazel's options that choose the Python with torch 2, or leave out its tests.

    The environment is made only if `targets` may contain such tests. If that fails, these tests
    fail, which says how to leave them out.
    """
    if left_out:
        return ["--test_tag_filters=-torch2"]
    if not any(target.startswith(("//...", "//tests/...", "//tests/python")) for target in targets):
        return []
    try:
        return ["--test_env=SLIMPS_TORCH2_PYTHON=" + torch2_environment.ensure()]
    except setup.SetupError as error:
        print(
            "slimps: %s; %s leaves out the tests that need it" % (error, WITHOUT_TORCH2),
            file=sys.stderr,
        )
        return []


def run(arguments):
    """Tests targets (default all) with Bazel options. Returns the exit status."""
    setup.install_packages()
    left_out = WITHOUT_TORCH2 in arguments
    arguments = [argument for argument in arguments if argument != WITHOUT_TORCH2]
    targets = [argument for argument in arguments if not argument.startswith("-")]
    everything = not arguments
    if not targets:
        targets = ["//..."]
        arguments = arguments + targets
    options = ["--keep_going"] + torch2_options(targets, left_out)
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        events = os.path.join(folder, "events.json")
        status = setup.run_bazel(
            "test", options + ["--build_event_json_file=" + events] + arguments
        )
        results = read_events(events) if os.path.exists(events) else {}
    tally = Tally()
    for label, (overall, paths) in sorted(results.items()):
        count_cases(
            label,
            overall or "NO_STATUS",
            [read_text(path) for path in paths if os.path.exists(path)],
            tally,
        )
    if everything:
        count_lint(tally)
    if status != 0 and not tally.failures:
        tally.failures.append("bazel test (exit status %d, see above)" % status)
    for name in tally.failures:
        print("FAILED " + name)
    if left_out:
        print("the tests of today's PyTorch were left out (%s)" % WITHOUT_TORCH2)
    print(tally.last_line(), flush=True)
    return 1 if tally.failures else 0
