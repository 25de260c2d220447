# SPDX-License-Identifier: Apache-2.0
"""The C++ side of slimps; use the package slimps instead.

Arrays are contiguous float32 and passed by the buffer protocol.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

class Options:
    """KVStoreOptions of worker/kvstore.h.

    `set` takes the names and texts of worker/kvstore_options.h.
    """

    compression: str
    grad_scale: float
    wanted_rank: int
    fixed_threshold_bytes: Optional[int]
    partition_bytes: int
    @property
    def timeout_s(self) -> float: ...
    def __init__(self) -> None: ...
    def set(self, name: str, value: str) -> None: ...

class Schedule:
    """LearningRateSchedule of proto/slimps.proto; `kind` is CONSTANT, STEP, COSINE or LINEAR."""

    kind: str
    warmup_rounds: int
    every: int
    factor: float
    total_rounds: int
    final_lr: float
    begin_round: int
    power: float
    def __init__(self) -> None: ...

class OptimizerSpec:
    """OptimizerSpec of proto/slimps.proto; `kind` is NONE, SGD, ADAM, ADAMW or TEST."""

    kind: str
    learning_rate: float
    momentum: float
    nesterov: bool
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    rescale_grad: float
    clip_gradient: float
    average: bool
    schedule: Schedule
    def __init__(self) -> None: ...

def are_apart(arrays: Sequence[Any]) -> bool:
    """True if no two of these contiguous float32 arrays overlap."""

class Store:
    """KVStore of worker/kvstore.h."""

    @staticmethod
    def create(type: str, options: Options) -> "Store": ...
    def init(
        self,
        keys: Sequence[Union[int, str]],
        shapes: Sequence[Sequence[int]],
        values: Sequence[Any],
        halves: Sequence[bool],
        layers: Sequence[str],
    ) -> None: ...
    def push(self, key: Union[int, str], gradients: Sequence[Any], priority: int) -> None: ...
    def push_pull(
        self,
        keys: Sequence[Union[int, str]],
        gradients: Sequence[Sequence[Any]],
        outs: Sequence[Any],
        priority: int,
    ) -> None: ...
    def push_rows(self, key: Union[int, str], rows: Any, values: Any, priority: int) -> None: ...
    def pull_rows(
        self, key: Union[int, str], row_ids: Any, priority: int
    ) -> Tuple[bytes, bytes]: ...
    def save_optimizer_states(self) -> bytes: ...
    def load_optimizer_states(self, content: bytes) -> None: ...
    def push_nothing(self, key: Union[int, str]) -> None: ...
    def pull(self, keys: Sequence[Union[int, str]], outs: Sequence[Any], priority: int) -> None: ...
    def set_optimizer(self, spec: OptimizerSpec) -> None: ...
    def set_updater(
        self, updater: Optional[Callable[[str, memoryview, memoryview], None]]
    ) -> None: ...
    def set_compression(self, codec_spec: str) -> None: ...
    def set_compression_dictionary(self, dictionary: Dict[str, str]) -> None: ...
    def pull_then(
        self,
        keys: Sequence[Union[int, str]],
        outs: Sequence[Any],
        priority: int,
        done: Callable[[Optional[Exception]], None],
    ) -> None: ...
    def save_residuals(self) -> bytes: ...
    def load_residuals(self, content: bytes) -> None: ...
    def all_reduce_sum(self, values: Sequence[float]) -> List[float]: ...
    def barrier(self) -> None: ...
    def wait(self) -> None: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...
    def abort(self, why: str) -> None: ...
    def totals(self) -> Dict[str, float]: ...
    def decision(self) -> Optional[Dict[str, Any]]: ...
    def is_capable(self, capability: str) -> bool: ...
    @property
    def rank(self) -> int: ...
    @property
    def num_workers(self) -> int: ...

class ExchangeSettings:
    """ExchangeOptions of worker/exchange/weight_exchange.h."""

    backup_model: bool
    local_lr: Optional[float]
    skip_non_finite: bool
    timeout_s: float
    def __init__(self) -> None: ...

class Exchange:
    """WeightExchange of worker/exchange/weight_exchange.h; `arrays` are the parameters' memory."""

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        layers: Sequence[str],
        arrays: Sequence[Any],
        optimizer: OptimizerSpec,
        settings: ExchangeSettings,
    ) -> None: ...
    def begin_step(self) -> None: ...
    def on_gradient(self, index: int, gradient: Any) -> None: ...
    def end_step(self) -> None: ...
    def set_hyper(self, index: int, learning_rate: float, weight_decay: float) -> None: ...
    def drain(self) -> None: ...
    def times(self) -> Dict[str, float]: ...
