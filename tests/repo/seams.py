# SPDX-License-Identifier: Apache-2.0
"""Actions that have one place each: reading time, starting threads, writing files that must last.

The time           proto/base/clock.h    a Clock, passed in; MachineClock() as default, in programs
A thread           proto/base/thread.h   Thread
A file that lasts  proto/base/file.h     WriteFileDurably, FileWriter; in Python see PYTHON_FILES
"""

import re

CLOCK, THREAD, FILE = "proto/base/clock.h", "proto/base/thread.h", "proto/base/file.h"
# Programs that start a process, its threads and its files as a user would. What they measure is
# real.
TESTS = re.compile(r"tests/")
# Code that users write.
EXAMPLES = re.compile(r"examples/")
# Where the machine's clock is chosen: programs, and files that are only ever part of one.
PROGRAMS = re.compile(r".*_main\.cc$|tools/bench/|proto/base/(clock|mutex)\.|tests/")
# Before MachineClock() in a header: a member's or an argument's default.
DEFAULT = re.compile(r"\bclock\s*=\s*$")

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

# Pattern, files that may contain it, complaint.
RULES = [
    (
        re.compile(
            r"\babsl::Now\(|\bGetCurrentTimeNanos\(|_clock::now\(|\bgettimeofday\(|"
            r"\btimespec_get\(|"
            r"\bclock_gettime\((?!CLOCK_THREAD_CPUTIME_ID)|\bstd::time\(|\btime\((nullptr|NULL|0)\)"
        ),
        re.compile(r"proto/base/clock\.cc$"),
        "the time is read through a Clock (%s)" % CLOCK,
    ),
    (
        re.compile(r"\bRealClock\b"),
        re.compile(r"proto/base/clock\.(h|cc)$|.*_main\.cc$"),
        "a Clock is passed in (%s)" % CLOCK,
    ),
    (
        re.compile(
            r"\bstd::thread\b(?!::)|\bstd::jthread\b|\bstd::async\(|\bpthread_create\(|"
            r"\bthrd_create\("
        ),
        re.compile(r"proto/base/(thread|simulation/simulation)\.(h|cc)$"),
        "threads are started as a Thread (%s)" % THREAD,
    ),
    (
        re.compile(
            r"\bstd::(o|basic_o)?f(ilebuf|stream)\b|\bstd::ofstream\b|\bfopen\([^()]*\"[wa]|"
            r"\bf(data)?sync\(|"
            r"\bstd::rename\(|(?<![\w.>:])rename\(|\bstd::filesystem::rename\("
        ),
        re.compile(r"proto/base/file\.cc$"),
        "what must last is written by %s" % FILE,
    ),
]
PYTHON_RENAME = re.compile(r"\bos\.(replace|rename)\(")
PYTHON_FILES = re.compile(r"python/slimps/_whole_file\.py$|python/slimps_launch/out_files\.py$")


def check_cpp(path, text):
    """Returns complaints about one C++ file."""
    if TESTS.match(path) or EXAMPLES.match(path):
        return []
    code = COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment.group()), text)
    complaints = []
    for pattern, files, words in RULES:
        if files.match(path):
            continue
        complaints += [(match.start(), words) for match in pattern.finditer(code)]
    if not PROGRAMS.match(path):
        for match in re.finditer(r"\bMachineClock\(\)", code):
            if not (path.endswith(".h") and DEFAULT.search(code, 0, match.start())):
                complaints.append((match.start(), "a Clock is passed in (%s)" % CLOCK))
    return [
        "%s:%d: %s" % (path, code.count("\n", 0, at) + 1, words) for at, words in sorted(complaints)
    ]


def check_python(path, text):
    """Returns complaints about one Python file. A file gets its name where it was synced."""
    if TESTS.match(path) or PYTHON_FILES.match(path):
        return []
    return [
        "%s:%d: what must last is written by out_files or _whole_file"
        % (path, text.count("\n", 0, match.start()) + 1)
        for match in PYTHON_RENAME.finditer(text)
    ]
