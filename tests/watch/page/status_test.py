# SPDX-License-Identifier: Apache-2.0
"""slimps status and slimps top: their words, where they find a job, and what they say of errors."""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import socket
import unittest
from unittest import mock

import folder_case
import samples
import scheduler
import terminal
from slimps_launch import command
from slimps_launch.watching import source
from slimps_launch.watching import state
from slimps_launch.watching import watch_commands
from slimps_launch.watching import words

NOBODY = 2**22 + 1  # above the kernel's largest number of a process


def lines_of(sample):
    return words.status(state.parse(json.dumps(sample)))


def options_of(*flags):
    parser = argparse.ArgumentParser()
    source.add_flags(parser)
    return parser.parse_args(flags)


def with_fact(lines, fact):
    return [line for line in lines if fact in line]


class WordsTest(unittest.TestCase):
    def test_a_healthy_job_begins_with_its_nodes_and_figures(self):
        lines = lines_of(samples.healthy())
        self.assertEqual(
            "job resnet: running, 03:04, round 1824; 2 of 2 workers, 1 of 1 server there", lines[0]
        )
        self.assertEqual("", lines[1], "nothing stalls, and there is no advice")
        self.assertIn("push 6.40 Mbit/s (30.5 times fewer bytes than raw)", lines[2])
        [server] = with_fact(lines, "server 0  ok")
        self.assertTrue(server.endswith("snapshot 12 s ago"), server)
        self.assertEqual(1, len(with_fact(lines, "pushes: 1bit from 4096 bytes on; pulls: 1bit")))
        self.assertRegex(
            "\n".join(lines), r"\nnewest round of worker 0 [^\n]*\n(\w+ +[.#]{40}\n?){5}$"
        )

    def test_a_policy_decides_and_its_reasons_are_said(self):
        lines = lines_of(samples.policy())
        self.assertEqual(1, len(with_fact(lines, "policy lgreco decides by tensor: lgreco: 37412")))
        self.assertEqual(1, len(with_fact(lines, "3 tensors raw: not measured: as before")))
        self.assertEqual(1, len(with_fact(lines, "1 tensor 1bit: 576 bytes for uniform's 584")))
        self.assertEqual([], with_fact(lines, "pushes: "), "no threshold holds")

    def test_the_newest_minute_is_drawn(self):
        told = samples.healthy()
        for second, point in enumerate(told["history"]):
            point.update(push_bytes_per_s=1e9, rounds_per_s=0, overlap=None)
            if second >= 184 - 60:
                point["push_bytes_per_s"] = 125e3 * (second % 8)
        told["history"][-1].update(overlap=0.5)
        for letters, steps, half in (
            (words.BLOCKS, "▁▂▃▄▅▆▇█", "▅"),
            (words.ASCII, "_.:-=+*#", "="),
        ):
            lines = words.status(state.parse(json.dumps(told)), letters)
            [push] = with_fact(lines, "7.00 Mbit/s")
            self.assertEqual(["push", "7.00", "Mbit/s", "7.00", "Mbit/s"], push.split()[:5])
            self.assertEqual(steps[4:] + 7 * steps, push.split()[5])
            [rounds] = with_fact(lines, "rounds/s  ")
            self.assertEqual(["rounds/s", "0", "0", 60 * steps[0]], rounds.split())
            [overlap] = with_fact(lines, "overlap   ")
            self.assertRegex(overlap, "^overlap +50 % +50 % {61}" + half + "$")
            self.assertEqual(push.rindex(steps[-1]), overlap.rindex(half), "the same second")

    def test_a_stopped_worker_is_named_at_the_top(self):
        lines = lines_of(samples.stopped_worker())
        self.assertTrue(lines[1].startswith("stalled for 12 s: round 1825 waits 12 s for worker 1"))
        [worker] = with_fact(lines, "worker 1  slow")
        self.assertTrue(worker.endswith("push 12 s ago, at train.py:31"), worker)

    def test_the_advice_is_said_before_the_figures(self):
        lines = lines_of(samples.raw_pulls())
        self.assertTrue(lines[1].startswith("advice: pulls take 23.8 MB/s raw, 30 times"), lines[1])
        self.assertEqual(1, len(with_fact(lines, "pulls: raw")))

    def test_of_many_workers_those_in_trouble_have_a_line(self):
        lines = lines_of(samples.many_workers())
        rows = [line.split()[:3] for line in lines if line.startswith("worker ")]
        self.assertEqual(
            [
                ["worker", "17", "gone"],
                ["worker", "40", "slow"],
                ["worker", "62", "away"],
                ["worker", "63", "missing"],
            ],
            rows,
        )
        self.assertIn("60 other workers: 58 ok, 1 left, 1 waiting", lines)
        self.assertIn("60 of 64 workers, 4 of 4 servers there", lines[0])
        self.assertIn("182 further tensors; --json has all", lines)
        self.assertLess(len(lines), 70)

    def test_nothing_is_known_of_a_job_that_forms(self):
        lines = lines_of(samples.forming())
        self.assertIn("after 12 s the job waits for 1 worker; there: server 0", lines[1])
        self.assertEqual(1, len(with_fact(lines, "overlap -, compression gain -, error -")))
        self.assertIn("nothing is decided yet", lines)

    def test_names_do_not_steer_the_terminal(self):
        text = "\n".join(lines_of(samples.hostile()))
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\x07", text)
        self.assertIn("?[31mred?", text)

    def test_a_broken_state_is_refused_by_its_field(self):
        for spoil, complaint in (
            (lambda told: told.pop("nodes"), "nodes: expected a list, got nothing"),
            (lambda told: told["nodes"][0].update(rank="a"), "nodes[0].rank: expected a whole"),
            (lambda told: told["nodes"][1].update(call={}), "nodes[1].call.name: expected text"),
            (lambda told: told.update(decision={}), "decision.codec: expected text"),
        ):
            told = samples.healthy()
            spoil(told)
            with self.assertRaises(ValueError) as refused:
                state.parse(json.dumps(told))
            self.assertIn(complaint, str(refused.exception))


