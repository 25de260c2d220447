# SPDX-License-Identifier: Apache-2.0
"""slimps launch on this machine alone. Other places have the same methods and `address`, the
scheduler's, which is set when they are ready."""

import os

from slimps_launch.placement import cores
from slimps_launch.placement import process_group


class Place:
    address = "127.0.0.1"

    def find_scheduler(self, launcher):
        """Starts or finds the scheduler. Returns its port. Stop: the job ends before it began."""
        return launcher.start_scheduler()

    def start(self, launcher, port):
        """Starts the servers and workers of the launcher's job."""
        job = launcher.job
        sets = [None] * (job.servers + job.workers)
        if job.share_cores:
            sets = cores.of_machine(
                job.servers, job.workers, lambda words: launcher.say("slimps: " + words)
            )
        for rank in range(job.servers):
            launcher.start_here(
                "server%d" % rank, "server", job.server_of(rank), port, cores=sets[rank]
            )
        group_port = launcher.hold_port()
        count = job.workers
        for rank in range(count):
            member = process_group.Member(rank, count, rank, count, self.address, group_port)
            own = process_group.variables(member, {**os.environ, **job.environment})
            launcher.start_here(
                "worker%d" % rank, "worker", job.worker, port, own, sets[job.servers + rank]
            )
