# SPDX-License-Identifier: Apache-2.0
"""A store, as slimps/c_api.h has it.

    store = Store.create("dist_sync", options)
    store.init(["w"], [(784, 10)], [weights], [False], ["dense"])
    store.push(["w"], [[gradient]], 0)
    store.pull(["w"], [weights], 0)
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from slimps.errors import FailedPreconditionError
from slimps.native import calls, completions, figures, gpu_gradients, position, states, structs
from slimps.native import updating
from slimps.native.arrays import (
    Array,
    Items,
    Keys,
    Name,
    address,
    address_to_write,
    place_of,
    shape_of,
)
from slimps.native.library import at_once, check, error, lib, text
from slimps.native.optimizer import Optimizer, OptimizerSpec
from slimps.native.options import Options


# Elements: what has no more is handed over without other Python threads running meanwhile, since to
# let them run takes longer than the call.
_AT_ONCE = 1 << 14


class Store(states.States):
    """One worker's store. Thread-safe. Every method raises the exception of a failed status.

    Methods that wait end on Ctrl-C, which aborts the store: the other workers would otherwise wait
    for this worker's part of their rounds.
    """

    def __init__(self, pointer: int, has_job: bool) -> None:
        """has_job: functions that push or pull call no updater, and never wait for this thread."""
        self._has_job = has_job
        self._process = os.getpid()
        self._pointer = pointer
        self._keys = Keys()
        self._free: List[calls.Call] = []  # used again and again, each by one thread at a time
        self._kept: List[Any] = []
        self._gpu_gradients = gpu_gradients.GpuGradients()
        self._updating = updating.Updating()
        self._updaters: List[Any] = []
        self._aborted = False  # then close() reports no error: the caller knows of the abort
        self._is_closed = False
        self._lock = threading.RLock()
        self._completions: Optional[completions.Completions] = None  # guarded by _lock
        self.rank = figures.number(lib.slimps_rank, pointer)
        self._watch = position.Watch(pointer) if has_job else None
        self.num_workers = figures.number(lib.slimps_num_workers, pointer)

    @staticmethod
    def create(type: str, options: Options) -> Store:
        """Joins the job and waits until all its nodes are there."""
        call = calls.Call()
        made = c_void_p()
        try:
            check(
                call.run(
                    lambda: check(lib.slimps_call_cancel(call.pointer)),
                    lib.slimps_create_in_background,
                    text(type, "type"),
                    options.pointer,
                    call.pointer,
                    byref(made),
                    lent=options,
                )
            )
        except BaseException:
            if not call.is_under_way:
                lib.slimps_destroy(made)  # it was interrupted when it was done
            raise
        assert made.value is not None
        return Store(made.value, has_job=type.startswith("dist"))

    def __del__(self, _lib: Any = lib, _getpid: Callable[[], int] = os.getpid) -> None:
        # A forked child has none of the store's threads, so it cannot close the store.
        if not hasattr(self, "num_workers") or _getpid() != self._process:
            return
        if self._completions is not None:
            _lib.slimps_close(self._pointer)  # ends the pulls that nobody waits for
            self._completions.end()
        if self._watch is not None:
            self._watch.end()
        _lib.slimps_destroy(self._pointer)

    # ---- tensors --------------------------------------------------------------------------------

    def init(
        self,
        names: Sequence[Name],
        shapes: Sequence[Sequence[int]],
        values: Sequence[Array],
        halves: Sequence[bool],
        layers: Sequence[str],
    ) -> None:
        """Initialises keys. Those of `halves` are pulled as float16; layers are of LAYERS."""
        extents = [shape_of(shape) for shape in shapes]
        places = [place_of(value) for value in values]
        tensors = (structs.Tensor * len(names))(
            *(
                structs.Tensor(
                    sizeof(structs.Tensor),
                    self._keys.struct(name),
                    ctypes.addressof(shape),
                    len(shape),
                    address(value),
                    structs.FLOAT16 if half else structs.FLOAT32,
                    structs.LAYERS.index(layer),
                    ctypes.addressof(place),
                )
                for name, shape, value, half, layer, place in zip(
                    names, extents, values, halves, layers, places
                )
            )
        )
        self._run(lib.slimps_init, tensors, len(names), lent=(extents, places, values))

    def push_one(self, name: Name, gradient: np.ndarray, priority: int) -> None:
        """Same as push() of one key and device, which costs less that way."""
        self._run(
            self._library_for(gradient).slimps_push,
            self._keys.struct(name),
            address(gradient),
            gradient.size,
            priority,
            lent=gradient,
        )

    def push(
        self, names: Sequence[Name], gradients: Sequence[Sequence[Array]], priority: int
    ) -> None:
        """Pushes for each key the sum of one array per device.

        After a key that is refused, the keys behind it are not pushed. Arrays of a GPU are kept
        until the key's next push, which waits for them, or until it is pulled.
        """
        items = Items(self._keys, names, gradients)
        with self._gpu_gradients.pushed(names, gradients, pulled=False):
            self._run(lib.slimps_push_list, items.address, items.count, priority, lent=items)

    def pull(self, names: Sequence[Name], outs: Sequence[Array], priority: int) -> None:
        """Pulls each key into an array, all at once. No two arrays may overlap."""
        items = Items(self._keys, names, None, outs)
        self._run(lib.slimps_pull_list, items.address, items.count, priority, lent=items)
        self._gpu_gradients.release(names)

    def push_pull(
        self,
        names: Sequence[Name],
        gradients: Sequence[Sequence[Array]],
        outs: Sequence[Array],
        priority: int,
    ) -> None:
        """Pushes as push() does and pulls each key as soon as it is pushed."""
        items = Items(self._keys, names, gradients, outs)
        with self._gpu_gradients.pushed(names, gradients, pulled=True):
            self._run(lib.slimps_pushpull_list, items.address, items.count, priority, lent=items)

    def pull_then(
        self,
        names: Sequence[Name],
        outs: Sequence[Array],
        priority: int,
        done: Callable[[Optional[Exception]], None],
    ) -> None:
        """Starts to pull and calls done(None) or done(exception) when all have ended.

        It does so on another thread or, if nothing has to be waited for, before this returns.
        `done` must not wait for the store.
        """
        self.check_caller()

        def ended(status: int) -> None:
            failed = error(status) if status else None
            try:
                done(failed)
            except BaseException:
                completions.say_uncaught()

        run = self._waiting_for().run
        what: Tuple[Any, ...]
        if len(names) == 1 and isinstance(outs[0], np.ndarray):  # costs less than a list
            what = (self._keys.struct(names[0]), address_to_write(outs[0]), outs[0].size, priority)
            pull = self._library_for(outs[0]).slimps_pull
            run(self.new_call, self.interrupt, pull, *what, lent=outs, then=ended)
            return
        items = Items(self._keys, names, None, outs)
        what = (items.address, items.count, priority)
        run(self.new_call, self.interrupt, lib.slimps_pull_list, *what, lent=items, then=ended)

    def push_nothing(self, name: Name) -> None:
        self._run(lib.slimps_push_nothing, self._keys.struct(name))

    def push_rows(self, name: Name, rows: np.ndarray, values: np.ndarray, priority: int) -> None:
        """Pushes some rows. `rows` is contiguous int64; `values` has row after row."""
        self._run(
            lib.slimps_push_row_sparse,
            self._keys.struct(name),
            rows.ctypes.data,
            rows.size,
            address(values),
            values.size,
            priority,
            lent=(rows, values),
        )

    def pull_rows(
        self, name: Name, row_ids: np.ndarray, row_elements: int, priority: int
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of the rows, ascending and each once, and their values, flat.

        `row_ids` is contiguous int64. A row of the key has `row_elements`.
        """
        rows = np.empty(row_ids.size, np.int64)
        values = np.empty(row_ids.size * row_elements, np.float32)
        found = ctypes.c_size_t()
        self._run(
            lib.slimps_pull_rows,
            self._keys.struct(name),
            row_ids.ctypes.data,
            row_ids.size,
            rows.ctypes.data,
            address(values),
            values.size,
            byref(found),
            priority,
            lent=(row_ids, rows, values),
        )
        return rows[: found.value], values[: found.value * row_elements]

    def keep(self, memory: Any) -> None:
        """Keeps `memory` as long as anything uses the store."""
        self._kept.append(memory)

    # ---- how gradients are treated --------------------------------------------------------------

    def set_optimizer(self, spec: OptimizerSpec) -> None:
        optimizer = Optimizer(spec)
        self._run(lib.slimps_set_optimizer, optimizer.pointer, lent=optimizer)

    def set_updater(self, updater: Optional[updating.Updater]) -> None:
        """Sets a function that runs in the optimizer's place. None removes it."""
        self.check_caller()
        callback = None if updater is None else self._updating.callback(updater)
        with self._lock:
            self._updaters.append(callback)  # whatever interrupts this, the library's stays alive
            check(lib.slimps_set_updater(self._pointer, callback, None))
            del self._updaters[:-1]

    def set_compression(self, codec: str) -> None:
        self._run(lib.slimps_set_gradient_compression, text(codec, "compression"))

    def set_compression_dictionary(self, dictionary: Mapping[str, str]) -> None:
        texts = ctypes.c_char_p * len(dictionary)
        names = texts(*(text(name, "compression_params") for name in dictionary))
        values = texts(*(text(value, "compression_params") for value in dictionary.values()))
        self._run(lib.slimps_set_gradient_compression_pairs, names, values, len(dictionary))

    def set_policy(self, policy: str) -> None:
        self._run(lib.slimps_set_policy, text(policy, "policy"))

    # ---- the job --------------------------------------------------------------------------------

    def all_reduce_sum(self, values: Sequence[float]) -> List[float]:
        sums = (ctypes.c_double * len(values))(*values)
        self._run(lib.slimps_all_reduce_sum, sums, len(values))
        return list(sums)

    def broadcast_bytes(self, arrays: Sequence[np.ndarray]) -> List[bool]:
        """Returns which of the arrays, contiguous ones of uint8, were written."""
        buffers = (structs.Bytes * len(arrays))()
        for buffer, array in zip(buffers, arrays):
            buffer.struct_size = sizeof(structs.Bytes)
            buffer.data, buffer.bytes = array.ctypes.data, array.nbytes
        self._run(lib.slimps_broadcast_bytes, buffers, len(arrays))
        return [bool(buffer.written) for buffer in buffers]

    def barrier(self) -> None:
        self._run(lib.slimps_barrier)

    def wait(self) -> None:
        self._run(lib.slimps_wait)
        self._gpu_gradients.clear()

    def leave(self) -> None:
        self._run(lib.slimps_leave)

    def close(self) -> None:
        """Leaves the job. Pulls under way end; their `done` has been called when this returns."""
        try:
            self._run(lib.slimps_close)
        except Exception:
            if not self._aborted:
                raise
        if self._watch is not None:
            self._watch.end()
        with self._lock:
            ending, self._completions, self._is_closed = self._completions, None, True
        if ending is not None:
            ending.end()
            ending.join()

    def abort(self, why: str) -> None:
        self.check_caller()
        self._aborted = True
        check(lib.slimps_abort(self._pointer, text(why, "why")))

    def interrupt(self) -> None:
        """Ends calls that wait: aborts the store, and says why."""
        self._aborted = True
        why = "worker %d was interrupted, as by Ctrl-C, while it waited" % self.rank
        check(lib.slimps_abort(self._pointer, why.encode("ascii")))

    def timeout_s(self) -> float:
        return figures.timeout_s(self._pointer)

    def former_rounds(self) -> int:
        return figures.former_rounds(self._pointer)

    def totals(self) -> Dict[str, float]:
        return figures.totals(self._pointer)

    def decision(self) -> Optional[Dict[str, Any]]:
        return figures.decision(self._pointer)

    def is_capable(self, capability: str) -> bool:
        name = text(capability, "capability")
        return figures.number(lib.slimps_is_capable, self._pointer, name) != 0

    # ---- inside ---------------------------------------------------------------------------------

    def new_call(self) -> calls.Call:
        """Returns a call with a handle of the store."""
        self.check_caller()
        return calls.Call(self._pointer, self._kept)

    def _library_for(self, values: np.ndarray) -> Any:
        return at_once if self._has_job and values.size <= _AT_ONCE else lib

    def _take_call(self) -> calls.Call:
        try:
            return self._free.pop()
        except IndexError:
            return self.new_call()

    def _run(self, function: Callable[..., int], *arguments: Any, lent: Any = None) -> None:
        """Runs a function of the store, given without the store, and raises its error."""
        self.check_caller()
        call = self._take_call()
        try:
            status = call.run(self.interrupt, function, call.handle, *arguments, lent=lent)
        finally:
            if not call.is_under_way:
                self._free.append(call)
        raised = self._updating.take_raised() if self._updaters else None
        if raised is not None:
            raise raised
        if status:
            raise error(status)

    def _waiting_for(self) -> completions.Completions:
        with self._lock:
            if self._is_closed:
                raise FailedPreconditionError("the store was closed")
            if self._completions is None:
                self._completions = completions.Completions()
            return self._completions

    def check_caller(self) -> None:
        """FailedPreconditionError: this thread runs the store's updater, or this process was forked
        from the store's."""
        if self._updating.threads and threading.get_ident() in self._updating.threads:
            raise FailedPreconditionError("an updater must not call its store")
        if os.getpid() != self._process:
            raise FailedPreconditionError(
                "the store belongs to process %d, and this is a child that was forked from it, %d"
                % (self._process, os.getpid())
            )
