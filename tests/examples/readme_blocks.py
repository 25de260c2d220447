# SPDX-License-Identifier: Apache-2.0
"""The code blocks of README.md. `readme_blocks.py README LANGUAGE` prints the only one of a
language."""

import re
import sys

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path, language):
    """Returns the blocks in their order."""
    with open(path, encoding="utf-8") as text:
        return [code for found, code in BLOCK.findall(text.read()) if found == language]


if __name__ == "__main__":
    (code,) = blocks(*sys.argv[1:])
    sys.stdout.write(code)
