# SPDX-License-Identifier: Apache-2.0
"""Where the main thread stands, as workers tell it."""

import importlib.util
import threading
from unittest import mock

import jobs
import slimps
from eventually import eventually
from slimps.native import position


def in_another_thread(look):
    """Returns what `look` returns on a thread of its own, while this thread stands here."""
    found = []
    thread = threading.Thread(target=lambda: found.append(look()))
    thread.start()
    thread.join()
    return found[0]


def test_it_is_the_programs_line_that_waits_in_a_library():
    found = in_another_thread(position.of_main_thread)
    assert found.startswith("position_test.py:"), "not threading.py, which waits: " + found


def test_lines_of_the_package_are_left_out():
    with mock.patch.object(position, "_PACKAGE", __file__):
        assert not in_another_thread(position.of_main_thread).startswith("position_test.py:")


def test_a_program_of_libraries_alone_is_at_its_innermost_line():
    with mock.patch.object(position, "_is_library", lambda path: True):
        assert in_another_thread(position.of_main_thread).startswith("threading.py:")


def test_files_of_python_and_of_packages_are_libraries():
    for path in (threading.__file__, "<frozen runpy>", "/venv/lib/site-packages/torch/x.py"):
        assert position._is_library(path), path
    assert not position._is_library("/home/me/train.py")


def test_a_watch_notes_it_until_its_end():
    noted = []
    library = mock.Mock(slimps_note_position=lambda store, where: noted.append((store, where)))
    with mock.patch.object(position, "INTERVAL_S", 0.001), mock.patch.object(
        position, "at_once", library
    ):
        watch = position.Watch(7)
        assert eventually(lambda: len(noted) > 1)
        watch.end()
        number = len(noted)
        assert eventually(
            lambda: "slimps-position" not in [thread.name for thread in threading.enumerate()]
        )
        assert len(noted) == number
    assert {store for store, _ in noted} == {7} and all(b".py:" in where for _, where in noted)


def test_only_a_store_with_a_job_is_watched_and_until_it_is_closed():
    assert slimps.kv.create("local")._store._watch is None
    with jobs.lone_store() as store:
        watch = store._store._watch
        assert not watch._ended.is_set()
        watchers = [thread for thread in threading.enumerate() if thread.name == "slimps-position"]
        assert len(watchers) == 1 and watchers[0].daemon, "it keeps Python from ending"
    assert watch._ended.is_set()


def test_a_worker_whose_data_loader_stands_is_named_with_its_line():
    with open(importlib.util.find_spec("stuck_loader").origin) as script:
        line = 1 + [i for i, text in enumerate(script) if "THE LOADER STANDS HERE" in text][0]
    with jobs.Daemons(2, 1, ["--metrics_port=0", "--stall_warning=2"]) as job:
        for rank in range(2):
            job.start_scenario(rank, "stuck_loader")
        job.wait_for_line("scheduler", ", at stuck_loader.py:%d" % line)
        said = [text for text in job.output("scheduler").splitlines() if " waits " in text][-1]
        assert " for worker 1: s:w; worker 1: last call pull" in said, said