class CommandTest(folder_case.FolderCase):
    """Each test has a home without jobs."""

    def setUp(self):
        super().setUp()
        self.environment = {"HOME": self.folder, "XDG_RUNTIME_DIR": self.path("run")}
        patched = mock.patch.dict(os.environ, self.environment)
        patched.start()
        self.addCleanup(patched.stop)

    def serve(self, told):
        served = scheduler.Scheduler(told)
        self.addCleanup(served.__exit__)
        return served.__enter__()

    def announce(self, job, address, folder="run/slimps", pid=None, token=scheduler.TOKEN, **other):
        """Returns the path of the job's file."""
        os.makedirs(self.path(folder), exist_ok=True)
        pid = pid or os.getpid()
        told = {"address": address, "token": token, "job": job, "pid": pid}
        told.update({"host": socket.gethostname(), "begun": source.begun(pid) or 1, **other})
        return self.put("%s/%s-%d.json" % (folder, job, pid), json.dumps(told))

    def test_the_one_running_job_is_found(self):
        served = self.serve(samples.healthy())
        for folder in ("run/slimps", ".cache/slimps"):
            path = self.announce("resnet", served.address, folder)
            code, said, complained = terminal.run("status")
            self.assertEqual((0, ""), (code, complained))
            self.assertTrue(said.startswith("job resnet: running"), said)
            os.remove(path)

    def test_a_terminal_without_blocks_has_curves_of_other_letters(self):
        self.announce("resnet", self.serve(samples.healthy()).address)
        for encoding, letter, absent in (("utf-8", "█", "#"), ("ascii", "#", "?")):
            with io.TextIOWrapper(io.BytesIO(), encoding=encoding) as said:
                with contextlib.redirect_stdout(said):
                    self.assertEqual(0, command.main(["status"]))
                said.seek(0)
                [push] = [line for line in said if re.match("push .* Mbit/s ", line)]
            self.assertIn(letter, push)
            self.assertNotIn(absent, push)

    def test_json_is_what_the_scheduler_says(self):
        served = self.serve(samples.many_workers())
        self.announce("resnet", served.address)
        code, said, _ = terminal.run("status", "--json")
        self.assertEqual((0, samples.many_workers()), (code, json.loads(said)))

    def test_the_address_of_the_log_is_enough(self):
        served = self.serve(samples.healthy())
        address = "%s/?token=%s" % (served.address, scheduler.TOKEN)
        self.assertEqual(0, terminal.run("status", "--address", address)[0])
        given = ("--address", served.address, "--token", scheduler.TOKEN)
        self.assertEqual(0, terminal.run("status", *given)[0])

    def test_the_token_need_not_be_on_the_command_line(self):
        address = self.serve(samples.healthy()).address
        path = self.put("token", scheduler.TOKEN + "\n")
        given = ("status", "--address", address)
        self.assertEqual(0, terminal.run(*given, "--token_file", path)[0])
        missing = terminal.run(*given, "--token_file", path + "x")[2]
        self.assertIn("--token_file %sx: No such file or directory" % path, missing)
        with mock.patch.dict(os.environ, SLIMPS_TOKEN=scheduler.TOKEN):
            self.assertEqual(0, terminal.run(*given)[0])
        self.assertEqual(1, terminal.run(*given)[0])

    def test_without_a_job_it_says_how_to_start_one(self):
        self.announce("old", "http://127.0.0.1:1", pid=NOBODY)
        self.put("run/slimps/torn.json", "{")
        code, _, complained = terminal.run("status")
        self.assertEqual(1, code)
        self.assertIn("no job runs here that can be watched; start it with", complained)
        self.assertIn("no job \"old\" runs here", terminal.run("status", "--job=old")[2])

    def test_another_process_with_the_schedulers_pid_is_no_job(self):
        served = self.serve(samples.healthy())
        self.announce("old", served.address, begun=source.begun(os.getpid()) + 1)
        self.announce("far", served.address, host="another")
        self.assertIn("no job runs here", terminal.run("status")[2])

    def test_only_a_dead_launchers_file_is_removed(self):
        path = self.announce("old", "http://127.0.0.1:1", pid=NOBODY)
        for launcher, stays in ((os.getpid(), True), (NOBODY, False)):
            of_launcher = self.path("run/slimps/job-%d-a_1.json" % launcher)
            shutil.copy(path, of_launcher)
            self.assertIn("no job runs here", terminal.run("status")[2])
            self.assertEqual(stays, os.path.exists(of_launcher), "it may start a scheduler again")
        self.assertTrue(os.path.exists(path), "nobody knows who has made it")

    def test_of_several_jobs_one_is_chosen(self):
        served = self.serve(samples.healthy())
        self.announce("resnet", served.address)
        self.announce("lenet", "http://127.0.0.1:1", ".cache/slimps")
        code, _, complained = terminal.run("status")
        self.assertEqual(1, code)
        listed = "2 jobs run here: lenet (pid %d), resnet (pid %d); choose one with --job NAME"
        self.assertIn(listed % (os.getpid(), os.getpid()), complained)
        self.assertEqual(0, terminal.run("status", "--job", "resnet")[0])

    def test_jobs_of_one_name_are_told_apart_by_pid(self):
        over, runs = samples.healthy(), samples.healthy()
        over["job"]["phase"] = "done"
        self.announce("slimps", self.serve(over).address)
        self.announce("slimps", self.serve(runs).address, pid=os.getppid())
        for chosen in ([], ["--job=slimps"]):
            code, _, complained = terminal.run("status", *chosen)
            self.assertEqual(1, code)
            self.assertIn("2 jobs run here: slimps (pid ", complained)
        for pid, phase in ((os.getpid(), "done"), (os.getppid(), "running")):
            said = terminal.run("status", "--job=%d" % pid)[1]
            self.assertIn("job resnet: %s" % phase, said)

    def test_top_does_not_go_on_with_another_job(self):
        path = self.announce("slimps", "http://127.0.0.1:1")
        found = source.find(options_of(), self.environment)
        os.remove(path)
        self.announce("slimps", "http://127.0.0.1:2", pid=os.getppid())
        with self.assertRaises(source.Silent):
            source.find_again(found)
        self.announce("slimps", "http://127.0.0.1:3")  # the same file
        self.assertEqual("http://127.0.0.1:3", source.find_again(found).address)

    def test_a_wrong_token_is_named(self):
        served = self.serve(samples.healthy())
        code, _, complained = terminal.run("status", "--address", served.address, "--token=wrong")
        self.assertEqual(1, code)
        self.assertIn("refused: the token is not this job's", complained)

    def test_a_scheduler_that_is_gone_is_named(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "http://127.0.0.1:%d" % free.getsockname()[1]
            code, _, complained = terminal.run("status", "--address", address)
        self.assertEqual(1, code)
        self.assertIn("%s: no answer (Connection refused)" % address, complained)

    def test_another_server_is_not_taken_for_a_scheduler(self):
        served = self.serve({"some": "thing"})
        self.announce("resnet", served.address)
        code, _, complained = terminal.run("status")
        self.assertEqual(1, code)
        self.assertIn("this is no scheduler of slimps", complained)
        self.assertIn("expected an address", terminal.run("status", "--address", "node1:80")[2])

    def test_flags_that_contradict_are_refused(self):
        for flags in (["--token=t"], ["--token_file=f"], ["--job=a", "--address=http://a:1"]):
            self.assertEqual(2, terminal.run("status", *flags)[0])

    def test_top_ends_with_the_job(self):
        over = samples.healthy()
        over["job"].update(phase="failed", why="worker 1 was killed")
        served = self.serve(over)
        self.announce("resnet", served.address)
        code, said, _ = terminal.run("top")
        self.assertEqual(1, code)
        self.assertIn("failed: worker 1 was killed", said)
        self.assertNotIn("\x1b", said, "this is no terminal")


def without_tensors(phase="running"):
    """Returns what a scheduler says whom nobody has asked for seconds."""
    told = samples.healthy()
    told["job"]["phase"] = phase
    told.update(tensors=[], timeline=[])
    return told


class Answers:
    """A source that gives these answers, one after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def ask(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class DetailsTest(unittest.TestCase):
    def ask(self, *answers):
        """Returns the state, how many answers are left, and the seconds that were waited."""
        asked, time = Answers(*answers), [0]
        state = watch_commands.ask_for_details(
            asked, lambda: time[0], lambda seconds: time.append(time.pop() + seconds)
        )
        return state, len(asked.answers), time[0]

    def test_it_asks_again_until_the_tensors_come(self):
        told = [without_tensors()] * 3 + [samples.healthy()] * 2
        self.assertEqual((samples.healthy(), 1, 0.75), self.ask(*told))

    def test_a_job_without_tensors_is_asked_for_some_seconds_only(self):
        self.assertEqual((without_tensors(), 7, 3), self.ask(*[without_tensors()] * 20))

    def test_a_job_that_does_not_run_is_asked_once(self):
        for phase in ("forming", "done", "failed"):
            told = without_tensors(phase)
            self.assertEqual((told, 1, 0), self.ask(told, samples.healthy()))

    def test_a_job_that_ends_meanwhile_is_told_as_it_was(self):
        answers = [without_tensors(), source.Silent("gone"), samples.healthy()]
        self.assertEqual((without_tensors(), 1, 0.25), self.ask(*answers))

    def test_status_prints_what_comes_later(self):
        asked = Answers(without_tensors(), samples.healthy())
        with mock.patch.object(source, "find", return_value=asked):
            self.assertEqual(samples.healthy(), json.loads(terminal.run("status", "--json")[1]))


class TopTest(unittest.TestCase):
    def run_top(self, asked, find_again, terminal=False):
        """Returns the last state and what was drawn. Time goes on by waiting alone."""
        time = [0]
        said = io.StringIO()
        said.isatty = lambda: terminal
        with contextlib.redirect_stdout(said):
            top = watch_commands.Top(
                asked,
                find_again,
                lambda: time[0],
                lambda seconds: time.append(time.pop() + seconds),
            )
            last = top.run()
        return last, said.getvalue()

    def test_a_scheduler_that_comes_back_elsewhere_is_followed(self):
        done = samples.healthy()
        done["job"]["phase"] = "done"
        last, _ = self.run_top(
            Answers(samples.healthy(), source.Silent("gone")), lambda _: Answers(done)
        )
        self.assertEqual("done", last["job"]["phase"])

    def test_silence_for_long_ends_it(self):
        answers = Answers(samples.healthy(), *[source.Silent("gone")] * 20)
        _, said = self.run_top(answers, lambda _: answers)
        self.assertIn("no answer since 9 s; this is what was said last", said)
        self.assertIn("no answer for 10 s: the job is over, or its scheduler is gone", said)

    def test_a_terminal_is_drawn_over_and_given_back(self):
        done = samples.many_workers()
        done["job"]["phase"] = "done"
        with mock.patch.dict(os.environ, COLUMNS="40", LINES="12"):
            _, said = self.run_top(Answers(samples.healthy(), done), None, terminal=True)
        drawn, _, left = said.partition("\x1b[?1049l")
        self.assertTrue(drawn.startswith("\x1b[?1049h"))
        self.assertEqual(2, drawn.count("\x1b[H"))
        frame = drawn.split("\x1b[H")[1].partition("\x1b[J")[0].split("\n")
        self.assertEqual(12, len(frame))
        self.assertLessEqual(max(len(line) for line in frame), 40 + len("\x1b[K"))
        self.assertRegex(frame[-1], r"^\d+ more lines")
        self.assertTrue(left.startswith("job resnet: done"), "the last state stays to be read")


if __name__ == "__main__":
    unittest.main()
