"""KVStore: what slimps.kv.create makes; its module says what keys, arrays and errors are."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Type, Union

import numpy as np

from slimps import (
    _arrays, _compression, _job, _keys, _known_keys, _open_stores, _slimps, _store_optimizer, _store_types, _updater,
    _whole_file)
from slimps import optimizer as _optimizer
from slimps import row_sparse as _row_sparse
from slimps.errors import FailedPreconditionError, InvalidArgumentError


class KVStore:
    """Made by create(). Thread-safe. A context manager: closed at the end, or aborted by an exception.

    Stores that are open when Python ends, by sys.exit() too, are closed; after an exception that nobody caught, aborted.
    """

    def __init__(self, store: _slimps.Store, name: str, options: _slimps.Options,
                 job: Optional[_job.Job] = None) -> None:
        self._store = store
        self._job = job
        self._type = name
        self._kind = _store_types.resolve(name)
        self._grad_scale = options.grad_scale
        self._timeout_s = options.timeout_s
        self._compression = _compression.Compression.of(options.compression)
        self._keys = _known_keys.KnownKeys()
        self._optimizer = _store_optimizer.StoreOptimizer()
        _open_stores.add(self)

    # ---- who this is ----------------------------------------------------------------------------

    @property
    def type(self) -> str:
        """As it was asked for."""
        return self._type

    @property
    def job(self) -> Optional[_job.Job]:
        """That it belongs to; None: a local store."""
        return self._job

    @property
    def is_local(self) -> bool:
        """Of this process alone, without a job."""
        return self._kind in _store_types.LOCAL

    @property
    def has_rounds(self) -> bool:
        """Whether the servers join all workers' pushes of a round."""
        return self._kind in _store_types.ROUNDS

    @property
    def rank(self) -> int:
        """This worker's, from 0."""
        return self._store.rank

    @property
    def num_workers(self) -> int:
        return self._store.num_workers

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def is_capable(self, capability: str) -> bool:
        """Whether the store can do something: "optimizer", that the servers can step."""
        return self._store.is_capable(capability.lower())

    @property
    def codec_has_momentum(self) -> bool:
        """Whether the codec of pushes applies momentum itself, as dgc does: an optimizer's would come on top."""
        return self._compression.momentum

    @property
    def unscale(self) -> float:
        """What an optimizer's rescale_grad undoes grad_scale by; 1 where servers count signs, which have no scale."""
        return 1.0 if self._compression.counts_signs else 1.0 / self._grad_scale

    # ---- tensors --------------------------------------------------------------------------------

    def init(self, key: Any, value: Any, layer: Any = None) -> None:
        """Makes keys, of an array or RowSparse each. Collective: all workers call it alike; rank 0's values count.

        Of a list of arrays, one per device, the first counts. `layer`, for one or each of the keys, says what codecs
        that treat layers differently (adacomp) take it for: "convolution", "dense", "recurrent", "embedding",
        "normalisation", "other"; None: what has more than two dimensions is a convolution.

        Returns when they can be pulled. Never compressed. NaN and infinity are refused.
        Raises AlreadyExistsError: a second init.
        """
        new = self._keys.to_init(key, value, layer)
        self._store.init(new.names, [list(shape) for shape in new.shapes], new.values, new.halves, new.layers)
        self._keys.add(dict(zip(new.names, new.shapes)))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Gives this worker's gradients to its next round; returns when the arrays may be reused.

        Without an optimizer the sum over workers replaces the value; with one, the servers step by it. Of keys with
        different `priority`, the higher goes first. A key that stands several times is summed, as devices are.
        Raises InvalidArgumentError: another shape than a key's, nothing was sent; NaN or infinity, nothing of that key
        and of those behind it was sent.
        """
        if self._is_as_it_goes(key, value):
            self._check_pushed(key)
            self._store.push(key, [value], priority)
            return
        dense, sparse = _row_sparse.split(_keys.group(key, value, "value"))
        for name, gradient in sparse.items():
            _arrays.check_shape(gradient, self._check_pushed(name), "push of key %r" % (name,))
        gradients = self._gradients(dense)
        for name, gradient in sparse.items():
            self._store.push_rows(name, gradient.indices, _arrays.packed(gradient.rows), priority)
        for name, devices in gradients.items():
            self._store.push(name, devices, priority)

    def row_sparse_pull(self, key: Any, out: Any, priority: int = 0, row_ids: Any = None) -> None:
        """Replaces what each RowSparse `out` holds by the rows `row_ids` of the key, sorted, each once.

        Ids may repeat and stand in any order. One array of ids may serve all keys and outputs, or there is one for each
        key, for each key a list with one for each of its outputs, or one for each output. Waits as pull does.
        Raises InvalidArgumentError: a dense `out`, an id out of range.
        """
        wanted = list(_row_sparse.requests(key, out, row_ids))
        for name, target, _ in wanted:
            _arrays.check_shape(target, self._keys.shape(name, "row_sparse_pull"), "row_sparse_pull of key %r" % (name,))
        pulled = [self._store.pull_rows(name, ids, priority) for name, _, ids in wanted]
        for (_, target, _), (rows, values) in zip(wanted, pulled):
            indices = np.frombuffer(rows, np.int64).copy()
            target.replace(indices, np.frombuffer(values, np.float32).reshape((indices.size,) + target.shape[1:]))

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Writes the values into `out`, in place: an array or a list of arrays per key.

        Waits until all workers' pushes of the rounds that this worker has pushed are applied. Several keys are pulled
        at once; where one array stands for several, it ends up with the last one's value. A RowSparse is left as it is
        (row_sparse_pull fills it); without `ignore_sparse` a local store puts all rows into it, and for a distributed
        one it is an InvalidArgumentError.
        """
        outputs, sparse = self._keys.outputs(key, out, "pull")
        if sparse and not ignore_sparse:
            if not self.is_local:
                raise InvalidArgumentError("pull of key %r: expected a dense out, got a RowSparse" % (sparse[0][0],))
            self._pull_all_rows(sparse, priority)
        self._store.pull(list(outputs), [output.buffer for output in outputs.values()], priority)
        for output in outputs.values():
            output.finish()

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Pushes the values and pulls into `out`, or into the values where it is left out.

        A list of keys is one call, in which each is pulled as soon as it is pushed. All values are read before they are
        written to. Raises as push and pull do; the keys before one that is refused have been pushed and pulled.
        """
        targets = value if out is None else out
        outputs, _ = self._keys.outputs(key, targets, "pushpull")  # checked before any push
        dense, sparse = _row_sparse.split(_keys.group(key, value, "value"))
        if len(dense) < 2 or sparse or list(outputs) != list(dense) or self.is_local:
            self.push(key, value, priority)
            self.pull(key, targets, priority)
            return
        gradients = self._gradients(dense)
        self._store.push_pull(list(gradients), list(gradients.values()), [output.buffer for output in outputs.values()], priority)
        for output in outputs.values():
            output.finish()

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """init, then pull: `out` holds rank 0's values everywhere, all rows of them where it is a RowSparse."""
        self.init(key, value)
        self.pull(key, out, priority)
        self._pull_all_rows(self._keys.outputs(key, out, "broadcast")[1], priority)

    def push_nothing(self, key: Any) -> None:
        """This worker contributes nothing to the keys' next round, which need not wait for it."""
        names = [_keys.as_key(name) for name in (key if _keys.is_list(key) else [key])]
        for name in names:
            self._check_pushed(name)
        for name in names:
            self._store.push_nothing(name)

    # ---- how gradients are treated --------------------------------------------------------------

    def set_optimizer(self, optimizer: Any) -> None:
        """The servers step by it: one update per round, with the sum over workers and devices.

        `optimizer` is one of slimps.optimizer, or a torch.optim.SGD, Adam or AdamW, of which the options are read.
        Collective: every worker calls it alike, before or after init, repeatedly; rank 0's counts, from the next round
        on (where rounds have begun: between a pull and the next push); another kind begins with no momentum. Raises
        FailedPreconditionError: there is one for all keys, and a DistributedOptimizer or CommHookState of this store
        has set another.
        """
        self.set_optimizer_spec(_optimizer.from_any(optimizer).spec())

    def set_optimizer_spec(self, spec: _slimps.OptimizerSpec, relying: str = "") -> None:
        """As set_optimizer, of what an Optimizer's spec() says. `relying`: who needs it to stay as it is."""
        self._optimizer.check(spec, relying or "set_optimizer", bool(relying))
        self._store.set_optimizer(spec)
        self._optimizer.settle(spec, relying)

    def optimizer_states(self) -> bytes:
        """What save_optimizer_states writes."""
        return self._store.save_optimizer_states()

    def put_optimizer_states(self, content: bytes) -> None:
        """As load_optimizer_states, of optimizer_states()."""
        self._store.load_optimizer_states(content)

    def residuals(self) -> bytes:
        """What the codecs keep of this worker's gradients between pushes, after all pushes so far."""
        return self._store.save_residuals()

    def put_residuals(self, content: bytes) -> None:
        """Puts residuals() of the same rank back, into a job with the same keys, before the next push."""
        self._store.load_residuals(content)

    def save_optimizer_states(self, fname: str) -> None:
        """Writes what the servers' optimizer keeps (momentum, moments, counts) to a file, whole or not at all.

        Collective; each worker writes the same content under its own `fname`. Neither the weights are in it nor how
        far a learning-rate schedule is: slimps.lr_scheduler's `begin_update` says that.
        """
        _whole_file.write(fname, self.optimizer_states(), "%d.%d" % (self.rank, os.getpid()))

    def load_optimizer_states(self, fname: str) -> None:
        """Puts it back, into a job whose keys have the same names and sizes, before the next push. Collective."""
        with open(fname, "rb") as saved:
            self.put_optimizer_states(saved.read())

    def set_updater(self, updater: Optional[_updater.Updater]) -> None:
        """Local stores: `updater(key, gradient, weight)` in an optimizer's place, once per push and key.

        It gets the key as it was given, the summed push and the weight, numpy arrays of float32 in the key's shape, and
        changes the weight in place. It must not call the store; what it raises, push raises, and nothing has changed.
        None: pushes replace values again. Raises UnimplementedError: a distributed store.
        """
        shapes = self._keys.shapes  # not the store: nobody would see that cycle
        self._store.set_updater(None if updater is None else _updater.over_shapes(updater, shapes))

    def set_gradient_compression(self, compression_params: Union[str, Mapping[str, Any]]) -> None:
        """Compresses pushes from now on; on every worker alike, before the first push.

        A dict with "type" is MXNet's ({"type": "2bit", "threshold": 0.5}): every key is compressed, and float16 pushes
        are refused. One with "compressor_type" is BytePS's; a str is a codec spec, as create's `compression`.
        """
        self._compression = _compression.put(compression_params, self._store)

    # ---- the job --------------------------------------------------------------------------------

    def pull_then(self, key: Any, out: Any, done: Callable[[Optional[Exception]], None], priority: int = 0) -> None:
        """As pull, but returns at once: `done(None)` or `done(exception)` is called by another thread.

        `out` must be packed float32, one array per key, and must stay as it is until then; `done` must not wait for the
        store.
        """
        names, arrays = [], []
        for name, one in _keys.pair(key, out, "out"):
            array = _arrays.to_write(one, self._keys.shape(name, "pull"), "pull of key %r" % (name,))
            names.append(name)
            arrays.append(array)
        self._store.pull_then(names, arrays, priority, done)

    def exchange(self, names: List[str], layers: List[str], arrays: List[Any], spec: _slimps.OptimizerSpec,
                 settings: _slimps.ExchangeSettings) -> _slimps.Exchange:
        """Makes the keys `names` a model's parameters, whose memory is `arrays`; `layers` as init's. Collective.

        Raises FailedPreconditionError: the store has an optimizer that differs by more than its rates.
        """
        self._keys.check(names)
        self._optimizer.check(spec, "a DistributedOptimizer")
        made = _slimps.Exchange(self._store, names, [list(array.shape) for array in arrays], layers, arrays, spec,
                                settings)
        self._optimizer.settle(spec, "a DistributedOptimizer")
        self._keys.add({name: array.shape for name, array in zip(names, arrays)})
        return made

    def all_reduce_sum(self, values: List[float]) -> List[float]:
        """The sums of the workers' numbers, by way of the scheduler: for a few. A barrier too."""
        return self._store.all_reduce_sum(values)

    def has_key(self, key: Any) -> bool:
        """Whether this worker has initialised it."""
        return key in self._keys.shapes

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

    def decision(self) -> Optional[Dict[str, Any]]:
        """What is compressed, the same on all workers; None: "auto" has not decided yet, or there is no compression.

        `codec` for tensors of at least `threshold_bytes` (None: compression pays for none), the same of pulls, and the
        `table` behind it, empty where the threshold was given: per `direction` and tensor size `bytes` the means of
        t_c_ms (raw, on the wire), t_cq_ms (compressed, on the wire) and t_pq_ms (encoding and decoding). Compression
        pays where t_c > t_cq + t_pq.
        """
        return self._store.decision()

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
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            _open_stores.abort_for(self, error)

    # MXNet's scripts call these two so.
    _barrier = barrier
    _set_updater = set_updater

    # ---- inside ---------------------------------------------------------------------------------

    def _pull_all_rows(self, sparse: _known_keys.Sparse, priority: int) -> None:
        for name, target in sparse:
            self.row_sparse_pull(name, target, priority, row_ids=np.arange(target.shape[0]))

    def _is_as_it_goes(self, key: Any, value: Any) -> bool:
        """Whether they are a key and its one array as C++ takes them, so that nothing has to be brought into form."""
        shape = self._keys.shapes.get(key) if type(key) is str or type(key) is int else None
        return shape is not None and _arrays.is_packed(value, shape)

    def _check_pushed(self, name: _keys.Key) -> Any:
        """The shape of a key that can be pushed to."""
        shape = self._keys.shape(name, "push")
        if self._kind in _store_types.PUSH_BY_PUSH and not self._optimizer.is_set:
            raise FailedPreconditionError("push of key %r: a %s store steps with each push and keeps no sums; expected "
                                          "set_optimizer before" % (name, self._type))
        return shape

    def _gradients(self, dense: Mapping[_keys.Key, List[Any]]) -> Dict[_keys.Key, List[np.ndarray]]:
        """Packed arrays of each key, one per device, all checked."""
        half = not self._compression.refuses_half
        packed = {}
        for name, values in dense.items():
            self._check_pushed(name)
            packed[name] = self._keys.packed_gradients(name, values, half)
        return packed
