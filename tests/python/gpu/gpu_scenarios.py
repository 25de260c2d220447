# SPDX-License-Identifier: Apache-2.0
"""The scenarios that workers of gpu_test.py run, on a libcuda.so.1 of the tests: NAME.

The library's GPUs are host memory, and it notes what would be wrong on a real one.
"""

import ctypes
import gc
import queue
import signal
import threading
import time

import numpy as np
import scenario
import slimps
from gpu_arrays import DlpackArray, GpuArray, cuda
from slimps import native
from slimps.native.library import check, lib

SHAPE = (3, 5)


def full(value):
    return np.full(SHAPE, value, np.float32)


def pushes_and_pulls():
    store = slimps.kv.create("dist_sync")
    store.init(["w", "b"], [full(1), full(2)])
    outs = [GpuArray(full(0)), GpuArray(full(0))]
    for round_ in range(1, 6):
        store.push(["w", "b"], [GpuArray(full(round_)), GpuArray(full(round_ + store.rank))])
        store.pull(["w", "b"], out=outs)
        np.testing.assert_array_equal(full(2 * round_), outs[0].values())
        np.testing.assert_array_equal(full(2 * round_ + 1), outs[1].values())
    both = GpuArray(full(3 + store.rank))
    store.pushpull("w", both)  # into itself
    np.testing.assert_array_equal(full(7), both.values())
    host = full(0)
    store.pushpull("w", GpuArray(full(1)), out=host)
    np.testing.assert_array_equal(full(2), host)
    store.push("w", [GpuArray(full(1)), full(2), GpuArray(full(store.rank))])  # devices
    store.pull("w", out=host)
    np.testing.assert_array_equal(full(7), host)
    store.push("w", [full(1)])
    store.pull("w", out=outs[0])  # pushed from the host
    np.testing.assert_array_equal(full(2), outs[0].values())
    store.close()


def a_gradient_lives_until_it_was_read():
    store = slimps.kv.create("dist_sync")
    store.init("w", full(0))
    for round_ in range(20):
        gradient = GpuArray(full(round_))
        freed = gradient.freed
        store.push("w", gradient)
        del gradient
        gc.collect()
        assert freed.alive, "the copy may not have read it"
        if round_ % 2:
            store.wait()
            assert not freed.alive
        out = full(0)
        store.pull("w", out=out)
        assert not freed.alive
        np.testing.assert_array_equal(full(2 * round_), out)
    store.close()


def a_push_that_is_refused_frees_no_gradient():
    store = slimps.kv.create("dist_sync")
    store.init("w", full(0))
    memory = full(1)
    for round_ in range(20):
        gradient = GpuArray(full(round_))
        freed = gradient.freed
        store.push("w", gradient)
        del gradient
        elsewhere = GpuArray(full(1))
        elsewhere.pointer = ctypes.c_ulonglong(memory.ctypes.data)
        try:
            store.push("w", elsewhere)
        except slimps.InvalidArgumentError:
            pass
        gc.collect()
        assert freed.alive, "the copy may not have read it"
        out = full(0)
        store.pull("w", out=out)
        gc.collect()
        assert not freed.alive
        np.testing.assert_array_equal(full(2 * round_), out)
    store.close()


def what_cannot_be_taken_is_refused():
    store = slimps.kv.create("dist_sync")
    store.init("w", full(0))
    for array, why in (
        (
            GpuArray(full(1), "<f8"),
            "push of key 'w': expected contiguous float32 on a GPU, got <f8",
        ),
        (GpuArray(np.zeros(7)), "push of key 'w': expected shape (3, 5), as it was initialised"),
    ):
        try:
            store.push("w", array)
        except slimps.InvalidArgumentError as refused:
            assert why in str(refused), refused
        else:
            raise AssertionError("expected: " + why)
    read_only = GpuArray(full(1))
    read_only.read_only = True
    try:
        store.pull("w", read_only)
    except slimps.InvalidArgumentError as refused:
        assert "got a read-only one" in str(refused), refused
    else:
        raise AssertionError("expected an error")
    gaps = GpuArray(full(1))
    gaps.strides = (40, 4)
    elsewhere = GpuArray(full(1))
    elsewhere.pointer = ctypes.c_ulonglong(full(1).ctypes.data)
    for array, why in ((gaps, "strides (40, 4)"), (elsewhere, "memory of the host, expected mem")):
        try:
            store.push("w", array)
        except slimps.InvalidArgumentError as refused:
            assert why in str(refused), refused
        else:
            raise AssertionError("expected: " + why)
    out = GpuArray(full(0))
    store.pushpull("w", full(1), out=out)  # the round was still to be pushed
    np.testing.assert_array_equal(full(2), out.values())
    store.close()


