# SPDX-License-Identifier: Apache-2.0
"""One training run of slimps_worker on this machine: a job of real processes, and its summary.

    summary = run(programs, Training("fp32", ("--model", "mlp", "--dataset", "digits"), 2, 2))

Owned by the main thread: the launcher catches signals.
"""

import collections
import os
import subprocess
import sys
import tempfile

from cli import setup
from slimps_launch import job_launch
from slimps_launch import out_files

# flags: of every worker, without --summary_json.
Training = collections.namedtuple("Training", "name flags workers servers")


def why_refused(worker, flags):
    """Returns what the program `worker` says against the flags; None if it takes them."""
    checked = subprocess.run(
        [worker, "--dry_run", "--scheduler", "none:1"] + list(flags),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if checked.returncode == 0:
        return None
    return checked.stderr.strip().replace("slimps_worker: ", "")


def run(programs, training, show=None, verbose=False, environment=None, scheduler_flags=()):
    """Trains once and returns the summary that worker rank 0 wrote.

    SetupError: the run failed or left no summary.
    SystemExit: a signal interrupted it.
    """
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        summary = os.path.join(folder, "summary.json")
        job = job_launch.Job(
            scheduler=[programs["slimps_scheduler"]] + list(scheduler_flags),
            server=[programs["slimps_server"]],
            worker=[programs["slimps_worker"]] + list(training.flags) + ["--summary_json", summary],
            workers=training.workers,
            servers=training.servers,
            environment=environment,
        )
        launcher = job_launch.Launcher(job, show=show, verbose=verbose, out=sys.stderr)
        status = launcher.run()
        if launcher.interrupted is not None:
            raise SystemExit(status)  # no message: the person who interrupted it knows why
        if status != 0:
            raise setup.SetupError(
                "run \"%s\" failed with status %d (see above)" % (training.name, status)
            )
        try:
            return out_files.load_json(summary)
        except ValueError as error:
            raise setup.SetupError(
                "run \"%s\" left no summary: %s" % (training.name, error)
            ) from error
