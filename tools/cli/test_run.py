# SPDX-License-Identifier: Apache-2.0
"""Runs all tests and counts their cases."""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import xml.etree.ElementTree as ElementTree

from cli import lint
from cli import pip_environment
from cli import python_wheel
from cli import setup

WHEEL = os.path.join(setup.REPOSITORY, "bazel-bin", "wheel")
# The tests that need what pip installs: tag, what they are, what makes the variables they need.
OPTIONAL = [
    (
        "torch2",
        "of today's PyTorch",
        lambda: {"SLIMPS_TORCH2_PYTHON": pip_environment.ensure("torch2")},
    ),
    (
        "wheel",
        "of the wheel",
        lambda: {
            # Relative: what all tests are given is the same in every checkout, and so are results.
            "SLIMPS_WHEEL": os.path.relpath(python_wheel.build(WHEEL), setup.REPOSITORY),
            "SLIMPS_NEWEST_PYTHON": newest_python(),
        },
    ),
]


# What targets that may contain optional tests begin with.
_WITH_OPTIONAL = ("//...", "//tests/...") + tuple(
    "//tests/" + name for name in ("examples", "launch", "python", "tools")
)


def newest_python():
    """Returns the newest Python in PATH: the wheel is tried under it, too."""
    for minor in range(30, 8, -1):
        path = shutil.which("python3.%d" % minor)
        # Some managers of versions have commands that only say how to get that version.
        if path and subprocess.run([path, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    return "/usr/bin/python3"


class Tally:
    def __init__(self):
        self.passed = 0
        self.skipped = collections.Counter()  # cases, by reason
        self.failures = []  # names

    def last_line(self):
        line = "%d passed, %d failed" % (self.passed, len(self.failures))
        skipped = sum(self.skipped.values())
        return line + (", %d skipped" % skipped if skipped else "")


def reason_of_skip(case):
    """Returns the reason in one line; googletest's without the file and the line before it."""
    skipped = case.find("skipped")
    message = (skipped.get("message") or skipped.text or "") if skipped is not None else ""
    words = re.sub(r"^\S+:\d+\n", "", message).split()
    return " ".join(words) or "no reason given"


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
            tally.skipped[reason_of_skip(case)] += 1
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


def optional_tests(targets, left_out):
    """Returns Bazel's options for the optional tests, of which `left_out` are to be left out.

    What they need is made only if `targets` may contain them. If that fails, these tests fail,
    which says how to leave them out.
    """
    options = ["--test_tag_filters=" + ",".join("-" + tag for tag in left_out)] if left_out else []
    if not any(target.startswith(_WITH_OPTIONAL) for target in targets):
        return options
    for tag, _, make in OPTIONAL:
        if tag in left_out:
            continue
        try:
            options += ["--test_env=%s=%s" % variable for variable in make().items()]
        except setup.SetupError as error:
            print(
                "slimps: %s; --without-%s leaves out the tests that need it" % (error, tag),
                file=sys.stderr,
            )
    return options


def run(arguments):
    """Tests targets (default all) with Bazel options. Returns the exit status."""
    setup.install_packages(setup.TEST_PACKAGE_LIST)
    left_out = [tag for tag, *_ in OPTIONAL if "--without-" + tag in arguments]
    arguments = [one for one in arguments if one not in ["--without-" + tag for tag in left_out]]
    targets = [argument for argument in arguments if not argument.startswith("-")]
    everything = not arguments
    if not targets:
        targets = ["//..."]
        arguments = arguments + targets
    options = ["--keep_going"] + optional_tests(targets, left_out)
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
    for reason, cases in sorted(tally.skipped.items()):
        print("SKIPPED %d: %s" % (cases, reason))
    for tag, what, *_ in OPTIONAL:
        if tag in left_out:
            print("the tests %s were left out (--without-%s)" % (what, tag))
    print(tally.last_line(), flush=True)
    return 1 if tally.failures else 0
