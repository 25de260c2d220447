# SPDX-License-Identifier: Apache-2.0
"""The exchange of a model's gradients for weights, as slimps/c_api_exchange.h has it.

    exchange = Exchange(store, names, shapes, layers, arrays, spec, settings)     # collective
    exchange.begin_step()
    exchange.on_gradient(3, gradient)
    exchange.end_step()
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import os
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

import numpy as np

from slimps.native import structs
from slimps.native.arrays import Array, address, address_to_write, place_of, shape_of
from slimps.native.gpu_array import GpuArray
from slimps.native.library import check, lib, sized, text
from slimps.native.optimizer import Optimizer, OptimizerSpec
from slimps.native.store import Store


@dataclasses.dataclass
class ExchangeSettings:
    backup_model: bool = False  # a step begins with this worker's own step
    local_lr: Optional[float] = None  # of that step, above 0; None: the optimizer's
    skip_non_finite: bool = False  # False: NaN and infinity end the step with an error
    timeout_s: float = 0.0  # of one wait for weights; 0: a little longer than the store's
    overlap_forward: bool = False  # end_step does not wait for weights, await_weights does
    clip_norm: Optional[float] = None  # bound on the mean gradient's norm, above 0; None: none


@dataclasses.dataclass
class Clipping:
    norm: float = 0.0  # of the newest mean gradient, before clipping
    scale: float = 1.0  # what it was multiplied by; 0: the step was skipped
    skipped_steps: int = 0  # whose norm was not finite


class Exchange:
    """The exchange of a model. One thread at a time may use it.

    arrays     where weights are written: the parameters' own memory, or spare memory
    are_spare  which are spare: nobody reads them between begin_step and end_step, so that weights
               are written there as soon as they come

    Every method raises the exception of a failed status. Methods that wait end on Ctrl-C, which
    aborts the store.
    """

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        layers: Sequence[str],
        arrays: Sequence[Array],
        are_spare: Sequence[bool],
        spec: OptimizerSpec,
        settings: ExchangeSettings,
    ) -> None:
        self._process = os.getpid()
        self._store = store
        self._call = store.new_call()
        self._exchange = c_void_p()
        self._gradients: List[Array] = []  # of this step, on the host
        # On GPUs, in the order of their pushes: those that the library may still read.
        self._on_loan: Deque[Tuple[int, GpuArray]] = collections.deque()
        extents = [shape_of(shape) for shape in shapes]
        places = [place_of(array) for array in arrays]
        parameters = (structs.Parameter * len(names))(
            *(
                structs.Parameter(
                    sizeof(structs.Parameter),
                    text(name, "parameter"),
                    ctypes.addressof(shape),
                    len(shape),
                    address_to_write(array),
                    structs.LAYERS.index(layer),
                    is_spare,
                    ctypes.addressof(place),
                )
                for name, shape, layer, array, is_spare, place in zip(
                    names, extents, layers, arrays, are_spare, places
                )
            )
        )
        self._memory = dict(enumerate(arrays))
        store.keep(self._memory)  # a call may still be under way when the exchange is gone
        optimizer = Optimizer(spec)
        given = structs.ExchangeSettings(
            sizeof(structs.ExchangeSettings),
            settings.backup_model,
            settings.skip_non_finite,
            settings.local_lr or 0.0,
            settings.timeout_s,
            settings.clip_norm or 0.0,
            settings.overlap_forward,
        )
        self._run(
            lib.slimps_exchange_create,
            self._call.handle,
            parameters,
            len(names),
            optimizer.pointer,
            byref(given),
            byref(self._exchange),
            lent=(extents, places, optimizer),
        )

    def begin_step(self) -> None:
        self._run(lib.slimps_exchange_begin_step, self._exchange)

    def on_gradient(self, index: int, gradient: Array) -> None:
        """Pushes one parameter's gradient, which must not change until end_step.

        One on a GPU is kept until the library has read it.
        """
        self._release_read()
        if isinstance(gradient, GpuArray):
            self._on_loan.append((index, gradient))
        else:
            self._gradients.append(gradient)
        self._run(
            lib.slimps_exchange_gradient_at,
            self._exchange,
            index,
            address(gradient),
            gradient.size,
            byref(place_of(gradient)),
            lent=gradient,
        )

    def on_rows(self, index: int, rows: np.ndarray, values: np.ndarray) -> None:
        """Pushes some rows of one parameter's gradient, which is zero elsewhere.

        `rows` is contiguous int64; `values` has row after row. Neither may change until end_step.
        """
        self._gradients += rows, values
        self._run(
            lib.slimps_exchange_rows,
            self._exchange,
            index,
            rows.ctypes.data,
            rows.size,
            address(values),
            values.size,
            lent=(rows, values),
        )

    def end_step(self) -> None:
        lent = self._gradients, self._on_loan
        try:
            self._run(lib.slimps_exchange_end_step, self._exchange, lent=lent)
        except BaseException:
            self._store.keep(lent)  # the library may still read them
            raise
        finally:
            self._gradients, self._on_loan = [], collections.deque()

    def await_weights(self, index: int) -> None:
        """Waits until a parameter holds the step's weights, with overlap_forward."""
        self._run(lib.slimps_exchange_await_weights, self._exchange, index)

    def set_memory(self, indices: List[int], arrays: List[np.ndarray]) -> None:
        """Writes the weights of parameters with spare memory to `arrays` from now on.

        After begin_step or await_weights, and before their gradients.
        """
        check(
            lib.slimps_exchange_set_memory(
                self._exchange,
                (ctypes.c_size_t * len(indices))(*indices),
                (c_void_p * len(indices))(*map(address_to_write, arrays)),
                len(indices),
            )
        )
        self._memory.update(zip(indices, arrays))

    def set_hyper(
        self, index: int, learning_rate: float, weight_decay: float, momentum: float
    ) -> None:
        """Sets a parameter's numbers. `momentum` is SGD's, or beta1 of Adam and AdamW."""
        self._run(
            lib.slimps_exchange_set_hyper,
            self._exchange,
            index,
            learning_rate,
            weight_decay,
            momentum,
        )

    def set_clip_norm(self, clip_norm: Optional[float]) -> None:
        """Bounds the mean gradient's norm from the next step on. Before a step's first gradient."""
        self._run(lib.slimps_exchange_set_clip_norm, self._exchange, clip_norm or 0.0)

    def clipping(self) -> Clipping:
        """Returns what became of clipped steps; with the backup model up to the one before."""
        found, pointer = sized(structs.Clipping)
        check(lib.slimps_exchange_get_clipping(self._exchange, pointer))
        return Clipping(found.norm, found.scale, found.skipped_steps)

    def is_read(self, index: int) -> bool:
        """True if this step no longer reads a parameter's gradient, which is on a GPU."""
        found = ctypes.c_int32()
        check(lib.slimps_exchange_is_read(self._exchange, index, byref(found)))
        return found.value == 1

    def _release_read(self) -> None:
        """Frees gradients on GPUs that were read. Each GPU's are read in their order."""
        while self._on_loan and self.is_read(self._on_loan[0][0]):
            self._on_loan.popleft()

    def drain(self) -> None:
        self._run(lib.slimps_exchange_drain, self._exchange)

    def times(self) -> Dict[str, float]:
        """Returns seconds: wait_s, local_update_s and overlap_s."""
        found, pointer = sized(structs.ExchangeTimes)
        check(lib.slimps_exchange_get_times(self._exchange, pointer))
        return {name: getattr(found, name) for name in ("wait_s", "local_update_s", "overlap_s")}

    def _run(self, function: Callable[..., int], *arguments: Any, lent: Any = None) -> None:
        self._store.check_caller()
        check(self._call.run(self._store.interrupt, function, *arguments, lent=lent))

    def __del__(self, _lib: Any = lib, _getpid: Callable[[], int] = os.getpid) -> None:
        if not hasattr(self, "_gradients") or _getpid() != self._process:
            return
        if not self._call.is_under_way:
            _lib.slimps_exchange_destroy(self._exchange)
