# SPDX-License-Identifier: Apache-2.0
"""KVStore, which slimps.kv.create returns. slimps.kv's docstring tells keys, arrays and errors."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Type

import numpy as np

from slimps import _arrays, _checkpoint, _job, _keys, _known_keys, _open_stores, _options
from slimps import _trace, native
from slimps import row_sparse as _row_sparse
from slimps.errors import FailedPreconditionError, InvalidArgumentError


class KVStore(_checkpoint.Checkpointed):
    """A worker's connection to the parameter servers; slimps.kv.create() makes it. Thread-safe.

    As a context manager it closes the store at the end, and aborts it if an exception leaves the
    block. When Python ends (also by sys.exit()), stores that are still open are closed; after an
    uncaught exception they are aborted.
    """

    def __init__(
        self,
        store: native.Store,
        name: str,
        options: native.Options,
        job: Optional[_job.Job] = None,
    ) -> None:
        super().__init__(store, name, options, job)
        _open_stores.add(self)

    # ---- tensors --------------------------------------------------------------------------------

    def init(self, key: Any, value: Any, layer: Any = None) -> None:
        """Creates keys, each with the shape and values of an array or a RowSparse.

        Collective: all workers call it with equal keys and shapes; rank 0's values count. Returns
        when the keys can be pulled. The values are never compressed. If a value is a list of
        arrays, one per device, the first one counts.

        layer  one str for all keys, or a list with one per key: the kind of layer, for codecs that
               treat layers differently (adacomp). One of "convolution", "dense", "recurrent",
               "embedding", "normalisation", "other". None: by the shape (more than two dimensions:
               convolution; two: dense; one: other)

        Raises
            AlreadyExistsError: the key was initialised before.
            InvalidArgumentError: a value is NaN or infinite, or a layer is unknown.
        """
        new = self._keys.to_init(key, value, layer)
        self._store.init(
            new.names, [list(shape) for shape in new.shapes], new.values, new.halves, new.layers
        )
        self._keys.add(dict(zip(new.names, new.shapes)))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Gives this worker's gradients to its next round; returns when the arrays may be reused.

        Without an optimizer, the sum over the workers replaces the key's value. With one, the
        servers make a step with the sum. Keys with a higher `priority` are sent first. If a key is
        listed several times, its arrays are summed, as several devices' arrays are.

        Raises
            InvalidArgumentError: an array does not have its key's shape; nothing was sent.
            InvalidArgumentError: an array has a NaN or infinity; that key and the keys behind it
                were not sent.
            FailedPreconditionError: dist_async or dist_ssp without an optimizer.
        """
        if self._is_as_it_goes(key, value):
            self._check_pushed(key)
            self._store.push_one(key, value, priority)
            return
        dense, sparse = _row_sparse.split(_keys.group(key, value, "value"))
        for name, gradient in sparse.items():
            _arrays.check_shape(gradient, self._check_pushed(name), "push of key %r" % (name,))
        gradients = self._gradients(dense)
        for name, gradient in sparse.items():
            self._store.push_rows(name, gradient.indices, _arrays.packed(gradient.rows), priority)
        if gradients:
            self._store.push(list(gradients), list(gradients.values()), priority)

    def row_sparse_pull(self, key: Any, out: Any, priority: int = 0, row_ids: Any = None) -> None:
        """Pulls the rows `row_ids` of the keys into RowSparse `out`, and waits as pull does.

        Afterwards `out` holds these rows only, sorted by id, each once. Ids may be unsorted and may
        repeat. `row_ids` is one array for all keys and outputs, or a list: one array per key, or
        per key a list with one array per output, or one array per output.

        Raises
            InvalidArgumentError: `out` is dense, or an id is out of range.
        """
        wanted = list(_row_sparse.requests(key, out, row_ids))
        for name, target, _ in wanted:
            _arrays.check_shape(
                target,
                self._keys.shape(name, "row_sparse_pull"),
                "row_sparse_pull of key %r" % (name,),
            )
        pulled = [
            self._store.pull_rows(name, ids, int(np.prod(target.shape[1:])), priority)
            for name, target, ids in wanted
        ]
        for (_, target, _), (indices, values) in zip(wanted, pulled):
            target.replace(indices, values.reshape((indices.size,) + target.shape[1:]))

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Writes the keys' values into `out`, in place: an array or a list of arrays per key.

        Waits until the rounds that this worker has pushed are complete, with all workers' pushes,
        and applied. Several keys are pulled at once. An array that is listed for several keys ends
        up with the last key's value.

        ignore_sparse  True: a RowSparse in `out` is left as it is (row_sparse_pull fills it).
                       False: a local store fills it with all rows

        Raises
            InvalidArgumentError: an array does not have its key's shape or cannot be written to, or
                ignore_sparse is False and `out` holds a RowSparse of a distributed store.
        """
        outputs, sparse = self._keys.outputs(key, out, "pull")
        if sparse and not ignore_sparse:
            if not self.is_local:
                raise InvalidArgumentError(
                    "pull of key %r: expected a dense out, got a RowSparse" % (sparse[0][0],)
                )
            self._pull_all_rows(sparse, priority)
        self._store.pull(list(outputs), [output.buffer for output in outputs.values()], priority)
        for output in outputs.values():
            output.finish()

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Pushes the values, then pulls into `out`; without `out`, into the values themselves.

        With a list of keys, each key is pulled as soon as it is pushed. A value is never
        overwritten before it has been read. Raises what push and pull raise; if one key is refused,
        the keys before it have been pushed and pulled.
        """
        targets = value if out is None else out
        outputs, _ = self._keys.outputs(key, targets, "pushpull")  # checked before any push
        dense, sparse = _row_sparse.split(_keys.group(key, value, "value"))
        if sparse or list(outputs) != list(dense) or self.is_local:
            self.push(key, value, priority)
            self.pull(key, targets, priority)
            return
        gradients = self._gradients(dense)
        self._store.push_pull(
            list(gradients),
            list(gradients.values()),
            [output.buffer for output in outputs.values()],
            priority,
        )
        for output in outputs.values():
            output.finish()

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Calls init, then pull: on every worker, `out` then holds rank 0's values.

        A RowSparse `out` gets all rows. Collective. Raises what init and pull raise.
        """
        self.init(key, value)
        self.pull(key, out, priority)
        self._pull_all_rows(self._keys.outputs(key, out, "broadcast")[1], priority)

    def push_nothing(self, key: Any) -> None:
        """Contributes nothing to the keys' next round, which then does not wait for this worker."""
        names = [_keys.as_key(name) for name in (key if _keys.is_list(key) else [key])]
        for name in names:
            self._check_pushed(name)
        for name in names:
            self._store.push_nothing(name)

    # ---- the job --------------------------------------------------------------------------------

    def pull_then(
        self, key: Any, out: Any, done: Callable[[Optional[Exception]], None], priority: int = 0
    ) -> None:
        """Starts a pull and returns; later another thread calls `done(None)` or `done(exception)`.

        If nothing has to be waited for, `done` may be called before this method returns. `done`
        must not wait for the store. `out` is one contiguous float32 array per key, which the caller
        must neither read nor change until `done` is called.
        """
        names, arrays = [], []
        for name, one in _keys.pair(key, out, "out"):
            array = _arrays.to_write(
                one, self._keys.shape(name, "pull"), "pull of key %r" % (name,)
            )
            names.append(name)
            arrays.append(array)
        self._store.pull_then(names, arrays, priority, done)

    def exchange(
        self,
        names: List[str],
        layers: List[str],
        arrays: List[Any],
        are_spare: List[bool],
        spec: native.OptimizerSpec,
        settings: native.ExchangeSettings,
    ) -> native.Exchange:
        """Creates the keys `names` for a model's parameters. Collective.

        `layers` has one kind of layer per key, as init's `layer`. The weights are written to
        `arrays`: the parameters' memory, or spare memory.

        Raises
            FailedPreconditionError: the store has another optimizer, which differs in more than
                learning rate and weight decay.
        """
        self._keys.check(names)
        self._optimizer.check(spec, "a DistributedOptimizer")
        made = native.Exchange(
            self._store,
            names,
            [list(array.shape) for array in arrays],
            layers,
            arrays,
            are_spare,
            spec,
            settings,
        )
        self._optimizer.settle(spec, "a DistributedOptimizer")
        self._keys.add({name: array.shape for name, array in zip(names, arrays)})
        return made

    def all_reduce_sum(self, values: List[float]) -> List[float]:
        """Returns the sums of all workers' numbers, element by element. Collective; also a barrier.

        The numbers go through the scheduler, so pass only a few.
        """
        return self._store.all_reduce_sum(values)

    def broadcast_bytes(self, arrays: List[np.ndarray]) -> List[bool]:
        """Makes arrays of bytes on all workers equal to rank 0's, in place. Collective.

        Only arrays that differ on some worker travel, and no server keeps them. Returns which of
        this worker's were written.

        arrays  contiguous arrays of uint8, equally long on all workers

        Raises
            InvalidArgumentError: an array is something else, or rank 0's has another size.
        """
        for i, array in enumerate(arrays):
            if array.dtype != np.uint8 or not array.flags.c_contiguous or not array.flags.writeable:
                raise InvalidArgumentError(
                    "broadcast_bytes: array %d: expected contiguous uint8 that can be written to, "
                    "got %s with strides %s" % (i, array.dtype, array.strides)
                )
        return self._store.broadcast_bytes(arrays)

    def has_key(self, key: Any) -> bool:
        """True if this worker has initialised the key."""
        return key in self._keys.shapes

    def barrier(self) -> None:
        """Waits until all workers have called barrier()."""
        self._store.barrier()

    def wait(self) -> None:
        """Waits until the servers have everything that was pushed."""
        self._store.wait()

    def leave(self) -> None:
        """Leaves the rounds, for a worker whose data is used up: the next ones do not wait for it.

        The worker can still pull.
        """
        self._store.leave()

    def close(self) -> None:
        """Waits for pushes under way and leaves the job. A second call does nothing."""
        _open_stores.discard(self)
        try:
            self._store.close()
        finally:
            _trace.finish(self._job, self.rank)

    def abort(self, why: str) -> None:
        """Ends the job because this worker cannot go on; every node is told `why`."""
        self._store.abort(why)

    def __enter__(self) -> "KVStore":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            _open_stores.abort_for(self, error)

    # MXNet's scripts call it by its private name.
    _barrier = barrier

    # ---- inside ---------------------------------------------------------------------------------

    def _pull_all_rows(self, sparse: _known_keys.Sparse, priority: int) -> None:
        for name, target in sparse:
            self.row_sparse_pull(name, target, priority, row_ids=np.arange(target.shape[0]))

    def _is_as_it_goes(self, key: Any, value: Any) -> bool:
        """True for one key with one array that C++ takes without conversion."""
        shape = self._keys.shapes.get(key) if type(key) is str or type(key) is int else None
        return shape is not None and _arrays.is_packed(value, shape)

    def _check_pushed(self, name: _keys.Key) -> Any:
        """Returns the key's shape.

        NotFoundError: the key was never initialised.
        FailedPreconditionError: the store steps with each push and has no optimizer.
        """
        shape = self._keys.shape(name, "push")
        if self._kind in _options.PUSH_BY_PUSH and not self._optimizer.is_set:
            raise FailedPreconditionError(
                "push of key %r: a %s store steps with each push and keeps no sums; expected "
                "set_optimizer before" % (name, self._type)
            )
        return shape

    def _gradients(self, dense: Mapping[_keys.Key, List[Any]]) -> Dict[_keys.Key, List[Any]]:
        """Returns each key's gradients as packed arrays, one per device, after checking all."""
        half = not self._compression.refuses_half
        packed = {}
        for name, values in dense.items():
            self._check_pushed(name)
            packed[name] = self._keys.packed_gradients(name, values, half)
        return packed
