#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a python unittest file with Debian's python3: $1, a path from the workspace's root. A runfile
# that is a link into the source tree is run from there, so that it sees the tree around it.
set -eu
exec /usr/bin/python3 -B "$(realpath "$1")" -v
