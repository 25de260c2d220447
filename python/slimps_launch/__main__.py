# SPDX-License-Identifier: Apache-2.0
"""python3 -m slimps_launch: the `slimps` command."""

from slimps_launch import command

if __name__ == "__main__":
    command.console()
