# SPDX-License-Identifier: Apache-2.0
"""The slimps command of a test: slimps_here.py RUNFILES COMMAND ...

It is as an installed slimps is, with the daemons and the package as Bazel has built them.
"""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python"))
sys.dont_write_bytecode = True

from slimps_launch import command  # noqa: E402


class Runfiles(command.Installation):
    def __init__(self, folder):
        self.folder = folder
        self.again = [sys.executable, os.path.abspath(__file__), folder]

    def programs(self, names):
        return {
            name: os.path.join(self.folder, name.replace("slimps_", ""), name) for name in names
        }

    def environment(self, command):
        package = os.path.join(self.folder, "python", "package")
        return {"PYTHONUNBUFFERED": "1", "PYTHONPATH": package}


if __name__ == "__main__":
    sys.exit(
        command.guarded(lambda: command.main(sys.argv[2:], Runfiles(os.path.abspath(sys.argv[1]))))
    )
