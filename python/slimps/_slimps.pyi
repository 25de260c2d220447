"""The C++ side of slimps; use the package slimps. Arrays are contiguous float32 by the buffer protocol."""

from typing import Any, Callable, Dict, Optional, Sequence, Union

class Options:
    """KVStoreOptions of worker/kvstore.h."""

    scheduler_address: str
    job_id: str
    num_workers: int
    num_servers: int
    wanted_rank: int
    partition_bytes: int
    compression: str
    fixed_threshold_bytes: Optional[int]
    pre_steps: int
    threshold_table_file: str
    remeasure_every: int
    pull_compression: str
    fixed_pull_threshold_bytes: Optional[int]
    same_host: str
    staleness: int
    grad_scale: float
    encode_threads: int
    emulate_link_bytes_per_second: float
    emulate_link_latency_s: float
    timeout_s: float
    def __init__(self) -> None: ...

class Schedule:
    """LearningRateSchedule of proto/slimps.proto; `kind` is CONSTANT, STEP, COSINE or LINEAR."""

    kind: str
    warmup_rounds: int
    every: int
    factor: float
    total_rounds: int
    final_lr: float
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
    schedule: Schedule
    def __init__(self) -> None: ...

class Store:
    """KVStore of worker/kvstore.h."""

    @staticmethod
    def create(type: str, options: Options) -> Store: ...
    def init(self, keys: Sequence[Union[int, str]], shapes: Sequence[Sequence[int]], values: Sequence[Any],
             halves: Sequence[bool]) -> None: ...
    def push(self, key: Union[int, str], gradient: Any, priority: int) -> None: ...
    def push_sum(self, key: Union[int, str], gradients: Sequence[Any], priority: int) -> None: ...
    def push_nothing(self, key: Union[int, str]) -> None: ...
    def pull(self, keys: Sequence[Union[int, str]], outs: Sequence[Any], priority: int) -> None: ...
    def set_optimizer(self, spec: OptimizerSpec) -> None: ...
    def set_updater(self, updater: Optional[Callable[[str, memoryview, memoryview], None]]) -> None: ...
    def set_compression(self, codec_spec: str) -> None: ...
    def set_compression_dictionary(self, dictionary: Dict[str, str]) -> None: ...
    def barrier(self) -> None: ...
    def wait(self) -> None: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...
    def abort(self, why: str) -> None: ...
    def totals(self) -> Dict[str, float]: ...
    def is_capable(self, capability: str) -> bool: ...
    @property
    def rank(self) -> int: ...
    @property
    def num_workers(self) -> int: ...
