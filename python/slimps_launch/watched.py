# SPDX-License-Identifier: Apache-2.0
"""The flags of `slimps launch` by which a running job can be watched.

The scheduler does the work: it serves the page and the metrics, and writes where they are to a file
that only this user can read. `slimps status` looks for that file.
"""

import argparse
import contextlib
import os
import re
import tempfile


def port(text):
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError('expected 0 to 65535, got "%s"' % text)
    return int(text)


def seconds(text):
    if not text.isdigit() or int(text) > 1000000:
        raise argparse.ArgumentTypeError('expected 0 to 1000000 seconds, got "%s"' % text)
    return int(text)


def add_page_flag(parser):
    parser.add_argument(
        "--page_port",
        type=port,
        metavar="P",
        help="serve a live page of the job here; its address is in the output; 0: any free port",
    )


def add_flags(parser):
    add_page_flag(parser)
    parser.add_argument(
        "--metrics_port",
        type=port,
        metavar="P",
        help="serve the metrics of all nodes for Prometheus here; 0: any free port",
    )
    parser.add_argument(
        "--watch_bind",
        metavar="ADDRESS",
        help="address of both (default: 127.0.0.1); where others reach it, /metrics asks for the "
        "page's token, too",
    )
    parser.add_argument(
        "--stall_warning",
        type=seconds,
        metavar="SECONDS",
        help="say who waits for whom after so long (default: 10; 0: never)",
    )


def scheduler_flags(options):
    """Returns the scheduler's flags for what the user wants to watch."""
    flags = []
    for name in ("page_port", "metrics_port", "watch_bind", "stall_warning"):
        value = getattr(options, name)
        if value is not None:
            flags += ["--" + name, str(value)]
    return flags


def folder_of_files(environment):
    """Returns where the files of this user's running jobs are."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "slimps")
    return os.path.join(os.path.expanduser("~"), ".cache", "slimps")


def launcher_of(path):
    """Returns the pid of the launcher that has made room for this file; None: it is by hand."""
    named = re.fullmatch(r"job-(\d+)-\w+\.json", os.path.basename(path))
    return int(named.group(1)) if named else None


@contextlib.contextmanager
def file_of_job(options, environment):
    """Makes room for the file that says where the job can be watched; gives the scheduler's flags.

    The file goes with the block, also if the scheduler is killed. Without a page there is none. A
    home that cannot be written to costs only the file.
    """
    if options.page_port is None:
        yield []
        return
    folder = folder_of_files(environment)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        place = tempfile.NamedTemporaryFile(
            prefix="job-%d-" % os.getpid(), suffix=".json", dir=folder
        )
    except OSError:
        yield []
        return
    try:
        yield ["--watch_file", place.name]
    finally:
        # The scheduler has replaced or removed it.
        with contextlib.suppress(FileNotFoundError):
            place.close()
