# SPDX-License-Identifier: Apache-2.0
"""Where a running job says what it does: at its scheduler, which a file names.

The scheduler writes FILE to its --watch_file. `slimps launch` has that file in a folder of this
user, perhaps a home that several machines share.
"""

import contextlib
import http.client
import json
import os
import socket
import urllib.error
import urllib.parse
import urllib.request

from slimps_launch import errors
from slimps_launch import schema
from slimps_launch import watched
from slimps_launch.watching import state

TIMEOUT_S = 5
MAX_BYTES = 64 << 20
FILE = {
    "address": schema.TEXT,
    "token": schema.TEXT,
    "job": schema.TEXT,
    "pid": schema.COUNT,
    "host": schema.TEXT,
    "begun": schema.SIZE,
}


class Silent(errors.LaunchError):
    """The scheduler does not answer."""


class Source:
    """Asks one scheduler."""

    def __init__(self, address, token, file=None):
        url = urllib.parse.urlsplit(address)
        if url.scheme not in ("http", "https") or not url.netloc:
            raise errors.LaunchError("%s: expected an address like http://127.0.0.1:PORT" % address)
        given = urllib.parse.parse_qs(url.query).get("token", [""])[0]
        self.address = "%s://%s" % (url.scheme, url.netloc)
        self.file = file  # the file that named it; None: the user did
        self.url = "%s/job.json?%s" % (
            self.address,
            urllib.parse.urlencode({"token": given or token}),
        )
        # A proxy would see the token, and does not reach this machine's own addresses.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self):
        """Returns the job's state. Silent: no answer. LaunchError: another one."""
        try:
            with self.opener.open(self.url, timeout=TIMEOUT_S) as answer:
                text = answer.read(MAX_BYTES)
        except urllib.error.HTTPError as error:
            if error.code == 403:
                raise errors.LaunchError(
                    "%s: refused: the token is not this job's" % self.address
                ) from error
            raise errors.LaunchError(
                "%s: HTTP status %d: %s" % (self.address, error.code, error.reason)
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Silent("%s: no answer (%s): the job may be over" % (self.address, words)) from (
                error
            )
        try:
            return state.parse(text)
        except ValueError as error:
            raise errors.LaunchError(
                "%s: this is no scheduler of slimps, or one of another version: %s"
                % (self.address, error)
            ) from error


def folders(environment):
    """Returns the folders where launch may have put a job's file."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    home = os.path.join(os.path.expanduser("~"), ".cache")
    return [os.path.join(folder, "slimps") for folder in (runtime, home) if folder]


def begun(pid):
    """Returns when a process began, in clock ticks since this machine did. None: there is none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # from the third on
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def read(path):
    """Returns what the file of a running job says, or None: there is none.

    Removes a file whose launcher was killed. As long as it lives it may start a scheduler again,
    which reads the file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            job = json.load(file)
        schema.check(job, FILE)
    except (OSError, ValueError):
        return None  # another program's, or one that ended this moment
    if job["host"] != socket.gethostname():
        return None
    if begun(job["pid"]) == job["begun"]:
        return job
    launcher = watched.launcher_of(path)
    if launcher is not None and begun(launcher) is None:
        with contextlib.suppress(OSError):
            os.remove(path)
    return None


def running_jobs(environment):
    """Returns what the files of running jobs say, by path."""
    jobs = {}
    for folder in folders(environment):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in sorted(name for name in names if name.endswith(".json")):
            path = os.path.join(folder, name)
            if (job := read(path)) is not None:
                jobs[path] = job
    return jobs


def add_flags(parser):
    parser.add_argument("--job", metavar="NAME|PID", help="which job, if several run here")
    parser.add_argument(
        "--address",
        metavar="URL",
        help="where the scheduler's page is, as its log says it (default: of the job that slimps "
        "launch runs here)",
    )
    token = parser.add_mutually_exclusive_group()
    token.add_argument(
        "--token", metavar="T", help="the page's token, if URL lacks it (environment: SLIMPS_TOKEN)"
    )
    token.add_argument("--token_file", metavar="FILE", help="file with the token")


def check(parser, options):
    for name in ("token", "token_file"):
        if getattr(options, name) and not options.address:
            parser.error("--%s goes with --address" % name)
    if options.job and options.address:
        parser.error("--job and --address exclude each other")


def token_of(options, environment):
    """Returns the token that the user gave beside the address. LaunchError: FILE is not there."""
    if options.token_file is None:
        return options.token or environment.get("SLIMPS_TOKEN", "")
    try:
        with open(options.token_file, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise errors.LaunchError("--token_file %s: %s" % (options.token_file, reason)) from error


def find(options, environment):
    """Returns the Source that the flags mean. LaunchError: there is none, or more than one."""
    if options.address:
        return Source(options.address, token_of(options, environment))
    jobs = running_jobs(environment)
    if options.job is not None:
        jobs = {
            path: job for path, job in jobs.items() if options.job in (job["job"], str(job["pid"]))
        }
    if not jobs:
        raise errors.LaunchError(
            "no job%s runs here that can be watched; start it with slimps launch --page_port 0, "
            "or give --address URL" % (' "%s"' % options.job if options.job is not None else "")
        )
    if len(jobs) > 1:
        named = sorted("%(job)s (pid %(pid)d)" % job for job in jobs.values())
        raise errors.LaunchError(
            "%d jobs run here: %s; choose one with --job NAME or --job PID"
            % (len(jobs), ", ".join(named))
        )
    [path] = jobs
    return Source(jobs[path]["address"], jobs[path]["token"], path)


def find_again(former):
    """Returns the Source of the same job, whose scheduler may be another process by now.

    LaunchError: the job is not there any more.
    """
    if former.file is None:
        return former
    job = read(former.file)
    if job is None:
        raise Silent("%s: the job may be over" % former.address)
    return Source(job["address"], job["token"], former.file)
