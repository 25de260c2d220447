# SPDX-License-Identifier: Apache-2.0
"""slimps launch on this machine alone. Other places have the same methods and `address`, the
scheduler's, which is set when they are ready."""

import os

from slimps_launch import cores
from slimps_launch import network


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
            shared = cores.share(os.sched_getaffinity(0), job.servers, job.workers)
            if shared:
                sets = shared
                launcher.say("slimps: " + cores.words(sets, job.servers))
        for rank in range(job.servers):
            launcher.start_here(
                "server%d" % rank, "server", job.server_of(rank), port, cores=sets[rank]
            )
        group_port = network.free_port()
        for rank in range(job.workers):
            # It asks for this rank, so that lines named worker1 are those of rank 1.
            own = {"DMLC_WORKER_ID": str(rank)}
            own.update(torch_group(rank, job.workers, rank, job.workers, self.address, group_port))
            launcher.start_here(
                "worker%d" % rank, "worker", job.worker, port, own, sets[job.servers + rank]
            )

    def signal(self, launcher, number):
        """Passes a signal on."""
        launcher.signal_all(number)


def torch_group(rank, workers, local_rank, local_workers, address, port):
    """Returns torchrun's variables, for a script's own process group (env:// of torch)."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(local_workers),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
