# SPDX-License-Identifier: Apache-2.0
"""The source tree as the repository checks see it."""

import os

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
CPP_SUFFIXES = (".h", ".cc", ".c", ".cu", ".cuh")
BUILD_NAMES = ("BUILD", "BUILD.bazel", "WORKSPACE")


def files():
    """Returns the paths of all source files, relative to the repository, without Bazel's links and
    hidden folders."""
    found = []
    for folder, folders, names in os.walk(REPOSITORY):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "bazel-")) and name != "__pycache__"
        )
        found += [os.path.relpath(os.path.join(folder, name), REPOSITORY) for name in sorted(names)]
    return found


def cpp_files():
    return [path for path in files() if path.endswith(CPP_SUFFIXES)]


def build_files():
    return [
        path for path in files() if os.path.basename(path) in BUILD_NAMES or path.endswith(".bzl")
    ]


def read(path):
    with open(os.path.join(REPOSITORY, path), encoding="utf-8") as text:
        return text.read()
