# SPDX-License-Identifier: Apache-2.0
"""The exchange of a model's gradients for weights, as slimps/c_api_exchange.h has it.

    exchange = Exchange(store, names, shapes, layers, arrays, spec, settings)     # collective
    exchange.begin_step()
    exchange.on_gradient(3, gradient)
    exchange.end_step()
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from slimps.native import structs
from slimps.native.arrays import Array, address, address_to_write, place_of, shape_of
from slimps.native.library import check, lib, sized, text
from slimps.native.optimizer import Optimizer, OptimizerSpec
from slimps.native.store import Store


@dataclasses.dataclass
class ExchangeSettings:
    backup_model: bool = False  # a step begins with this worker's own step
    local_lr: Optional[float] = None  # of that step, above 0; None: the optimizer's
    skip_non_finite: bool = False  # False: NaN and infinity end the step with an error
    timeout_s: float = 60.0  # of one wait for weights


class Exchange:
    """The exchange of a model. One thread at a time may use it.

    arrays  the parameters' own memory, which holds the weights

    Every method raises the exception of a failed status. Methods that wait end on Ctrl-C, which
    aborts the store.
    """

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        layers: Sequence[str],
        arrays: Sequence[np.ndarray],
        spec: OptimizerSpec,
        settings: ExchangeSettings,
    ) -> None:
        self._process = os.getpid()
        self._store = store
        self._call = store.new_call()
        self._exchange = c_void_p()
        self._gradients: List[Array] = []  # of this step
        extents = [shape_of(shape) for shape in shapes]
        parameters = (structs.Parameter * len(names))(
            *(
                structs.Parameter(
                    sizeof(structs.Parameter),
                    text(name, "parameter"),
                    ctypes.addressof(shape),
                    len(shape),
                    address_to_write(array),
                    structs.LAYERS.index(layer),
                )
                for name, shape, layer, array in zip(names, extents, layers, arrays)
            )
        )
        store.keep(arrays)  # a pull may still be under way when the exchange is gone
        optimizer = Optimizer(spec)
        given = structs.ExchangeSettings(
            sizeof(structs.ExchangeSettings),
            settings.backup_model,
            settings.skip_non_finite,
            settings.local_lr or 0.0,
            settings.timeout_s,
        )
        self._run(
            lib.slimps_exchange_create,
            self._call.handle,
            parameters,
            len(names),
            optimizer.pointer,
            byref(given),
            byref(self._exchange),
            lent=(extents, optimizer),
        )

    def begin_step(self) -> None:
        self._run(lib.slimps_exchange_begin_step, self._exchange)

    def on_gradient(self, index: int, gradient: Array) -> None:
        """Pushes one parameter's gradient, which must not change until end_step."""
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
        try:
            self._run(lib.slimps_exchange_end_step, self._exchange, lent=self._gradients)
        except BaseException:
            self._store.keep(self._gradients)  # the library may still read them
            raise
        finally:
            self._gradients = []

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
