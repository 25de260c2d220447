#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Debian's python3 with python3-numpy (tools/debian_packages.txt). Another python3 may come first in
# PATH.
set -eu
exec /usr/bin/python3 -B "$1" "$2"
