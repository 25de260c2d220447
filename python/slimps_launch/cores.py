# SPDX-License-Identifier: Apache-2.0
"""Shares the cores of a node out between its servers and workers. Pure.

A server has a thread that sums and one that moves bytes: it gets at most two cores. The workers
share the others. Where a process would get less than two, nobody gets cores of its own: the
system's own scheduling serves such a node better.
"""

LEAST = 2
SERVER_MOST = 2


def share(cores, servers, workers):
    """Returns a list of sets of cores, for the servers and then the workers, or None.

    `cores` are those that the node's processes may use. Without workers the servers share all.
    """
    cores = sorted(cores)
    if servers + workers < 2 or len(cores) // (servers + workers) < LEAST:
        return None
    each = SERVER_MOST if workers else len(cores) // servers
    sizes = [each] * servers
    if workers:
        each, more = divmod(len(cores) - sum(sizes), workers)
        sizes += [each + (rank < more) for rank in range(workers)]
    sets = []
    for size in sizes:
        sets.append(set(cores[:size]))
        cores = cores[size:]
    return sets


def words(sets, servers):
    """Returns what was shared out, in words: "2 cores for each server, 6 for each worker"."""
    said = []
    for who, part in (("server", sets[:servers]), ("worker", sets[servers:])):
        if part:
            sizes = sorted({len(cores) for cores in part})
            said.append("%s cores for each %s" % (" or ".join(map(str, sizes)), who))
    return ", ".join(said)
