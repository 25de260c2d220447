# SPDX-License-Identifier: Apache-2.0
"""Code that the benches share: flags' types, programs, signals, tables, and the check of a report's
fields."""

import argparse
import os
import signal
import tempfile
import time
import unittest

from bench import common
from cli import setup
from slimps_launch import schema


class FlagTypesTest(unittest.TestCase):
    def test_numbers_are_within_their_range(self):
        parse = common.number(1, 64, int)
        self.assertEqual([1, 64], [parse("1"), parse("64")])
        for text in ("0", "65", "1.5", "many", "", "nan"):
            with self.assertRaisesRegex(
                argparse.ArgumentTypeError, 'expected 1 to 64, got "%s"' % text
            ):
                parse(text)
        for text in ("nan", "inf", "-inf", "-1", "1e99"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "expected 0 to 1000000.0"):
                common.number(0, 1e6, float)(text)

    def test_names_are_not_empty_and_there_once(self):
        self.assertEqual(["a", "b"], common.name_list("a,b"))
        for text in ("", ",", "a,", ",a", "a,,b"):
            with self.assertRaisesRegex(
                argparse.ArgumentTypeError, 'expected names with commas.*got "%s"' % text
            ):
                common.name_list(text)
        with self.assertRaisesRegex(argparse.ArgumentTypeError, '"b" is there twice: a,b,c,b'):
            common.name_list("a,b,c,b")


class ProgramsTest(unittest.TestCase):
    def test_what_is_missing_or_cannot_be_run_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p")
            programs = {"p": ("//a:p", "p")}
            with self.assertRaisesRegex(
                setup.SetupError, "cannot run %s: there is no such program" % path
            ):
                common.find_programs(programs, folder)
            os.mkdir(path)  # a folder may be "executable" too
            with self.assertRaises(setup.SetupError):
                common.find_programs(programs, folder)
            os.rmdir(path)
            with open(path, "w", encoding="ascii"):
                pass
            os.chmod(path, 0o755)
            self.assertEqual({"p": path}, common.find_programs(programs, folder))


class SignalsTest(unittest.TestCase):
    def test_a_signal_ends_with_its_status_and_a_second_does_not_disturb(self):
        for number in common.END_SIGNALS:
            before = signal.getsignal(number)
            tidied = False
            with self.assertRaises(SystemExit) as ended:
                with common.ending_on_signals():
                    try:
                        signal.raise_signal(number)
                    finally:
                        for other in common.END_SIGNALS:
                            signal.raise_signal(other)
                        tidied = True
            self.assertEqual((128 + number, True), (ended.exception.code, tidied))
            self.assertEqual(before, signal.getsignal(number))

    def test_a_signal_that_comes_where_python_ignores_what_is_raised_ends_all_the_same(self):
        class Interrupted:
            def __del__(self):
                signal.raise_signal(signal.SIGTERM)

        with self.assertRaises(SystemExit) as ended:
            with common.ending_on_signals():
                del [Interrupted()][0]
                time.sleep(20)
        self.assertEqual(128 + signal.SIGTERM, ended.exception.code)
        self.assertEqual(signal.SIG_DFL, signal.getsignal(signal.SIGALRM))

    def test_what_is_ignored_stays_so(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with common.ending_on_signals():
                signal.raise_signal(signal.SIGHUP)
            self.assertEqual(signal.SIG_IGN, signal.getsignal(signal.SIGHUP))
        finally:
            signal.signal(signal.SIGHUP, before)


class TablesTest(unittest.TestCase):
    def test_sizes_are_exact(self):
        for size, name in (
            (None, "none"),
            (0, "0 B"),
            (512, "512 B"),
            (8192, "8 KiB"),
            (1 << 20, "1 MiB"),
            (1536, "1536 B"),
            (3 << 19, "1536 KiB"),
            (5 << 30, "5120 MiB"),
        ):
            self.assertEqual(name, common.size_name(size))

    def test_ratios_and_verdicts(self):
        self.assertEqual(
            ("", "1.50", "0.80 met", "2 x MISSED"),
            (
                common.ratio(None),
                common.ratio(1.5),
                common.verdict(True, "0.80"),
                common.verdict(False, "2 x"),
            ),
        )

    def test_text_is_aligned_and_markdown_has_its_bars(self):
        rows = [["a", "100", ""], ["long", "2", ""]]
        self.assertEqual(
            ["  name    x  y", "  a     100", "  long    2"],
            common.text_table(("name", "x", "y"), rows),
        )
        self.assertEqual(
            ["| name | x |", "|---|---|", "| a | 1 |"],
            common.markdown_table(("name", "x"), [["a", "1"]]),
        )


class SchemaTest(unittest.TestCase):
    SHAPE = {
        "machine": {"cpu": schema.TEXT},
        "extra": schema.Optional(schema.COUNT),
        "results": [
            schema.Cases("op", {"a": {"n": schema.COUNT}, "b": {"x": schema.NUMBER_OR_NULL}})
        ],
    }

    def good(self):
        return {
            "machine": {"cpu": "x"},
            "results": [{"op": "a", "n": 1}, {"op": "b", "x": None, "more": []}],
        }

    def refused(self, value, what):
        with self.assertRaises(ValueError) as error:
            schema.check(value, self.SHAPE)
        self.assertEqual(what, str(error.exception))

    def test_more_than_asked_is_fine(self):
        schema.check(self.good(), self.SHAPE)
        schema.check(dict(self.good(), extra=2, other="y"), self.SHAPE)

    def test_errors_name_field_expected_and_got(self):
        self.refused([], "the whole: expected an object, got []")
        self.refused({}, "machine: expected an object, got nothing")
        self.refused(dict(self.good(), machine={}), "machine.cpu: expected text, got nothing")
        self.refused(dict(self.good(), results={}), "results: expected a list, got {}")
        self.refused(dict(self.good(), results=[3]), "results[0]: expected an object, got 3")
        self.refused(
            dict(self.good(), results=[{"op": []}]), "results[0].op: expected one of a, b, got []"
        )
        self.refused(
            dict(self.good(), results=[{}]), "results[0].op: expected one of a, b, got nothing"
        )
        self.refused(
            dict(self.good(), results=[{"op": "b", "x": 1}, {"op": "a", "n": 1.0}]),
            "results[1].n: expected a whole number from 1 on, got 1.0",
        )
        self.refused(
            dict(self.good(), extra=None), "extra: expected a whole number from 1 on, got null"
        )
        self.refused(
            dict(self.good(), machine="z" * 100),
            "machine: expected an object, got \"%s..." % ("z" * 56),
        )

    def test_kinds_hold_what_they_say(self):
        values = [None, True, 0, 1, -1, 0.5, float("nan"), float("inf"), 10**400, "1", [], {}]
        for kind, held in (
            (schema.TEXT, ["1"]),
            (schema.NUMBER, [0, 1, -1, 0.5]),
            (schema.POSITIVE, [1, 0.5]),
            (schema.NUMBER_OR_NULL, [None, 0, 1, -1, 0.5]),
            (schema.COUNT, [1, 10**400]),
            (schema.SIZE, [0, 1, 10**400]),
            (schema.SIZE_OR_NULL, [None, 0, 1, 10**400]),
            (schema.one_of(["1", "2"]), ["1"]),
        ):
            self.assertEqual(held, [value for value in values if kind.holds(value)], kind.words)


if __name__ == "__main__":
    unittest.main()
