#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs pytest files with Debian's python3 on the package as it was built. Their cases are
# counted one by one.
set -eu
export PYTHONPATH="$PWD/python/package:$PWD/tests/python:$PWD/tests/cluster/processes:$PWD/tests/repo"
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 -m pytest -v -p no:cacheprovider --junitxml="$XML_OUTPUT_FILE" "$@"
