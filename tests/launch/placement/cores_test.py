# SPDX-License-Identifier: Apache-2.0
"""Who gets which cores, on machines that are folders with proc/ and sys/."""

import io
import math
import os
import unittest
from unittest import mock

import folder_case
from slimps_launch import command
from slimps_launch import engine
from slimps_launch import run_command
from slimps_launch.placement import cores
from slimps_launch.placement import topology

HYPERTHREADS = {"sockets": 2, "cores": 16, "threads": 2}


class MachineCase(folder_case.FolderCase):
    def machine(self, sockets=1, cores=4, threads=1, gpus=(), distances=None, **files):
        """Makes the folder of a machine whose CPUs have the numbers that Linux gives them: first
        one of each core, socket by socket, then the second. `gpus` are the GPUs' NUMA nodes."""
        count = sockets * cores
        for cpu in range(count * threads):
            siblings = ",".join(str(cpu % count + count * thread) for thread in range(threads))
            name = "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu
            self.tree(name, siblings)
        for node in range(sockets):
            first = node * cores
            ranges = [
                "%d-%d" % (first + count * thread, first + cores - 1 + count * thread)
                for thread in range(threads)
            ]
            folder = "sys/devices/system/node/node%d/" % node
            self.tree(folder + "cpulist", ",".join(ranges))
            if distances:
                self.tree(folder + "distance", distances[node])
        for number, node in enumerate(gpus):
            device = "0000:%02x:00.0" % (16 * number + 16)
            self.tree("sys/bus/pci/devices/%s/numa_node" % device, str(node))
            about = "Model: \t NVIDIA H200\nGPU UUID: \t GPU-%d%d\n" % (number, number)
            self.tree("proc/driver/nvidia/gpus/%s/information" % device, about)
        for name, text in files.items():
            self.tree(name, text)
        return count * threads

    def tree(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        self.put(name, text + "\n")

    def read(self, cpus, visible=None):
        return topology.read(set(range(cpus)), visible, self.folder)

    def share(self, servers, workers, visible=None, **machine):
        """Returns the CPUs of each process, or None."""
        shared = cores.share(self.read(self.machine(**machine), visible), servers, workers)
        return shared and [set().union(*(core.cpus for core in one)) for one in shared]


class CoresTest(MachineCase):
    def test_servers_get_two_and_workers_share_the_others(self):
        found = self.share(2, 2, cores=16)
        self.assertEqual([{0, 1}, {2, 3}, set(range(4, 10)), set(range(10, 16))], found)

    def test_hyperthreads_of_a_core_and_nodes_are_not_shared(self):
        server, first, second = self.share(1, 2, **HYPERTHREADS)
        self.assertEqual({0, 1, 32, 33}, server)
        self.assertEqual({*range(2, 16), *range(34, 48)}, first)
        self.assertEqual({*range(16, 32), *range(48, 64)}, second)

    def test_servers_take_from_the_node_with_the_most_cores_for_each_worker(self):
        found = self.share(2, 3, **HYPERTHREADS)
        self.assertEqual([4, 4], [len(one) for one in found[:2]])
        self.assertEqual({16, 17, 48, 49}, found[0], "one worker is there, two on the other node")
        self.assertEqual({18, 19, 50, 51}, found[1])
        self.assertEqual([16, 16, 24], [len(one) for one in found[2:]])

    def test_a_worker_is_on_the_node_of_its_gpu(self):
        gpus = (1, 1, 0, 0)
        found = self.share(0, 4, gpus=gpus, **HYPERTHREADS)
        self.assertEqual([16, 24, 0, 8], [min(one) for one in found])
        visible = self.share(0, 2, visible="3,0", gpus=gpus, **HYPERTHREADS)
        self.assertEqual([0, 16], [min(one) for one in visible])

    def test_one_worker_has_all_nodes(self):
        server, worker = self.share(1, 1, gpus=(1,), **HYPERTHREADS)
        self.assertEqual((4, 60), (len(server), len(worker)))
        self.assertFalse(server & worker)

    def test_nodes_without_a_worker_go_to_the_nearest(self):
        far, near = "10 12 32 32", "32 32 10 12"
        distances = [far, "12 10 32 32", near, "32 32 12 10"]
        found = self.share(0, 2, sockets=4, gpus=(3, 0), distances=distances)
        self.assertEqual([set(range(8, 16)), set(range(8))], found)

    def test_a_core_of_which_another_job_has_a_thread_counts(self):
        self.machine(cores=4, threads=2)
        machine = topology.read({0, 1, 2, 3, 4, 5}, None, self.folder)
        self.assertEqual([{0, 4}, {1, 5}, {2}, {3}], [set(core.cpus) for core in machine.cores])

    def test_where_they_would_get_less_than_two_nothing_is_shared_out(self):
        self.assertIsNone(self.share(2, 2, cores=7))
        self.assertIsNone(self.share(0, 1, cores=64))
        self.assertIsNone(self.share(1, 1, cores=3, threads=2))

    def test_a_machine_without_the_folders_has_a_core_for_each_cpu(self):
        machine = self.read(4)
        self.assertEqual([topology.Core(frozenset({cpu})) for cpu in range(4)], machine.cores)
        self.assertEqual((math.inf, []), (machine.quota, machine.gpu_nodes))


class GpuTest(MachineCase):
    def test_cuda_s_own_choice_of_gpus_counts(self):
        cpus = self.machine(gpus=(1, 0, -1))
        for visible, nodes in (
            (None, [1, 0, -1]),
            ("", []),
            ("1, 0", [0, 1]),
            ("GPU-22,GPU-0", [-1, 1]),
            ("1,7,0", [0]),
            ("GPU-", []),
        ):
            self.assertEqual(nodes, self.read(cpus, visible).gpu_nodes, visible)


class QuotaTest(MachineCase):
    def test_the_least_of_a_cgroup_and_those_around_it_counts(self):
        self.tree("sys/fs/cgroup/a/cpu.max", "400000 100000")
        self.tree("sys/fs/cgroup/a/b/cpu.max", "max 100000")
        self.tree("proc/self/cgroup", "0::/a/b")
        self.assertEqual(4.0, self.read(4).quota)
        self.tree("sys/fs/cgroup/a/b/cpu.max", "150000 100000")
        self.assertEqual(1.5, self.read(4).quota)

    def test_version_1_has_a_folder_for_the_controller(self):
        self.tree("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1f\n1:name=systemd:/")
        for quota, mount in (("100000", "cpu"), ("250000", "cpu,cpuacct")):
            # In a container, which has the host's path.
            self.tree("sys/fs/cgroup/%s/cpu.cfs_period_us" % mount, "100000")
            self.tree("sys/fs/cgroup/%s/cpu.cfs_quota_us" % mount, "-1")
            self.assertEqual(math.inf, self.read(4).quota)
            self.tree("sys/fs/cgroup/%s/cpu.cfs_quota_us" % mount, quota)
            self.assertEqual(int(quota) / 100000, self.read(4).quota)

    def test_nothing_is_shared_out_below_the_number_of_cpus_and_that_is_said(self):
        cpus = self.machine(cores=64)
        self.tree("proc/self/cgroup", "0::/")
        self.tree("sys/fs/cgroup/cpu.max", "400000 100000")
        said = []
        with mock.patch.object(topology, "read", return_value=self.read(cpus)):
            self.assertEqual([None] * 3, cores.of_machine(1, 2, said.append))
        self.assertEqual(["no cores of their own: the quota is 4 of 64 CPUs"], said)
        self.tree("sys/fs/cgroup/cpu.max", "6400000 100000")
        with mock.patch.object(topology, "read", return_value=self.read(cpus)):
            self.assertEqual([2, 31, 31], list(map(len, cores.of_machine(1, 2, said.append))))
        self.assertEqual("2 cores for each server, 31 cores for each worker", said[-1])


class EngineTest(unittest.TestCase):
    def cores(self, name, of_parent):
        """Returns the cores of the first process of an engine on a machine with eight."""
        seat = engine.Seat(name, 0, 2, 0, 2, 0, 1)
        part = run_command.Part(seat, engine.plan(seat), mock.Mock(), ["true"])
        machine = topology.Topology([topology.Core(frozenset({cpu})) for cpu in range(8)])
        affinity = {0: set(range(8)), os.getppid(): of_parent}
        with mock.patch.object(topology, "read", return_value=machine), mock.patch.object(
            os, "sched_getaffinity", side_effect=affinity.get
        ), mock.patch("builtins.print") as said:
            found = part.cores_of(mock.Mock(share_cores=True))
        return (*found, said.call_count)

    def test_what_an_engine_has_bound_stays(self):
        here = set(range(8))
        self.assertEqual(({0, 1}, {2, 3, 4}, 1), self.cores("torchrun", of_parent=here))
        for name, of_parent in (("torchrun", {*here, 8}), ("srun", here), ("mpirun", here)):
            self.assertEqual((None, None, 0), self.cores(name, of_parent), name)


class FlagTest(unittest.TestCase):
    def test_bind_none_shares_nothing_out(self):
        for flags, shares in (([], True), (["--bind=cores"], True), (["--bind=none"], False)):
            with mock.patch.object(
                command.Installation,
                "programs",
                return_value={"slimps_scheduler": "s", "slimps_server": "s"},
            ), mock.patch.object(command, "run_job", return_value=0) as run:
                line = ["launch", "--workers=1", "--servers=1", *flags, "--", "true"]
                self.assertEqual(0, command.main(line))
            self.assertEqual(shares, run.call_args.args[0].share_cores)
        with mock.patch("sys.stderr", io.StringIO()) as said, self.assertRaises(SystemExit):
            command.main(["run", "--bind=sockets", "--", "true"])
        self.assertIn("argument --bind: invalid choice: 'sockets' (choose from", said.getvalue())


if __name__ == "__main__":
    unittest.main()
