# SPDX-License-Identifier: Apache-2.0
"""Errors as Python exceptions, and what a store of one worker refuses."""

import json
import os
import subprocess
import sys
import threading

import jobs
import numpy as np
import pytest

import slimps
from slimps import errors, native


@pytest.fixture(scope="module", name="store")
def one_store():
    with jobs.lone_store() as store:
        store.init("w", np.zeros((2, 3), np.float32))
        yield store


def test_every_code_has_a_class_and_the_whole_message():
    for code in range(1, 17):
        error = errors.from_status(code, "key w: expected 3, got 4")
        assert isinstance(error, slimps.Error)
        assert str(error) == "key w: expected 3, got 4"
    assert type(errors.from_status(99, "?")) is slimps.UnknownError


def report_of(tmp_path, *lines):
    """Returns what a Python that fails at these lines says to its launcher, and its last line."""
    path = tmp_path / "report"
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(("import slimps", *lines))],
        env={**os.environ, "SLIMPS_REPORT_FILE": str(path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    return json.loads(path.read_text()) if path.exists() else {}, ran.stderr


def test_the_launcher_is_told_of_an_uncaught_exception_with_its_traceback(tmp_path):
    report, said = report_of(tmp_path, "raise ValueError('bad \\udcb0\\nluck')")
    assert report == {"error": "ValueError: bad \udcb0", "traceback": report["traceback"]}
    assert report["traceback"].splitlines()[0] == "Traceback (most recent call last):"
    assert 'File "<string>", line 2, in <module>' in report["traceback"] and "luck" in said


def test_the_launcher_is_not_told_of_an_exception_that_was_handled(tmp_path):
    report, said = report_of(
        tmp_path,
        "import multiprocessing, subprocess, sys",
        "from slimps import _open_stores",
        "class Store:",
        "    def close(self): print('closed', file=sys.stderr, flush=True)",
        "def run(store=Store()): _open_stores.add(store)",
        "subprocess.run([sys.executable, '-c', 'import slimps; raise ValueError()'])",
        "try: {}[1]",
        "except KeyError:",
        "    child = multiprocessing.get_context('fork').Process(target=run)",
        "    child.start(); child.join()",
        "sys.exit(1)",
    )
    assert report == {} and "ValueError" in said and "closed" in said, said


def test_the_launcher_is_told_of_the_slimps_error_that_led_to_an_exception(tmp_path):
    report, _ = report_of(
        tmp_path,
        "try: raise slimps.AbortedError('it failed')",
        "except slimps.Error as error: raise RuntimeError('no step') from error",
    )
    del report["traceback"]
    assert report == {"error": "RuntimeError: no step", "code": "ABORTED", "cause": "it failed"}


def test_an_end_without_an_exception_is_no_report(tmp_path):
    assert report_of(tmp_path, "raise SystemExit('no data')") == ({}, "no data\n")


@pytest.mark.parametrize(
    "kind, builtin, code",
    [
        (slimps.InvalidArgumentError, ValueError, "INVALID_ARGUMENT"),
        (slimps.NotFoundError, KeyError, "NOT_FOUND"),
        (slimps.DeadlineExceededError, TimeoutError, "DEADLINE_EXCEEDED"),
        (slimps.UnavailableError, ConnectionError, "UNAVAILABLE"),
        (slimps.PermissionDeniedError, PermissionError, "PERMISSION_DENIED"),
        (slimps.UnimplementedError, NotImplementedError, "UNIMPLEMENTED"),
        (slimps.FailedPreconditionError, RuntimeError, "FAILED_PRECONDITION"),
        (slimps.AlreadyExistsError, RuntimeError, "ALREADY_EXISTS"),
    ],
)
def test_errors_are_of_the_fitting_builtin_type(kind, builtin, code):
    assert issubclass(kind, builtin) and kind.code == code


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda store, key: store.push(key, ONES),
        lambda store, key: store.pull(key, out=ONES.copy()),
        lambda store, key: store.pushpull(key, ONES.copy()),
        lambda store, key: store.push_nothing(key),
    ],
)
def test_a_key_never_initialised(store, call):
    with pytest.raises(slimps.NotFoundError, match="key 'v' was never initialised"):
        call(store, "v")
    with pytest.raises(
        slimps.InvalidArgumentError,
        match="key 3: expected str, as the store's other keys are, got int",
    ):
        call(store, 3)


