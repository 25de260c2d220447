# SPDX-License-Identifier: Apache-2.0
"""How C++ source reads, as far as a script can tell: line length, licence, comments that begin as
sentences do."""

import re

MAX_COLUMNS = 100
LICENCE = "SPDX-License-Identifier: Apache-2.0"
FRAGMENT = re.compile(r"^\s*(//|/\*|\*)\s*(Of|Whether)\b")


def check_cpp(path, text):
    """Returns the complaints about one C++ file."""
    complaints = []
    if LICENCE not in text.split("\n", 1)[0]:
        complaints.append("%s:1: expected // %s" % (path, LICENCE))
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS:
            complaints.append(
                "%s:%d: %d columns, expected at most %d" % (path, number, len(line), MAX_COLUMNS)
            )
        if FRAGMENT.match(line):
            complaints.append(
                "%s:%d: a comment begins with a verb or a subject: %s"
                % (path, number, line.strip())
            )
    return complaints
