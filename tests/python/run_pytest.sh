#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs pytest files with Debian's python3, or (--torch2) with SLIMPS_TORCH2_PYTHON, on the package
# as it was built. Their cases are counted one by one.
set -eu
export PYTHONPATH="$PWD/python/package:$PWD/tests/python:$PWD/tests/python/pytorch"
export PYTHONPATH="$PYTHONPATH:$PWD/tests/cluster/processes:$PWD/tests/repo:$PWD/tests/reference"
export PYTHONPATH="$PYTHONPATH:$PWD/tests/launch"
export PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3
if [ "$1" = --torch2 ]; then
  python=${SLIMPS_TORCH2_PYTHON:?names no Python: tools/slimps test makes one with torch 2}
  shift
fi
# Named from the checkout's root, where this file's own name leads.
[ -z "${SLIMPS_WHEEL-}" ] ||
  export SLIMPS_WHEEL="$(dirname "$(realpath "$0")")/../../$SLIMPS_WHEEL"
exec "$python" -m pytest -v -p no:cacheprovider --junitxml="$XML_OUTPUT_FILE" "$@"