def test_init_refuses(store):
    with pytest.raises(slimps.AlreadyExistsError, match="key 'w' was initialised before"):
        store.init("w", ONES)
    with pytest.raises(slimps.InvalidArgumentError, match="key 1: expected str"):
        store.init(1, ONES)
    with pytest.raises(
        slimps.InvalidArgumentError,
        match="init of key 'x': expected a layer out of convolution, .*, got 'conv'",
    ):
        store.init("x", ONES, layer="conv")
    with pytest.raises(
        slimps.InvalidArgumentError, match="layer: expected 1 or 2, one per key, got 1"
    ):
        store.init(["x", "y"], [ONES, ONES], layer=["dense"])
    with pytest.raises(slimps.InvalidArgumentError, match="init names key y twice"):
        store.init(["y", "y"], [ONES, ONES])


def test_push_refuses_and_the_round_is_not_used_up(store):
    for value in (np.nan, np.inf):
        wrong = ONES.copy()
        wrong[1, 2] = value
        with pytest.raises(ValueError, match="push of key w: .*(nan|inf)"):
            store.push("w", wrong)
    with pytest.raises(
        ValueError,
        match=r"push of key 'w': expected shape \(2, 3\), as it was initialised, got \(3, 2\)",
    ):
        store.push("w", ONES.T)
    with pytest.raises(
        ValueError, match="push of key 'w': expected float32, float16 or float64, got int64"
    ):
        store.push("w", ONES.astype(int))
    store.push("w", 3 * ONES)
    out = np.zeros((2, 3), np.float32)
    store.pull("w", out=out)
    np.testing.assert_array_equal(3 * ONES, out)


def test_nothing_is_pushed_where_one_of_several_is_wrong(store):
    store.init(["p", "q"], [ONES, ONES])
    with pytest.raises(slimps.NotFoundError, match="'missing'"):
        store.push(["p", "missing"], [5 * ONES, ONES])
    with pytest.raises(ValueError, match="pushpull of key 'q': expected shape"):
        store.pushpull(["p", "q"], [5 * ONES, ONES], out=[ONES.copy(), np.zeros(3, np.float32)])
    out = np.zeros((2, 3), np.float32)
    store.pull("p", out=out)
    np.testing.assert_array_equal(ONES, out)


def test_of_a_pushpull_what_stands_before_the_wrong_key_is_done(store):
    store.init(["i", "j", "k"], [ONES] * 3)
    outs = [np.zeros((2, 3), np.float32) for _ in range(3)]
    with pytest.raises(ValueError, match="push of key j: .*nan"):
        store.pushpull(["i", "j", "k"], [5 * ONES, np.nan * ONES, 5 * ONES], out=outs)
    store.pushpull(["j", "k"], [4 * ONES, 3 * ONES], out=outs[1:])
    store.pull("i", out=outs[0])
    for expected, out in zip((5, 4, 3), outs):
        np.testing.assert_array_equal(expected * ONES, out)


def test_compression_that_makes_no_sense(store):
    with pytest.raises(slimps.FailedPreconditionError, match="before the first push"):
        store.push("w", ONES)
        store.set_gradient_compression("1bit")
    with pytest.raises(slimps.InvalidArgumentError, match="type"):
        store.set_gradient_compression({"type": "3bit"})
    with pytest.raises(slimps.InvalidArgumentError, match="expected a dict or a str, got int"):
        store.set_gradient_compression(2)


