# SPDX-License-Identifier: Apache-2.0
"""`slimps demo`: trains on handwritten digits over a slow link, in fp32, in bf16, and by 1bit."""

import argparse
import json
import os
import sys
from typing import Any, Callable, Dict, List

from slimps_launch import job_folders
from slimps_launch import watched

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_worker.py")
LINK = "100mbit"
RUNS = [
    ("fp32", "everything in full precision", []),
    (
        "bf16",
        "half the bytes, which costs no accuracy: what compression is to beat",
        ["compression=bf16", "threshold=0", "pull_compression=bf16", "pull_threshold=0"],
    ),
    (
        "1bit",
        "1 bit per element both ways, from the size on that is measured to pay",
        ["compression=1bit", "threshold=auto", "pull_compression=1bit", "pull_threshold=auto"],
    ),
]


def table_line(name: str, summary: Dict[str, Any]) -> str:
    return "%-6s %8.1f %% %9.1f %11.2f %11.2f" % (
        name,
        100 * summary["accuracy"],
        summary["seconds"],
        summary["bytes_pushed"] / 1e6,
        summary["bytes_pulled"] / 1e6,
    )


def main(arguments: List[str], launch: Callable[[List[str]], int]) -> int:
    """Runs the demo; `launch` is the command that starts a job. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="slimps demo", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="default %(default)s")
    parser.add_argument("--servers", type=int, default=2, metavar="S", help="default %(default)s")
    parser.add_argument(
        "--link",
        default=LINK,
        metavar="RATE",
        help="each worker's traffic is held to this, as 100mbit or 12.5MB (default %(default)s)",
    )
    watched.add_page_flag(parser)
    options = parser.parse_args(arguments)
    size = ["--workers", str(options.workers), "--servers", str(options.servers)]
    if options.page_port is not None:
        size += ["--page_port", str(options.page_port)]
    # Threads of numpy's that wait for work would keep cores from the other processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    lines = []
    with job_folders.folder("demo") as folder:
        for name, meaning, store in RUNS:
            print("%s: %s" % (name, meaning), flush=True)
            summary = os.path.join(folder, name)
            worker = [sys.executable, WORKER, summary, "emulate_link=" + options.link]
            status = launch(size + ["--"] + worker + store)
            if status != 0:
                return status
            with open(summary, encoding="utf-8") as text:
                lines.append(table_line(name, json.load(text)))
    print(
        "\nUCI handwritten digits, %d workers, %d servers on this machine; each worker's traffic "
        "is held to %s.\n" % (options.workers, options.servers, options.link)
    )
    print("run      accuracy   seconds   pushed MB   pulled MB")
    print("\n".join(lines))
    return 0
