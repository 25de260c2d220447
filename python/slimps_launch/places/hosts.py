# SPDX-License-Identifier: Apache-2.0
"""Hostfiles, and which node of a job goes to which host. Processes go around the hosts, one each
in turn: first the servers, then the workers. Workers are numbered host by host."""

import collections
import os
import re

from slimps_launch import errors

Host = collections.namedtuple("Host", "name slots line")
LINE = re.compile(r"([\w.@:-]+)(?:\s+slots=(\d+))?$")


def read(path):
    """Returns the Hosts of a file with lines `host slots=N`; without slots it is one.

    LaunchError: the file cannot be read, or a line is something else.
    """
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as lines:
            return parse(lines, path)
    except (OSError, UnicodeDecodeError) as error:
        raise errors.LaunchError(
            "hostfile %s: %s" % (path, getattr(error, "strerror", None) or error)
        ) from error


def parse(lines, path):
    found = []
    for number, line in enumerate(lines, 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = LINE.match(line)
        slots = int(match.group(2) or 1) if match else 0
        if not slots or match.group(1).startswith("-"):
            raise errors.LaunchError(
                '%s:%d: expected "host slots=N", N from 1 on, got "%s"' % (path, number, line)
            )
        if match.group(1) in [host.name for host in found]:
            raise errors.LaunchError(
                "%s:%d: host %s is there twice: give it one line with more slots"
                % (path, number, match.group(1))
            )
        found.append(Host(match.group(1), slots, number))
    if not found:
        raise errors.LaunchError('%s: no host; expected lines "host slots=N"' % path)
    return found


def around(slots, servers, workers, what):
    """Returns the number of the host of each node, given the slots of each host.

    LaunchError: there are too few slots; `what` names them.
    """
    if sum(slots) < servers + workers:
        raise errors.LaunchError(
            "%s has room for %d processes; %d workers and %d servers need %d"
            % (what, sum(slots), workers, servers, workers + servers)
        )
    left = list(slots)
    places = []
    while len(places) < servers + workers:
        for host in range(len(slots)):
            if left[host] and len(places) < servers + workers:
                left[host] -= 1
                places.append(host)
    return places[:servers] + sorted(places[servers:])
