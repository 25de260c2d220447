# SPDX-License-Identifier: Apache-2.0
"""Reads a machine's cores, NUMA nodes and GPUs, and the CPU quota of this process's cgroups."""

import dataclasses
import glob
import math
import os
import re

V1_CONTROLLER = "cpu"


@dataclasses.dataclass(frozen=True)
class Core:
    """A physical core: the numbers of its CPUs (hardware threads) that may be used."""

    cpus: frozenset
    node: int = 0  # its NUMA node


@dataclasses.dataclass(frozen=True)
class Topology:
    """What a machine has. All lists are in the order of the numbers that the system gives."""

    cores: list
    distances: dict = dataclasses.field(default_factory=dict)  # {(NUMA node, another): distance}
    gpu_nodes: list = dataclasses.field(default_factory=list)  # of the GPUs that CUDA shows
    quota: float = math.inf  # how many CPUs the cgroups grant on average

    def cpus(self):
        """Returns how many CPUs may be used."""
        return sum(len(core.cpus) for core in self.cores)


def numbers(text):
    """Returns the set of numbers in a list as the kernel writes it: "0-3,8"."""
    found = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found


def _text(*path):
    """Returns the text of a file, "" if it is not there."""
    try:
        with open(os.path.join(*path), encoding="ascii", errors="replace") as text:
            return text.read().strip()
    except OSError:
        return ""


def read(allowed, visible_gpus=None, root="/"):
    """Returns the Topology of the CPUs `allowed`.

    `visible_gpus` is the value of CUDA_VISIBLE_DEVICES, None if it is not set. `root` is the folder
    that has proc/ and sys/. Without them each CPU is a core, and all are of one NUMA node.
    """
    system = os.path.join(root, "sys", "devices", "system")
    nodes = sorted(
        int(re.search(r"\d+$", path).group())
        for path in glob.glob(os.path.join(glob.escape(system), "node", "node[0-9]*"))
    )
    node_of = {}
    distances = {}
    for node in nodes:
        folder = os.path.join(system, "node", "node%d" % node)
        node_of.update(dict.fromkeys(numbers(_text(folder, "cpulist")), node))
        steps = _text(folder, "distance").split()
        distances.update({(node, other): int(step) for other, step in zip(nodes, steps)})
    cores = set()
    for cpu in allowed:
        siblings = _text(system, "cpu", "cpu%d" % cpu, "topology", "thread_siblings_list")
        cpus = frozenset(numbers(siblings) & set(allowed) | {cpu})
        cores.add(Core(cpus, node_of.get(cpu, 0)))
    return Topology(
        sorted(cores, key=lambda core: min(core.cpus)),
        distances,
        _gpu_nodes(root, visible_gpus),
        _quota(root),
    )


def _gpu_nodes(root, visible):
    """Returns the NUMA nodes of the GPUs that CUDA shows: -1 where the system knows none."""
    found = []
    driver = os.path.join(root, "proc", "driver", "nvidia", "gpus")
    for folder in sorted(glob.glob(os.path.join(glob.escape(driver), "*"))):
        uuid = re.search(r"GPU UUID:\s*(\S+)", _text(folder, "information"))
        device = os.path.join(root, "sys", "bus", "pci", "devices", os.path.basename(folder))
        node = int(_text(device, "numa_node") or -1)
        found.append((uuid.group(1) if uuid else "", node))
    if visible is None:
        return [node for _, node in found]
    chosen = []
    for name in visible.split(","):
        name = name.strip()
        matches = [
            node
            for number, (uuid, node) in enumerate(found)
            if name == str(number) or (name.startswith("GPU-") and uuid.startswith(name))
        ]
        if len(matches) != 1:  # CUDA stops at a name that it does not know
            break
        chosen += matches
    return chosen


def _quota(root):
    """Returns how many CPUs the cgroups of this process, and those around them, grant."""
    least = math.inf
    mounts = os.path.join(root, "sys", "fs", "cgroup")
    for line in _text(root, "proc", "self", "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            mount = mounts
        elif V1_CONTROLLER in controllers.split(","):
            mount = os.path.join(mounts, controllers)
            if not os.path.isdir(mount):
                mount = os.path.join(mounts, V1_CONTROLLER)
        else:
            continue
        # In a container the path may be the host's, of which the mount shows a part.
        while True:
            least = min(least, _limit(os.path.join(mount, path.strip("/"))))
            if path.strip("/") == "":
                break
            path = os.path.dirname(path.rstrip("/"))
    return least


def _limit(cgroup):
    """Returns how many CPUs one cgroup grants, of version 2 or 1."""
    words = _text(cgroup, "cpu.max").split() or [
        _text(cgroup, "cpu.cfs_quota_us"),
        _text(cgroup, "cpu.cfs_period_us"),
    ]
    granted, period = (int(word) if word.isdigit() else 0 for word in words)
    return granted / period if granted and period else math.inf
