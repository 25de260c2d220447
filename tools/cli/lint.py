# SPDX-License-Identifier: Apache-2.0
"""slimps lint: what clang-tidy finds in C++ sources, by the checks of .clang-tidy, and lint_python
in Python sources."""

import argparse
import concurrent.futures
import json
import os
import subprocess
import tempfile

from cli import lint_python, progress, setup

# clang 14 cannot compile libtorch 1.13's headers as C++20.
COMPILATIONS = 'mnemonic("CppCompile", //... except attr(tags, torch, //...))'
GCC_ONLY = ("-fno-canonical-system-headers", "-Werror")


CHANGED = (
    ["git", "diff", "--name-only", "--diff-filter=d", "HEAD^"],
    ["git", "ls-files", "--others", "--exclude-standard"],
)
TRACKED = (["git", "ls-files"],)


def listed(commands):
    """Returns the paths that git lists: CHANGED, what the last commit changed and what differs from
    it; TRACKED, all files."""
    paths = set()
    for command in commands:
        listing = subprocess.run(
            command,
            cwd=setup.REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        ).stdout
        paths.update(listing.splitlines())
    return paths


def compile_commands(actions):
    """Returns {source: clang's arguments} from Bazel's list of compilations, without what Bazel
    generates."""
    commands = {}
    for action in actions:
        arguments = [word for word in action["arguments"][1:] if word not in GCC_ONLY]
        source = arguments[arguments.index("-c") + 1]
        if source.endswith(".cc") and not source.startswith("bazel-out/"):
            commands[source] = ["clang++", "-Wno-unknown-warning-option"] + arguments
    return commands


def sources_of(paths, sources):
    """Returns those of `sources` that are among `paths`, or whose header is."""
    wanted = {os.path.splitext(path)[0] for path in paths if path.endswith((".cc", ".h"))}
    return [source for source in sorted(sources) if os.path.splitext(source)[0] in wanted]


def findings(source, folder):
    """Returns what clang-tidy prints of one source, "" if that is clean."""
    result = subprocess.run(
        ["clang-tidy", "--quiet", "-p", folder, source],
        cwd=setup.REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        return ""
    return result.stdout or result.stderr


def lint(sources, commands, show):
    """Checks `sources` on all cores and calls `show` with each one's findings.

    Returns those that are not clean.
    """
    database = [
        {"directory": setup.REPOSITORY, "file": source, "arguments": commands[source]}
        for source in sources
    ]
    bad = []
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump(database, file)
        with progress.Bar(len(sources), "sources") as bar, concurrent.futures.ThreadPoolExecutor(
            os.cpu_count()
        ) as pool:
            results = pool.map(lambda source: findings(source, folder), sources)
            for source, found in zip(sources, results):
                if found:
                    bad.append(source)
                    show("%s\n%s" % (source, found.rstrip()))
                bar.advance(source)
    return bad


def ask_bazel():
    """Returns compile_commands of the tree. Builds the generated header that sources include."""
    setup.build(["//proto:slimps_proto"])
    answer = setup.bazel_output("aquery", [COMPILATIONS, "--output=jsonproto"])
    return compile_commands(json.loads(answer)["actions"])


def changed_is_clean():
    """Checks the C++ sources that the last commit or the working tree changed.

    Returns True if clang-tidy finds nothing, and otherwise prints what it finds.
    """
    commands = ask_bazel()
    return not lint(sources_of(listed(CHANGED), commands), commands, progress.say)


def run(arguments):
    parser = argparse.ArgumentParser(
        prog="slimps lint",
        description="Checks C++ sources with clang-tidy, and Python sources with black and flake8. "
        "Exit status 1: it found something.",
    )
    parser.add_argument("--all", action="store_true", help="check every source of the tree")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="sources or headers, relative to the "
        "repository; default: what the last commit or the working tree changed",
    )
    options = parser.parse_args(arguments)
    paths = options.files or listed(TRACKED if options.all else CHANGED)
    setup.install_packages()
    python = lint_python.python_files(paths)
    found = lint_python.python_findings(python)
    if found:
        print("\n".join(found), flush=True)
    commands = ask_bazel()
    sources = sorted(commands)
    if not options.all:
        unknown = [
            path
            for path in options.files
            if path not in python and not sources_of([path], commands)
        ]
        if unknown:
            parser.error("no source of the tree: " + ", ".join(unknown))
        sources = sources_of(paths, commands)
    bad = lint(sources, commands, progress.say)
    print("%d C++ sources checked, %d with findings" % (len(sources), len(bad)))
    print("%d Python sources checked, %d findings" % (len(python), len(found)))
    return 1 if bad or found else 0
