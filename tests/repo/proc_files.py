# SPDX-License-Identifier: Apache-2.0
"""What /proc tells of processes."""

import os


def children_of(pid):
    """Returns the pids of a process's children, and of their children."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as text:
                parent = int(text.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(entry)] + children_of(int(entry))
    return found


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as text:
            return text.read().decode().split("\0")
    except OSError:
        return [""]


def state_of(pid):
    """Returns the state of a process, as "S" or "T"; None: there is none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as text:
            return text.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def alive(pid):
    """True if a process runs. A zombie does not."""
    return state_of(pid) not in ("Z", None)


def tcp_ports(pid, local):
    """Returns the ports of a process's established connections: its own ones, or those of the other
    ends."""
    inodes = set()
    for descriptor in os.listdir("/proc/%d/fd" % pid):
        try:
            target = os.readlink("/proc/%d/fd/%s" % (pid, descriptor))
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    with open("/proc/net/tcp", encoding="ascii") as text:
        rows = [line.split() for line in text.readlines()[1:]]
    return {
        int(row[1 if local else 2].split(":")[1], 16)
        for row in rows
        if row[3] == "01" and row[9] in inodes
    }
