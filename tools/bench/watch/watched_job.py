# SPDX-License-Identifier: Apache-2.0
"""A job of slimps bench watch: slimps_worker trains LeNet until it is stopped, and is looked at.

    write_images(folder)
    with Job(processes, programs, folder, WATCHED) as job:
        job.open_page()
        window = job.train(10, scrape=True)

The images are made up: what training costs does not depend on what they show.
"""

import collections
import contextlib
import functools
import gzip
import http.client
import os
import random
import re
import struct
import threading
import time

from bench import bench_processes
from cli import setup

WORKERS, SERVERS = 2, 2
TRAINING = "--model lenet --dataset mnist --batch 32 --lr 0.01 --epochs 1000000 --log_every 1"
UNWATCHED = ["--stall_warning=0"]  # nodes send no reports either
WATCHED = ["--metrics_port=0", "--page_port=0"]
WARM_UP = 20  # steps before anything is measured
TIMEOUT = 60.0  # seconds of one HTTP request
STEP = re.compile(r"epoch \d+/\d+ step (\d+)/")
METRICS = re.compile(r"metrics at http://([^/]+)(/\S*)$")
PAGE = re.compile(r"watch this job at http://([^/]+)/(\?token=\w+)$")

# steps_per_s: of worker rank 0. cpu_share: the scheduler's seconds of processor time per second.
Window = collections.namedtuple("Window", "steps_per_s cpu_share scrapes events")


def write_images(folder):
    """Writes files as MNIST's."""
    noise = random.Random(1)
    for part, count in (("train", 4096), ("t10k", 64)):
        images = struct.pack(">4I", 2051, count, 28, 28) + noise.randbytes(count * 28 * 28)
        labels = struct.pack(">2I", 2049, count) + bytes(noise.choices(range(10), k=count))
        for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
            path = os.path.join(folder, "%s-%s-ubyte.gz" % (part, kind))
            with gzip.open(path, "wb", compresslevel=1) as out:
                out.write(content)


def get(address, path):
    """Returns the answer to a request on a connection of its own. SetupError: it is not 200."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise setup.SetupError("http://%s: no answer: %s" % (address, error)) from error
    if answer.status != 200:
        raise setup.SetupError("http://%s: HTTP status %d" % (address, answer.status))
    return answer


class Job(bench_processes.Cluster):
    """Owned by the main thread. At its end it stops the job, which trains without end."""

    def __init__(self, processes, programs, folder, scheduler_flags):
        super().__init__(
            processes,
            "watch",
            programs,
            TRAINING.split() + ["--data_dir", folder],
            [],
            WORKERS,
            SERVERS,
            worker_program="slimps_worker",
            scheduler_flags=scheduler_flags,
        )
        self.scrapes = 0
        self.events = 0  # that the page has brought so far

    def __exit__(self, *unused):
        self.processes.stop(self.daemons + self.workers)

    def await_workers(self):
        self.processes.wait_for(lambda: self._step() >= WARM_UP, self.workers[0], "training")

    @functools.cached_property
    def metrics(self):
        """The address and path of the metrics."""
        return self._logged(METRICS)

    def scheduler_cpu(self):
        """Returns the processor time that the scheduler has taken so far."""
        return bench_processes.cpu_seconds(self.daemons[:1])

    def scrape(self):
        """Reads the metrics once and returns the seconds that it took. REQUIRES: WATCHED."""
        address, path = self.metrics
        began = time.monotonic()
        get(address, path).read()
        self.scrapes += 1
        return time.monotonic() - began

    def open_page(self):
        """Reads the page's events until the job ends. REQUIRES: WATCHED."""
        address, token = self._logged(PAGE)
        stream = get(address, "/events" + token)
        threading.Thread(target=self._read_events, args=(stream,), daemon=True).start()
        self.processes.wait_for(lambda: self.events, self.daemons[0], "event")

    def train(self, seconds, scrape=False):
        """Lets the job train for so long, and scrapes at each second's beginning if told to."""
        scrapes, step, cpu = self.scrapes, self._step(), self.scheduler_cpu()
        began = time.monotonic()
        for second in range(seconds):
            if scrape:
                self.scrape()
            self.processes.wait(began + second + 1 - time.monotonic())
        took = time.monotonic() - began
        return Window(
            (self._step() - step) / took,
            (self.scheduler_cpu() - cpu) / took,
            self.scrapes - scrapes,
            self.events,
        )

    def _step(self):
        """Returns the newest step that rank 0 has told. Any worker may have that rank."""
        return max(int(found[1]) if (found := newest(node, STEP)) else 0 for node in self.workers)

    def _logged(self, pattern):
        """Returns the groups of the newest line of the scheduler that has the pattern."""
        scheduler = self.daemons[0]
        found = self.processes.wait_for(lambda: newest(scheduler, pattern), scheduler, "address")
        return found.groups()

    def _read_events(self, stream):
        with contextlib.suppress(OSError, http.client.HTTPException):  # the job is stopped
            for line in stream:
                self.events += line.startswith(b"data: ")


def newest(node, pattern):
    """Returns the match of the newest line that a process has printed and that has one, or None."""
    return next(filter(None, map(pattern.search, reversed(list(node.last_lines)))), None)
