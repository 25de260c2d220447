# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes whose workers are Python: files of scenarios, or the test itself."""

import contextlib
import importlib.util
import sys

import process_cluster
import slimps


class Daemons(process_cluster.ProcessCluster):
    """A scheduler and servers that listen. The test starts the workers by hand."""

    def __init__(self, workers, servers, scheduler_flags=()):
        super().__init__(workers, servers, [], scheduler_flags, worker=None)

    def start_scenario(self, rank, script, *arguments):
        path = importlib.util.find_spec(script).origin
        self.start_worker(rank, [sys.executable, path] + list(arguments))


def run(script, *arguments, workers=2, servers=2):
    """Runs the scenario in all workers, which must end well and have said "done".

    Returns what they printed, by rank.
    """
    with Daemons(workers, servers) as job:
        for rank in range(workers):
            job.start_scenario(rank, script, *arguments)
        names = ["worker%d" % rank for rank in range(workers)]
        ends = job.wait_for_end(names, 120.0)
        said = [job.output(name) for name in names]
        well = set(ends.values()) == {0} and all("done" in one.splitlines() for one in said)
        assert well, "\n".join("--- %s\n%s" % pair for pair in zip(names, said))
        return said


@contextlib.contextmanager
def lone_store(type="dist_sync", servers=1, **options):
    """Opens a store in this process, the only worker of its job."""
    with Daemons(1, servers) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=1, num_servers=servers)
        store = slimps.kv.create(type, **options)
        try:
            yield store
        finally:
            store.close()
