# SPDX-License-Identifier: Apache-2.0
"""What the engines' variables and hostfiles are made into."""

import argparse
import unittest
from unittest import mock

from slimps_launch import engine
from slimps_launch import errors
from slimps_launch.places import hosts
from slimps_launch import job_launch
from slimps_launch import network
from slimps_launch.places import on_mpi
from slimps_launch.places import on_slurm
from slimps_launch import run_command

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
}


class SeatTest(unittest.TestCase):
    def test_each_engine_is_known_by_its_variables(self):
        for environment, seat in (
            (TORCHRUN, ("torchrun", 3, 4, 1, 2, 1, 2)),
            (OPENMPI, ("mpirun", 2, 4, 0, 2, 1, 2)),
            (SLURM, ("srun", 2, 4, 0, 2, 1, 2)),
            (
                {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
                ("mpiexec", 1, 2, 1, 2, 0, 1),
            ),
            ({"PMIX_RANK": "5"}, ("PMIx", 5, 0, 0, 1, 0, 1)),
            ({"JOB_COMPLETION_INDEX": "3"}, ("Kubernetes", 3, 0, 0, 1, 3, 1)),
            (
                {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-2"},
                ("Kubernetes", 2, 0, 0, 1, 2, 1),
            ),
        ):
            with self.subTest(seat[0]):
                found = engine.seat(environment)
                self.assertEqual(
                    seat,
                    (
                        found.engine,
                        found.rank,
                        found.size,
                        found.local_rank,
                        found.local_size,
                        found.node,
                        found.nodes,
                    ),
                )
        self.assertIsNone(engine.seat({"HOSTNAME": "train-2"}))

    def test_a_restart_has_another_name(self):
        first = engine.seat({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "0"})
        self.assertNotEqual(first.start, engine.seat(TORCHRUN).start)
        again = engine.seat({**SLURM, "SLURM_RESTART_COUNT": "1"})
        self.assertNotEqual(again.start, engine.seat(SLURM).start)

    def test_another_job_has_another_name_where_the_engine_says_one(self):
        pmi = {"PMI_RANK": "0", "PMI_SIZE": "1"}
        for variables, name in (
            ({**OPENMPI, "PMIX_NAMESPACE": "17"}, "17"),
            (OPENMPI, ""),
            ({**pmi, "PMI_JOBID": "18"}, "18"),
            ({"PMIX_RANK": "5", "PMIX_NAMESPACE": "19"}, "19"),
            ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-a-2"}, "train-a"),
            # In the node's network, whose names differ.
            ({"KUBERNETES_SERVICE_HOST": "h", "HOSTNAME": "n-2", "JOB_COMPLETION_INDEX": "2"}, ""),
        ):
            self.assertEqual(name, engine.seat(variables).start)

    def test_mpirun_inside_of_a_slurm_job_counts(self):
        self.assertEqual("mpirun", engine.seat({**SLURM, **OPENMPI}).engine)
        mpich = {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}
        self.assertEqual("mpiexec", engine.seat({**SLURM, **mpich}).engine)
        self.assertEqual("srun", engine.seat({**SLURM, "PMI_RANK": "2"}).engine)

    def test_a_variable_that_is_no_number_is_named(self):
        with self.assertRaisesRegex(errors.LaunchError, "LOCAL_RANK=x: expected a number"):
            engine.seat({**TORCHRUN, "LOCAL_RANK": "x"})
        with self.assertRaisesRegex(errors.LaunchError, "JOB_COMPLETION_INDEX=x: expected a num"):
            engine.seat({"JOB_COMPLETION_INDEX": "x"})

    def test_a_batch_script_of_slurm_is_no_task(self):
        batch = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "17", "SLURM_NTASKS": "4"}
        self.assertIsNone(engine.seat(batch))

    def test_the_first_host_of_a_list(self):
        for text, host in (
            ("a", "a"),
            ("a,b", "a"),
            ("n[07-12,15],x", "n07"),
            ("n-[1,3]", "n-1"),
            ("r[1-2]n[07-12,15]-ib,x", "r1n07-ib"),
            ("rack[2,4]-[010-020]", "rack2-010"),
        ):
            self.assertEqual(host, engine.first_host(text))


class PlanTest(unittest.TestCase):
    def parts(self, size, **counts):
        """Returns what each of `size` processes on one node runs: S, s1, w0."""
        said = []
        for rank in range(size):
            plan = engine.plan(engine.Seat("srun", rank, size, rank, size, 0, 1), **counts)
            roles = ["S"] if plan.scheduler else []
            roles += [] if plan.server is None else ["s%d" % plan.server]
            roles += [] if plan.worker is None else ["w%d" % plan.worker]
            said.append("+".join(roles))
        return said

    def test_all_are_workers_and_the_first_of_a_node_serves_too(self):
        self.assertEqual(["S+s0+w0", "w1", "w2"], self.parts(3))
        plan = engine.plan(engine.seat({**TORCHRUN, "RANK": "2", "LOCAL_RANK": "0"}))
        self.assertEqual((4, 2, False, 1, 2), (*vars(plan).values(),)[:5])

    def test_with_servers_the_first_processes_serve(self):
        self.assertEqual(["S+s0", "s1", "w0", "w1"], self.parts(4, workers=2, servers=2))
        self.assertEqual(["S+s0", "w0", "w1"], self.parts(3, servers=1))

    def test_counts_that_do_not_fit_are_refused(self):
        for counts, size, words in (
            ({"workers": 2, "servers": 2}, 3, "started 3 processes, and 2 workers and 2 servers"),
            ({"servers": 3}, 3, "no worker is left"),
            ({"workers": 2}, 3, "started 3 processes, and 2 workers need 2"),
        ):
            with self.assertRaisesRegex(errors.LaunchError, words):
                self.parts(size, **counts)
        with self.assertRaisesRegex(errors.LaunchError, "give --workers W --servers S"):
            engine.plan(engine.seat({"JOB_COMPLETION_INDEX": "0"}))
        with self.assertRaisesRegex(errors.LaunchError, "rank 4; .* need ranks 0 to 3"):
            engine.plan(engine.seat({"JOB_COMPLETION_INDEX": "4"}), 2, 2)

    def test_nodes_with_unlike_numbers_of_processes_need_the_count_of_servers(self):
        for numbers in ({"SIZE": "5"}, {"RANK": "1"}, {"LOCAL_RANK": "1"}):
            seat = engine.seat(
                {**OPENMPI, **{"OMPI_COMM_WORLD_" + name: to for name, to in numbers.items()}}
            )
            with self.assertRaisesRegex(errors.LaunchError, "2 of them on this node.*--servers S"):
                engine.plan(seat)
            plan = engine.plan(seat, servers=1)
            self.assertEqual((seat.size - 1, 1), (plan.workers, plan.servers))
            self.assertEqual(seat.rank - 1, plan.worker)

    def test_daemons_wait_without_end_for_workers_elsewhere_alone(self):
        options = argparse.Namespace(workers=None, servers=None, verbose=False)
        for size, grace in ((1, 30.0), (2, float("inf"))):
            job = job_launch.Job([], [], ["true"], None, None)
            variables = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": str(size)}
            with mock.patch.object(job_launch, "Launcher"), mock.patch.object(
                run_command.job_node, "end_with_parent"
            ):
                run_command.run(options, ["true"], job, variables, mock.Mock())
            self.assertEqual(grace, job.end_grace)


class StoreTest(unittest.TestCase):
    def test_what_it_answers_is_not_mixed_with_its_warnings(self):
        node = run_command.Quiet("rendezvous", "store", ["x"])
        for stream, text in ((1, b"host:7"), (2, b"a warning of torch")):
            node.hear(stream, text, b"\n", None)
        self.assertEqual("host:7", node.answer)
        self.assertEqual(["a warning of torch"], list(node.last_errors))


class SchedulerTest(unittest.TestCase):
    def found(self, interface=None, nodes=2):
        """Returns where a task of srun starts the scheduler, on a node that Debian installed."""
        seat = engine.Seat("srun", 0, 2, 0, 1, 0, nodes)
        options = argparse.Namespace(scheduler=("node1", 9091), interface=interface)
        part = run_command.Part(seat, mock.Mock(scheduler=True, worker=0), options, ["true"])
        launcher = mock.Mock()
        with mock.patch.object(run_command.meeting, "Host"), mock.patch.object(
            part, "meet"
        ), mock.patch.object(
            run_command.network, "resolve", return_value="127.0.1.1"
        ), mock.patch.object(
            run_command.network, "interface_address", return_value="10.0.0.1"
        ):
            part.find_scheduler(launcher)
        launcher.announce_scheduler.assert_called_once_with(9091)
        return part.address

    def test_a_name_of_the_loopback_is_not_where_other_nodes_look(self):
        self.assertEqual("node1", self.found(nodes=1))
        self.assertEqual("10.0.0.1", self.found(interface="eth0"))
        with self.assertRaisesRegex(
            errors.LaunchError, "node1 is 127.0.1.1 here, where .*: give --interface NAME"
        ):
            self.found()

    def test_beside_an_engine_it_is_more_patient_than_the_meeting(self):
        job = job_launch.Job(["scheduler"], [], ["true"], 2, 2)
        self.assertNotIn("--roster_timeout_s", job.scheduler_command())
        on_mpi.Engine().find_scheduler(mock.Mock(job=job))
        self.assertEqual(["--roster_timeout_s", "660"], job.scheduler_command()[-2:])


class HostsTest(unittest.TestCase):
    def test_a_hostfile_has_hosts_slots_and_comments(self):
        found = hosts.parse(["# mine\n", "a slots=2\n", "\n", "10.0.0.2  # one\n"], "h")
        self.assertEqual([("a", 2, 2), ("10.0.0.2", 1, 4)], [tuple(host) for host in found])

    def test_a_bad_line_is_named_with_its_file_and_number(self):
        for lines, words in (
            (["a\n", "b slots=x\n"], 'h:2: expected "host slots=N".*got "b slots=x"'),
            (["a slots=0\n"], "h:1: expected"),
            (["a b\n"], "h:1: expected"),
            (["-oProxyCommand=x\n"], "h:1: expected"),
            (["a\n", "a\n"], "h:2: host a is there twice"),
            (["# none\n"], "h: no host"),
        ):
            with self.assertRaisesRegex(errors.LaunchError, words):
                hosts.parse(lines, "h")
        with self.assertRaisesRegex(errors.LaunchError, "hostfile /no/file: No such file"):
            hosts.read("/no/file")

    def test_nodes_go_around_the_hosts_that_have_room(self):
        self.assertEqual([0, 1, 0, 1], hosts.around([2, 2], 2, 2, "h"))
        self.assertEqual([0, 1, 1, 1], hosts.around([1, 4], 1, 3, "h"))
        self.assertEqual([0, 1, 0, 0, 1, 1], hosts.around([3, 3], 2, 4, "h"), "workers in a row")
        with self.assertRaisesRegex(errors.LaunchError, "h has room for 3 processes; .* need 4"):
            hosts.around([2, 1], 2, 2, "h")


class NetworkTest(unittest.TestCase):
    def test_loopback_is_found_by_its_name_and_its_address(self):
        self.assertEqual("127.0.0.1", network.interface_address("lo"))
        self.assertEqual("lo", network.interface_of("127.0.0.1"))
        self.assertEqual("127.0.0.1", network.route_address("127.0.0.1"))

    def test_what_is_not_there_is_named(self):
        with self.assertRaisesRegex(errors.LaunchError, "--interface nowhere0: .*there are .*lo"):
            network.interface_address("nowhere0")
        with self.assertRaisesRegex(errors.LaunchError, "--interface \udcff: no interface of"):
            network.interface_address("\udcff")
        with self.assertRaisesRegex(errors.LaunchError, "host no.such.host.invalid is not known"):
            network.resolve("no.such.host.invalid")
        with self.assertRaisesRegex(errors.LaunchError, "::1 .* has IPv6 addresses alone, as ::1"):
            network.resolve("::1")
        with self.assertRaisesRegex(errors.LaunchError, r"host a\.\.b is not known here \(enc"):
            network.resolve("a..b")

    def test_a_machines_own_name_is_of_the_loopback_only_if_it_has_no_other_address(self):
        for addresses in (["127.0.1.1", "10.77.0.1"], ["127.0.1.1"]):
            found = [(None, None, 6, "", (address, 0)) for address in addresses]
            with mock.patch.object(network.socket, "getaddrinfo", return_value=found):
                self.assertEqual(addresses[-1], network.resolve("node1"))

    def test_a_name_that_begins_as_an_interfaces_is_another(self):
        with mock.patch.object(network.socket, "if_nametoindex", side_effect=OSError):
            with self.assertRaisesRegex(errors.LaunchError, "no interface of that name"):
                network.interface_address("lo")


class AllocationTest(unittest.TestCase):
    def test_its_room_is_that_of_its_tasks_or_its_cpus(self):
        self.assertEqual(4, on_slurm.processes_of({"SLURM_NTASKS": "4"})[0])
        self.assertEqual(
            10, on_slurm.processes_of({"SLURM_JOB_CPUS_PER_NODE": "4(x2),2"})[0], "in all"
        )
        self.assertEqual(
            4,
            on_slurm.processes_of({"SLURM_JOB_CPUS_PER_NODE": "8", "SLURM_CPUS_PER_TASK": "2"})[0],
        )
        self.assertEqual(
            (3, "8 CPUs"),
            on_slurm.processes_of(
                {"SLURM_JOB_CPUS_PER_NODE": "3(x2),2", "SLURM_CPUS_PER_TASK": "2"}
            ),
            "no process has CPUs of two nodes",
        )


if __name__ == "__main__":
    unittest.main()
