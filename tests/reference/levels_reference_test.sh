#!/bin/bash
# Debian's python3 with python3-numpy; without it the comparison is skipped, and says so.
set -eu
if ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
  echo "SKIPPED: /usr/bin/python3 has no numpy (package python3-numpy)"
  exit 0
fi
exec /usr/bin/python3 "$1" "$2"
