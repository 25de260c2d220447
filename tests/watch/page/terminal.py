# SPDX-License-Identifier: Apache-2.0
"""What a command of slimps says in a terminal."""

import contextlib
import io

from slimps_launch import command


def run(*arguments):
    """Returns the exit status, what was printed, and what was complained about."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            code = command.guarded(lambda: command.main(list(arguments)))
        except SystemExit as ended:
            code = ended.code
    return code, said.getvalue(), complained.getvalue()