def test_a_type_that_does_not_exist():
    slimps.init(scheduler="127.0.0.1:1", num_workers=1, num_servers=1)
    with pytest.raises(slimps.InvalidArgumentError, match="got \"dist_magic\""):
        slimps.kv.create("dist_magic")
    with pytest.raises(slimps.InvalidArgumentError, match="type: expected a str, got 3"):
        slimps.kv.create(3)


def test_a_type_that_does_not_exist_is_said_before_the_job_is_asked_for(monkeypatch):
    monkeypatch.setattr("slimps._job._job", None)
    with pytest.raises(slimps.InvalidArgumentError, match="got \"dist_magic\""):
        slimps.kv.create("dist_magic")


def test_a_scheduler_that_is_not_there():
    slimps.init(scheduler="127.0.0.1:1", num_workers=1, num_servers=1)
    with pytest.raises(
        TimeoutError, match="scheduler tcp://127.0.0.1:1 did not answer within 200ms"
    ):
        slimps.kv.create("dist_sync", join_timeout_s=0.2)


@pytest.mark.parametrize("name", ["dist_async", "dist_ssp"])
def test_an_asynchronous_store_without_an_optimizer_refuses_pushes(name):
    with jobs.lone_store(name) as store:
        store.init("w", ONES)
        row = slimps.RowSparse([0], ONES[:1], ONES.shape)
        for push in (
            lambda: store.push("w", ONES),
            lambda: store.pushpull("w", ONES.copy()),
            lambda: store.push("w", row),
            lambda: store.push_nothing("w"),
        ):
            with pytest.raises(
                slimps.FailedPreconditionError, match="a %s store .* expected set_optimizer" % name
            ):
                push()
        store.set_optimizer(slimps.optimizer.Test())
        store.push("w", ONES)  # the store lives on
        store.wait()