def everything_else_takes_arrays_of_a_gpu():
    store = slimps.kv.create("dist_sync")
    outs = [GpuArray(full(0)), full(0), GpuArray(full(0))]
    store.broadcast("w", GpuArray(full(1 + store.rank)), out=outs)  # rank 0's
    for out in (outs[0].values(), outs[1], outs[2].values()):
        np.testing.assert_array_equal(full(1), out)
    store.push("w", DlpackArray(GpuArray(full(3))))
    out = DlpackArray(GpuArray(full(0)))
    store.pull("w", out=out)
    np.testing.assert_array_equal(full(6), out.values())
    store.push("w", full(4))
    ended = queue.Queue()
    store.pull_then("w", outs[0], ended.put)
    assert ended.get() is None
    np.testing.assert_array_equal(full(8), outs[0].values())
    store.init("v", full(0))
    store.push(["w", "v"], [full(1), full(2)])
    store.pull(["w", "v"], out=[outs[0], outs[0]])  # the last key's
    np.testing.assert_array_equal(full(4), outs[0].values())
    rows = slimps.RowSparse([2, 0], GpuArray(full(5)[:2]), SHAPE)
    store.push("w", rows)
    store.pull("w", out=outs[0])
    expected = full(10)
    expected[1] = 0
    np.testing.assert_array_equal(expected, outs[0].values())
    try:
        store.push("w", DlpackArray(GpuArray(full(1)), bits=64))
    except slimps.InvalidArgumentError as refused:
        assert "expected contiguous float32 on a GPU, got DLPack's type (2, 64, 1)" in str(refused)
    else:
        raise AssertionError("expected an error")
    store.close()


def functions_without_a_place_find_arrays_by_their_address():
    """Those of the C API that take one array: they return when it may be freed or read."""
    store = slimps.kv.create("dist_sync")
    native_store = store._store
    at, key = ctypes.c_void_p(native_store._pointer), native_store._keys.struct("w")
    size, no_priority = ctypes.c_size_t(15), ctypes.c_int32(0)

    def on_gpu(value):
        return GpuArray(full(value))

    def pointer(array):
        return ctypes.c_void_p(array.pointer.value)

    first = slimps._gpu.find(on_gpu(1 + store.rank), "w")
    native_store.init(["w"], [SHAPE], [first], [False], [""])
    out = on_gpu(0)
    check(lib.slimps_pull(at, key, pointer(out), size, no_priority))
    np.testing.assert_array_equal(full(1), out.values())
    for round_ in range(1, 11):
        gradient = on_gpu(round_)
        check(lib.slimps_push(at, key, pointer(gradient), size, no_priority))
        del gradient
        check(lib.slimps_pull(at, key, pointer(out), size, no_priority))
        np.testing.assert_array_equal(full(2 * round_), out.values())
    devices = [on_gpu(3), on_gpu(4)]
    pointers = (ctypes.c_void_p * 2)(*[array.pointer.value for array in devices])
    check(lib.slimps_push_sum(at, key, pointers, ctypes.c_size_t(2), size, no_priority))
    host = full(0)
    check(lib.slimps_pushpull(at, key, pointer(out), pointer(out), size, no_priority))
    np.testing.assert_array_equal(full(40), out.values())  # each worker pushed the 20 of before
    check(lib.slimps_pushpull(at, key, pointer(out), _address(host), size, no_priority))
    np.testing.assert_array_equal(full(80), host)
    host = full(2)
    check(lib.slimps_pushpull(at, key, _address(host), pointer(out), size, no_priority))
    np.testing.assert_array_equal(full(4), out.values())
    # In the background, too, where a thread of the library waits for the GPU.
    native_store._run(lib.slimps_push, key, pointer(out), size, no_priority, lent=out)
    ended = queue.Queue()
    done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)(
        lambda _, status, message: ended.put(status)
    )
    check(lib.slimps_pull_async(at, key, pointer(out), size, no_priority, done, None))
    assert ended.get() == 0
    np.testing.assert_array_equal(full(8), out.values())
    rows, values = np.array([2, 0]), GpuArray(full(5)[:2])
    more = ctypes.c_size_t(2), pointer(values), ctypes.c_size_t(10)
    check(lib.slimps_push_row_sparse(at, key, _address(rows), *more, no_priority))
    found, some = np.zeros(2, np.int64), GpuArray(full(0)[:2])
    count = ctypes.c_size_t()
    check(
        lib.slimps_pull_rows(
            at,
            key,
            _address(rows),
            ctypes.c_size_t(2),
            _address(found),
            pointer(some),
            ctypes.c_size_t(10),
            ctypes.byref(count),
            no_priority,
        )
    )
    assert (count.value, list(found)) == (2, [0, 2])
    np.testing.assert_array_equal(full(10)[:2], some.values())
    store.close()


