# SPDX-License-Identifier: Apache-2.0
"""python3 -m slimps_launch: the `slimps` command."""

import sys


def console():
    """The entry point of an installed slimps."""
    try:
        from slimps_launch import command  # Ctrl-C while this takes its time shows no traceback

        sys.exit(command.guarded(lambda: command.main(sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    console()
