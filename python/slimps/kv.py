"""slimps.kv.create(type): a KVStore with MXNet's methods and semantics.

    store = slimps.kv.create("dist_sync", compression="1bit", threshold=4096)
    store.init([0, 1], [weights, bias])
    store.push([0, 1], [weights_gradient, bias_gradient])
    store.pull([0, 1], out=[weights, bias])

Keys are ints or strs, one kind per store. Where a key stands, a list of keys may stand, and then a list of values. A
value is an array (numpy, torch on the CPU, or another by the buffer protocol or DLPack) of float32 or float16, or, in
push and pushpull, a list of such, one per device, which is summed. Arrays of float32 without gaps are not copied on
their way to the store; others are. A key initialised from float16 travels as float16 when it is pulled; the servers
keep float32.

Every method raises slimps.Error with the whole message: NotFoundError (a KeyError) for a key that was never
initialised, InvalidArgumentError (a ValueError), DeadlineExceededError (a TimeoutError) after `timeout_s` seconds, and
the first error of anything in the background, from then on. Methods that wait let other threads run and end on Ctrl-C;
KeyboardInterrupt ends the store, since the others' rounds would wait for this worker, and they are told why.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Type, Union

import numpy as np

from slimps import _arrays, _job, _keys, _options, _slimps
from slimps import optimizer as _optimizer
from slimps import row_sparse as _row_sparse
from slimps.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError

__all__ = ["KVStore", "create"]

_LOCAL = ("local", "device")  # no scheduler, no servers


def create(type: str = "dist_sync", **options: Any) -> "KVStore":  # pylint: disable=redefined-builtin
    """Joins the job and waits until all its nodes are there.

    type     "dist_sync" (rounds; "dist_device_sync" is the same), "dist_async" (each push is a step of its own),
             "dist_ssp" (the same, and a worker that pulls is at most `staleness` rounds ahead of the slowest), or, in
             this process alone and without a job, "local" or "device" (whose devices' pushes can be compressed)
    options  as slimps_worker's flags:
        compression         codec spec, as "1bit" or "topk:ratio=0.01"; "none"
        threshold           gradients of at least so many fp32 bytes are compressed (0: all); "auto": measured
        pull_compression    what pulls carry: "none", "fp16", "bf16", or a codec of the change; dist_sync only
        pull_threshold      as threshold, for pulls
        pre_steps           rounds that "auto" measures, from 4
        remeasure_every     rounds between measurements later on, from 8; 0: none
        threshold_table     file with a saved table: nothing is measured
        partition_bytes     larger tensors are cut, fp32 bytes
        encode_threads      threads that compress
        staleness           rounds, of dist_ssp; 0
        grad_scale          codecs see gradient * grad_scale; rescale_grad of the optimizer undoes it
        same_host           how a server on this machine is reached: "shm", "ipc" or "tcp"
        emulate_link        rate of an emulated link, as "100mbit" or "12.5MB"; emulate_latency_ms: its delay
        timeout_s           seconds that joining, a push or a pull may take; 60

    Raises InvalidArgumentError: type, option or value; FailedPreconditionError: the scheduler is not known;
    DeadlineExceededError: it is silent, or nodes are missing.
    """
    if not isinstance(type, str):
        raise InvalidArgumentError("type: expected a str, got %r" % (type,))
    made = _options.make(None if type in _LOCAL else _job.current(), options)
    return KVStore(_slimps.Store.create(type, made), type)


class KVStore:
    """Made by create(). Thread-safe. A context manager: closed at the end, or aborted by an exception.

    Stores that are open when Python ends are closed; after an exception that nobody caught, aborted.
    """

    def __init__(self, store: _slimps.Store, name: str) -> None:
        self._store = store
        self._type = name
        self._shapes: Dict[_keys.Key, Any] = {}
        self._kind = _keys.KeyKind()
        self._refuses_half = False
        _open_stores.add(self)

    # ---- who this is ----------------------------------------------------------------------------

    @property
    def type(self) -> str:
        """As it was asked for."""
        return self._type

    @property
    def rank(self) -> int:
        """This worker's, from 0."""
        return self._store.rank

    @property
    def num_workers(self) -> int:
        return self._store.num_workers

    def is_capable(self, capability: str) -> bool:
        """Whether the store can do something: "optimizer", that the servers can step."""
        return self._store.is_capable(capability.lower())

    # ---- tensors --------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Makes keys, one array each. Collective: all workers call it alike; rank 0's values count.

        Returns when they can be pulled. Never compressed. NaN and infinity are refused.
        Raises AlreadyExistsError: a second init.
        """
        pairs = _keys.pair(key, value, "value")
        names = [name for name, _ in pairs]
        self._kind.check(names)
        values, halves, shapes = [], [], []
        for name, one in pairs:
            if _keys.is_list(one):
                raise InvalidArgumentError("init of key %r: expected one array, got a list" % (name,))
            if name in self._shapes:
                raise AlreadyExistsError("key %r was initialised before" % (name,))
            array = _arrays.as_numpy(one, "init of key %r" % (name,))
            shapes.append(array.shape)
            halves.append(array.dtype.itemsize == 2)
            values.append(_arrays.packed(array))
        self._store.init(names, [list(shape) for shape in shapes], values, halves)
        self._kind.settle(names)
        self._shapes.update(zip(names, shapes))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Gives this worker's gradients to its next round; returns when the arrays may be reused.

        Without an optimizer the sum over workers replaces the value; with one, the servers step by it. Of keys with
        different `priority`, the higher goes first. A key that stands several times is summed, as devices are.
        Raises InvalidArgumentError: NaN or infinity, or another shape than the key's; nothing of that key was sent.
        """
        dense, sparse = _row_sparse.split(_keys.group(key, value, "value"))
        for name, gradient in sparse.items():
            shape = self._shape(name, "push")
            self._check_shape(gradient, shape, "push of key %r" % (name,))
            self._store.push_rows(name, gradient.indices, _arrays.packed(gradient.rows), priority)
        if not dense:
            return
        key, value = list(dense), list(dense.values())
        if self._type in _LOCAL:
            for name, gradients in self._device_gradients(key, value).items():
                self._store.push_sum(name, gradients, priority)
            return
        for name, gradient in self._gradients(key, value).items():
            self._store.push(name, gradient, priority)

    def row_sparse_pull(self, key: Any, out: Any, priority: int = 0, row_ids: Any = None) -> None:
        """Replaces what each RowSparse `out` holds by the rows `row_ids` of the key, sorted, each once.

        Ids may repeat and stand in any order; one array of ids may serve several keys or outputs, or there is one for
        each. Waits as pull does. Raises InvalidArgumentError: a dense `out`, an id out of range.
        """
        for name, target, ids in _row_sparse.requests(key, out, row_ids):
            self._check_shape(target, self._shape(name, "row_sparse_pull"), "row_sparse_pull of key %r" % (name,))
            rows, values = self._store.pull_rows(name, ids, priority)
            indices = np.frombuffer(rows, np.int64).copy()
            target.replace(indices, np.frombuffer(values, np.float32).reshape((indices.size,) + target.shape[1:]))

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Writes the values into `out`, in place: an array or a list of arrays per key.

        Waits until all workers' pushes of the rounds that this worker has pushed are applied. Several keys are pulled
        at once; where one array stands for several, it ends up with the last one's value. A RowSparse is left as it is
        (row_sparse_pull fills it); without `ignore_sparse` it is an InvalidArgumentError.
        """
        grouped, sparse = _row_sparse.split(_keys.group(key, out, "out"), keep_all=True)
        for name in sparse:
            self._shape(name, "pull")
            if not ignore_sparse:
                raise InvalidArgumentError("pull of key %r: expected a dense out, got a RowSparse" % (name,))
        outputs = {name: _arrays.Outputs(outs, self._shape(name, "pull"), "pull of key %r" % (name,))
                   for name, outs in grouped.items()}
        _arrays.keep_apart(list(outputs.values()))
        self._store.pull(list(outputs), [output.buffer for output in outputs.values()], priority)
        for output in outputs.values():
            output.finish()

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Pushes all values, then pulls into `out`, or into the values where it is left out."""
        targets = value if out is None else out
        for name, outs in _keys.group(key, targets, "out").items():
            _arrays.Outputs(outs, self._shape(name, "pushpull"), "pushpull of key %r" % (name,))  # before any push
        self.push(key, value, priority)
        self.pull(key, targets, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """init, then pull: `out` holds rank 0's values everywhere."""
        self.init(key, value)
        self.pull(key, out, priority)

    def push_nothing(self, key: Any) -> None:
        """This worker contributes nothing to the keys' next round, which need not wait for it."""
        for name in key if _keys.is_list(key) else [key]:
            name = _keys.as_key(name)
            self._shape(name, "push_nothing")
            self._store.push_nothing(name)

    # ---- how gradients are treated --------------------------------------------------------------

    def set_optimizer(self, optimizer: Any) -> None:
        """The servers step by it: one update per round, with the sum over workers and devices.

        `optimizer` is one of slimps.optimizer, or a torch.optim.SGD, Adam or AdamW, of which the options are read.
        Collective: every worker calls it alike, before or after init, repeatedly; rank 0's counts, from the next round
        on. Once rounds have begun the kind stays as it is (FailedPreconditionError), its numbers may change.
        """
        self._store.set_optimizer(_optimizer.from_any(optimizer).spec())

    def save_optimizer_states(self, fname: str) -> None:
        """Writes what the servers' optimizer keeps (momentum, moments, counts) to a file, whole or not at all.

        Collective; each worker writes the same content under its own `fname`. The weights are not in it.
        """
        content = self._store.save_optimizer_states()
        draft = "%s.%d.%d" % (fname, self.rank, os.getpid())
        try:
            with open(draft, "wb") as out:
                out.write(content)
            os.replace(draft, fname)
        finally:
            if os.path.exists(draft):
                os.remove(draft)

    def load_optimizer_states(self, fname: str) -> None:
        """Puts it back, into a job whose keys have the same names and sizes, before the next push. Collective."""
        with open(fname, "rb") as saved:
            content = saved.read()
        self._store.load_optimizer_states(content)

    def set_updater(self, updater: Optional[Callable[[_keys.Key, Any, Any], None]]) -> None:
        """Local stores: `updater(key, gradient, weight)` in an optimizer's place, once per push and key.

        It gets the key as it was given, the summed push and the weight, numpy arrays of float32 in the key's shape that
        end with the call, and changes the weight in place. It must not call the store; what it raises, push raises.
        None: pushes replace values again. Raises UnimplementedError: a distributed store.
        """
        if updater is None:
            self._store.set_updater(None)
            return

        def call(name: str, gradient: memoryview, weight: memoryview) -> None:
            key: _keys.Key = int(name[2:]) if name.startswith("i:") else name[2:]
            shape = self._shapes[key]
            updater(key, np.asarray(gradient).reshape(shape), np.asarray(weight).reshape(shape))

        self._store.set_updater(call)

    def set_gradient_compression(self, compression_params: Union[str, Mapping[str, Any]]) -> None:
        """Compresses pushes from now on; on every worker alike, before the first push.

        A dict with "type" is MXNet's ({"type": "2bit", "threshold": 0.5}): every key is compressed, and float16 pushes
        are refused. One with "compressor_type" is BytePS's; a str is a codec spec, as create's `compression`.
        """
        if isinstance(compression_params, str):
            self._store.set_compression(compression_params)
            self._refuses_half = False
            return
        if not isinstance(compression_params, Mapping):
            raise InvalidArgumentError("compression_params: expected a dict or a str, got %s"
                                       % type_name(compression_params))
        self._store.set_compression_dictionary({str(name): str(value) for name, value in compression_params.items()})
        self._refuses_half = "type" in compression_params

    # ---- the job --------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Waits until all workers have come here."""
        self._store.barrier()

    def wait(self) -> None:
        """Waits until the servers have everything that was pushed."""
        self._store.wait()

    def leave(self) -> None:
        """Rounds from the next on are complete without this worker, whose data is used up; it can still pull."""
        self._store.leave()

    def totals(self) -> Dict[str, float]:
        """Of this worker since create: bytes_pushed and bytes_pulled (payloads), and seconds by stage."""
        return self._store.totals()

    def close(self) -> None:
        """Waits for pushes under way and says goodbye; a second time it does nothing."""
        _open_stores.discard(self)
        self._store.close()

    def abort(self, why: str) -> None:
        """This worker cannot go on: everyone in the job is told why, and the job ends."""
        self._store.abort(why)

    def __enter__(self) -> "KVStore":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is None:
            self.close()
        else:
            _abort_for(self, error)

    # ---- inside ---------------------------------------------------------------------------------

    def _shape(self, name: _keys.Key, what: str) -> Any:
        self._kind.check([name])
        try:
            return self._shapes[name]
        except KeyError:
            raise NotFoundError("%s: key %r was never initialised" % (what, name)) from None

    def _device_gradients(self, key: Any, value: Any) -> Dict[_keys.Key, List[Any]]:
        """The packed arrays of each key, one per device, all checked before any is pushed."""
        gradients: Dict[_keys.Key, List[Any]] = {}
        for name, values in _keys.group(key, value, "value").items():
            what = "push of key %r" % (name,)
            shape = self._shape(name, "push")
            if self._refuses_half:
                self._refuse_half(values, what)
            arrays = [_arrays.as_numpy(one, what) for one in values]
            for array in arrays:
                self._check_shape(array, shape, what)
            gradients[name] = [_arrays.packed(array) for array in arrays]
        return gradients

    @staticmethod
    def _check_shape(array: Any, shape: Any, what: str) -> None:
        if array.shape != shape:
            raise InvalidArgumentError("%s: expected shape %s, as it was initialised, got %s"
                                       % (what, shape, array.shape))

    def _gradients(self, key: Any, value: Any) -> Dict[_keys.Key, Any]:
        """One packed array per key, all checked before any is pushed."""
        gradients: Dict[_keys.Key, Any] = {}
        for name, values in _keys.group(key, value, "value").items():
            what = "push of key %r" % (name,)
            shape = self._shape(name, "push")
            if self._refuses_half:
                self._refuse_half(values, what)
            array = _arrays.summed(values, what)
            self._check_shape(array, shape, what)
            gradients[name] = _arrays.packed(array)
        return gradients

    @staticmethod
    def _refuse_half(values: List[Any], what: str) -> None:
        for value in values:
            if _arrays.as_numpy(value, what).dtype.itemsize == 2:
                raise InvalidArgumentError("%s: expected float32, got float16: gradient compression is on" % what)


def type_name(value: Any) -> str:
    return value.__class__.__name__


# ---- when Python ends ---------------------------------------------------------------------------

_open_stores: "weakref.WeakSet[KVStore]" = weakref.WeakSet()


def _abort_for(store: KVStore, error: BaseException) -> None:
    """The others learn why; what went wrong here is being raised already."""
    store.abort("worker %d: %s: %s" % (store.rank, type_name(error), error))
    try:
        store.close()
    except Exception:  # pylint: disable=broad-except
        pass


def _close_all() -> None:
    """At the end of Python: nobody shall wait for a worker that is gone."""
    uncaught = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for store in list(_open_stores):
        if uncaught is not None:
            _abort_for(store, uncaught)
            continue
        try:
            store.close()
        except Exception as error:  # pylint: disable=broad-except
            print("slimps: closing the store: %s" % error, file=sys.stderr)


atexit.register(_close_all)