def _address(array):
    return ctypes.c_void_p(array.ctypes.data)


def an_exchange_on_a_gpu():
    """Parameters and gradients lie there; gradients are freed when they have been read."""
    store = slimps.kv.create("dist_sync")
    for backup_model in (False, True):
        weights = [GpuArray(full(1 + store.rank)) for _ in range(2)]
        exchange = native.Exchange(
            store._store,
            ["%s%d" % (backup_model, i) for i in range(2)],
            [SHAPE, SHAPE],
            ["", ""],
            [slimps._gpu.find(one, "weights") for one in weights],
            [False, False],
            native.OptimizerSpec(kind="SGD", learning_rate=1.0, average=True),
            native.ExchangeSettings(backup_model=backup_model),
        )
        for _ in range(3):
            exchange.begin_step()
            first, second = GpuArray(full(1)), GpuArray(full(2))
            freed = first.freed
            exchange.on_gradient(0, slimps._gpu.find(first, "gradient"))
            del first
            while not exchange.is_read(0):
                time.sleep(0.001)
            assert freed.alive, "nobody has asked"
            exchange.on_gradient(1, slimps._gpu.find(second, "gradient"))
            gc.collect()
            assert not freed.alive, "before the step has ended"
            exchange.end_step()
        exchange.drain()
        np.testing.assert_array_equal(full(-2), weights[0].values())
        np.testing.assert_array_equal(full(-5), weights[1].values())
    store.close()