def test_a_forked_child_has_no_store():
    with jobs.lone_store() as store:
        store.init("w", ONES)
        child = os.fork()
        if child == 0:
            try:
                store.pull("w", out=ONES.copy())
            except slimps.FailedPreconditionError as error:
                os._exit(7 if "forked" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.push("w", ONES)
        store.wait()


def test_the_name_asked_for_is_the_type():
    with jobs.lone_store("dist_device_sync") as store:
        assert (store.type, store.rank, store.num_workers) == ("dist_device_sync", 0, 1)
        assert store.is_capable("optimizer") and not store.is_capable("teleport")


def test_a_second_store_in_a_process():
    with jobs.lone_store() as store:
        for kind in ("dist_sync", "dist_async"):
            with pytest.raises(
                slimps.FailedPreconditionError,
                match="this process has a dist_sync store of the job at "
                r"127.0.0.1:\d+ already, as worker 0 of 1; expected that one to be used",
            ):
                slimps.kv.create(kind, timeout_s=5)
        slimps.kv.create("local").close()
        with jobs.lone_store() as other:  # of another job
            other.init("w", ONES)
        store.init("w", ONES)


def test_a_closed_store():
    with jobs.lone_store() as store:
        store.init(1, ONES)
        store.close()
        store.close()
        with pytest.raises(slimps.FailedPreconditionError, match="the store was closed"):
            store.push(1, ONES)


def test_what_was_moved_is_counted():
    with jobs.lone_store() as store:
        store.init("w", ONES)
        store.pushpull("w", ONES.copy())
        totals = store.totals()
        assert (totals["bytes_pushed"], totals["bytes_pulled"]) == (24, 24)


def test_what_is_compressed_is_told():
    with jobs.lone_store() as store:
        assert store.decision() is None
    with jobs.lone_store(compression="1bit", threshold="auto") as store:
        assert store.decision() is None, "measured in the first rounds"
    with jobs.lone_store(compression="1bit", threshold=4096) as store:
        decision = store.decision()
        assert decision["codec"].startswith("1bit") and decision["threshold_bytes"] == 4096
        assert decision["table"] == [] and decision["pull_threshold_bytes"] is None


def test_what_undoes_the_gradients_scale():
    with jobs.lone_store(compression="2bit", grad_scale=8) as store:
        assert store.unscale == 0.125
        store.set_gradient_compression("signsgd:error_feedback=off")
        assert store.unscale == 1, "signs are counted"
        store.set_gradient_compression({"type": "1bit"})
        assert store.unscale == 0.125
    with jobs.lone_store(compression="signsgd", grad_scale=8) as store:
        assert store.unscale == 1


def test_adacomp_hears_of_layers():
    """Bins have 50 elements in convolutions and 500 elsewhere. More bins send more."""
    # Few large ones.
    gradient = (np.random.default_rng(1).normal(size=2000) ** 9).astype(np.float32)
    bytes_of = {}
    with jobs.lone_store(compression="adacomp", threshold=0) as store:
        for name, shape, layer in (
            ("convolution by shape", (20, 10, 10), None),
            ("dense by shape", (20, 100), None),
            ("convolution", (20, 100), "convolution"),
            ("dense", (20, 10, 10), "dense"),
        ):
            store.init(name, np.zeros(shape, np.float32), layer=layer)
            before = store.totals()["bytes_pushed"]
            store.push(name, gradient.reshape(shape))
            store.wait()
            bytes_of[name] = store.totals()["bytes_pushed"] - before
    assert bytes_of["convolution by shape"] == bytes_of["convolution"] > bytes_of["dense"], bytes_of
    assert bytes_of["dense by shape"] == bytes_of["dense"], bytes_of


def test_large_pushes_arrive():
    """These are larger than pushes that surely find room at once, so they go another way."""
    with jobs.lone_store() as store:
        large = np.arange(40 << 20, dtype=np.float32)
        store.init("w", np.zeros_like(large))
        store.push("w", large)
        store.push("w", large)
        out = np.zeros_like(large)
        store.pull("w", out=out)
        assert np.array_equal(large, out)


def test_the_library_checks_for_itself():
    with pytest.raises(slimps.InvalidArgumentError, match="udp"):
        native.Options().set("same_host", "udp")
    with slimps.kv.create("local") as store:
        with pytest.raises(slimps.InvalidArgumentError, match="magic"):
            store.set_optimizer_spec(native.OptimizerSpec("MAGIC"))


@pytest.mark.parametrize(
    "array, complaint",
    [
        (np.zeros(6), "expected contiguous float32, got float64"),
        (np.zeros(12, np.float32)[::2], r"got float32 with strides \(8,\)"),
        (3, "expected an array of numpy.float32, got int"),
    ],
)
def test_addresses_are_taken_of_packed_float32_alone(store, array, complaint):
    with pytest.raises(TypeError, match=complaint):
        store._store.push(["w"], [[array]], 0)
    with pytest.raises(TypeError, match=complaint):
        store._store.pull(["w"], [array], 0)


def test_a_read_only_array_can_be_pushed_and_not_pulled_into(store):
    array = np.full((2, 3), 4, np.float32)
    array.flags.writeable = False
    store.push("w", array)
    with pytest.raises(TypeError, match="expected one to write, got a read-only one"):
        store._store.pull(["w"], [array], 0)
    out = np.zeros((2, 3), np.float32)
    store.pull("w", out=out)
    np.testing.assert_array_equal(array, out)


@pytest.mark.parametrize("name", ["a\0b", "half a pair \ud800"])
def test_a_name_that_the_library_cannot_take(store, name):
    with pytest.raises(
        slimps.InvalidArgumentError, match="key: expected text without NUL that UTF-8 can write"
    ):
        store.init(name, ONES)


def test_other_threads_run_while_one_waits():
    """This thread starts the other worker while a thread of this process waits for it."""
    with jobs.Daemons(2, 1) as job:
        slimps.init(scheduler="127.0.0.1:%d" % job.port, num_workers=2, num_servers=1, rank=0)
        told = []

        def wait():
            with slimps.kv.create("dist_sync") as store:
                told.append(store.num_workers)

        thread = threading.Thread(target=wait)
        thread.start()
        job.start_scenario(1, "waiting", "leave")
        thread.join(60)
        assert told == [2]