def an_exchange_takes_gradients_of_halves():
    """They become float32 on the host; what is not a gradient may not be of halves."""
    store = slimps.kv.create("dist_sync")
    weights = full(1)
    exchange = native.Exchange(
        store._store,
        ["halves"],
        [SHAPE],
        [""],
        [weights],
        [False],
        native.OptimizerSpec(kind="SGD", learning_rate=1.0, average=True),
        native.ExchangeSettings(),
    )
    for dtype, kind in (("float16", native.FLOAT16), ("bfloat16", native.BFLOAT16)):
        values = np.linspace(-2, 2, weights.size, dtype=np.float32).reshape(SHAPE)
        bits = values.astype(np.float16).view(np.uint16)
        if dtype == "bfloat16":
            bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        expected = bits.view(np.float16).astype(np.float32)
        if dtype == "bfloat16":
            expected = (bits.astype(np.uint32) << 16).view(np.float32)
        words = np.zeros((bits.size + 1) // 2 * 2, np.uint16)
        words[: bits.size] = bits.ravel()
        memory = GpuArray(words.view(np.float32))
        found = slimps._gpu.find(memory, "gradient")._replace(shape=SHAPE, kind=kind)
        before = weights.copy()
        exchange.begin_step()
        exchange.on_gradient(0, found)
        exchange.end_step()
        np.testing.assert_array_equal(before - expected, weights)
    try:
        native.copy(found, full(0))
    except slimps.InvalidArgumentError as refused:
        assert "kind: expected 0 to 1, got 4" in str(refused), refused
    else:
        raise AssertionError("expected an error")
    store.close()


def a_local_store():
    store = slimps.kv.create("local")
    store.init("w", full(1))
    store.push("w", [GpuArray(full(2)), full(3), GpuArray(full(4))])
    out = GpuArray(full(0))
    store.pull("w", out=out)
    np.testing.assert_array_equal(full(9), out.values())
    store.pushpull("w", GpuArray(full(5)), out=out)
    np.testing.assert_array_equal(full(5), out.values())


def arrays_that_do_not_say_their_gpu_are_found():
    def on_gpu_1(value):
        return GpuArray(full(value), gpu=1)

    store = slimps.kv.create("dist_sync")
    store.init("w", on_gpu_1(1))
    out, host = on_gpu_1(0), full(0)
    store.pull("w", out=out)
    native.copy(slimps._gpu.find(out, "out"), host)
    np.testing.assert_array_equal(full(1), host)
    for round_ in range(1, 6):
        store.push("w", on_gpu_1(round_))
        store.pull("w", out=out)
        np.testing.assert_array_equal(full(2 * round_), out.values())
    store.push("w", [GpuArray(full(3)), on_gpu_1(4), full(5)])  # devices
    store.pull("w", out=out)
    np.testing.assert_array_equal(full(24), out.values())
    store.close()


def an_old_driver_is_refused():
    try:
        native.copy(slimps._gpu.find(GpuArray(full(1)), "array"), full(0))
    except slimps.FailedPreconditionError as refused:
        assert str(refused) == (
            "the CUDA driver is too old: libcuda.so.1 is of CUDA 10.2, expected 11.0 or later"
        ), refused
    else:
        raise AssertionError("expected an error")


def first_values_wait_for_their_own_stream():
    array = GpuArray(full(7))
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert cuda.cuCtxPopCurrent_v2(None) == 0
    array.stream = stream.value
    store = slimps.kv.create("local")
    released = threading.Event()

    def release():
        released.set()
        cuda.slimps_fake_release()

    cuda.slimps_fake_hold()
    late = threading.Timer(60, release)  # a wait for another stream ends then
    late.start()
    store.init("w", array)
    late.cancel()
    assert not released.is_set(), "it waited for the default stream"
    cuda.slimps_fake_release()
    out = full(0)
    store.pull("w", out=out)
    np.testing.assert_array_equal(full(7), out)


def copies_keep_the_largest_buffer_alone():
    for elements in (1 << 19, 1 << 20, 3 << 19):
        out = np.zeros(elements, np.float32)
        native.copy(slimps._gpu.find(GpuArray(np.ones(elements)), "array"), out)
        assert out.all()
        assert cuda.slimps_fake_pinned_bytes() == 4 * elements, cuda.slimps_fake_pinned_bytes()


def ctrl_c_ends_the_wait_for_a_copy():
    array, out = GpuArray(full(7)), full(0)
    freed = array.freed
    released = threading.Event()

    def release():
        cuda.slimps_fake_release()
        released.set()

    cuda.slimps_fake_hold()
    main = threading.get_ident()
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    late = threading.Timer(60, release)  # a copy that hears nothing ends then
    late.start()
    try:
        native.copy(slimps._gpu.find(array, "array"), out)
        raise AssertionError("expected KeyboardInterrupt")
    except KeyboardInterrupt:
        assert not released.is_set()
    late.cancel()
    del array
    gc.collect()
    assert freed.alive, "the copy has not read it"
    release()
    while freed.alive:
        gc.collect()
    np.testing.assert_array_equal(full(7), out)


if __name__ == "__main__":
    scenario.play(globals())
    gc.collect()
    assert cuda.slimps_fake_misuses() == b"", cuda.slimps_fake_misuses().decode()
