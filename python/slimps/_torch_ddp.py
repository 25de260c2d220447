"""comm_hook: DistributedDataParallel's gradients by way of the servers, in place of an all-reduce.

Annotations are not postponed here: DistributedDataParallel looks at comm_hook's.
"""

import threading
from typing import Any, Dict, List, Optional, Union

import numpy as np
import torch

from slimps import _compression, _slimps, _torch_parameters, kv
from slimps.errors import FailedPreconditionError, InvalidArgumentError


class CommHookState:
    """What comm_hook needs: a store whose keys are the parameters, each worth the mean of the workers' gradients.

    named_parameters  of the model, before or after DistributedDataParallel wraps it; those that need no gradient are
                      left out. A parameter is a key, so that codecs and the threshold table see tensors, not buckets.
                      The model itself: the same, with each layer's kind (DistributedOptimizer)
    compression, threshold, pull_compression, pull_threshold, and all other options: as slimps.kv.create's. Codecs see
                      gradient * grad_scale; it is undone by the servers
    optimizer         yours, which steps by the means. Needed where the codec has momentum of its own (dgc, momentum=):
                      with an optimizer that has momentum too, a gradient would go through it twice. Its groups are
                      looked at here and in every step; momentum, or Adam's first beta, is an InvalidArgumentError
    store             an own dist_sync store without an optimizer, in place of all these; a round of its other keys then
                      is the mean over the workers too

    Collective. Gradients are float32 on the CPU. close() at the end, or as a context manager.
    """

    def __init__(self, named_parameters: _torch_parameters.Named, *, compression: Optional[str] = None,
                 threshold: Union[int, str, None] = None, pull_compression: Optional[str] = None,
                 pull_threshold: Union[int, str, None] = None, grad_scale: Optional[float] = None,
                 optimizer: Optional[torch.optim.Optimizer] = None, store: Optional[kv.KVStore] = None,
                 **options: Any) -> None:
        wanted = [(name, parameter) for name, parameter in _torch_parameters.pairs(named_parameters, "CommHookState")
                  if parameter.requires_grad]
        if not wanted:
            raise InvalidArgumentError("CommHookState: no parameter needs a gradient")
        for name, parameter in wanted:
            _torch_parameters.memory_of(parameter, "parameter %s" % name)
        self._optimizer = optimizer
        self._check_momentum(store.codec_has_momentum if store is not None
                             else _compression.Compression.of(compression or "none").momentum)
        self._owns_store = store is None
        self.store = _torch_parameters.store_of(store, "dist_sync", dict(
            options, compression=compression, threshold=threshold, pull_compression=pull_compression,
            pull_threshold=pull_threshold, grad_scale=grad_scale))
        if not self.store.has_rounds:
            raise InvalidArgumentError("CommHookState: expected a dist_sync store, got %s" % self.store.type)
        self._names: Dict[int, str] = {id(parameter): "gradient/" + name for name, parameter in wanted}
        self._priority = {"gradient/" + name: -place for place, (name, _) in enumerate(wanted)}
        self._parameters = [parameter for _, parameter in wanted]  # alive, so that no other gets its id
        self._failed: Optional[Exception] = None
        self._lock = threading.Lock()
        mean = _slimps.OptimizerSpec()  # none, but the mean in place of the sum
        mean.kind = "NONE"
        mean.average = True
        mean.rescale_grad = self.store.unscale
        self.store.set_optimizer_spec(mean, "a CommHookState")
        names = list(self._names.values())
        self.store.init(names, [np.zeros(parameter.shape or (1,), np.float32) for parameter in self._parameters],
                        _torch_parameters.layers_of(named_parameters, self._parameters))

    def totals(self) -> Dict[str, float]:
        """As KVStore.totals: bytes and seconds of this worker."""
        return self.store.totals()

    def close(self) -> None:
        """Ends this worker's part of the job, unless the store was given."""
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> "CommHookState":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._owns_store:
            self.store.__exit__(*error)

    def exchange(self, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The bucket's gradients go out; the future has the bucket's buffer when their means are in it."""
        if self._failed is not None:
            raise self._failed
        self._check_momentum(self.store.codec_has_momentum)  # a schedule may bring one
        names, views = self._name(bucket)
        for name, view in zip(names, views):
            self.store.push(name, view, priority=self._priority[name])
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer()

        def arrived(error: Optional[Exception]) -> None:
            if error is None:
                future.set_result(buffer)
                return
            with self._lock:
                self._failed = self._failed or error
            future.set_exception(error)

        self.store.pull_then(names, views, arrived)
        return future

    def _check_momentum(self, codec_has_it: bool) -> None:
        """A hook sees gradients alone: what steps by them has to be shown to it where that matters."""
        if not codec_has_it:
            return
        if self._optimizer is None:
            raise InvalidArgumentError(
                "CommHookState: the codec has momentum of its own, and a gradient must not go through momentum twice; "
                "expected optimizer= beside it, one without momentum")
        for number, group in enumerate(self._optimizer.param_groups):
            momentum = group.get("momentum") or group.get("betas", (0,))[0]
            if momentum:
                raise InvalidArgumentError(
                    "CommHookState: the codec has momentum of its own, and a gradient would go through momentum twice; "
                    "expected an optimizer without (torch.optim.SGD with momentum=0), got %s with %s in parameter "
                    "group %d" % (type(self._optimizer).__name__, momentum, number))

    def _name(self, bucket: torch.distributed.GradBucket) -> Any:
        names: List[str] = []
        views: List[np.ndarray] = []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            name = self._names.get(id(parameter))
            if name is None:
                raise FailedPreconditionError(
                    "comm_hook: DistributedDataParallel has a parameter of shape %s that CommHookState was not given"
                    % (tuple(parameter.shape),))
            names.append(name)
            views.append(_torch_parameters.memory_of(gradient, name))
        return names, views


def comm_hook(state: CommHookState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook(state, comm_hook): gradients' means by way of the servers."""
    return state.exchange(bucket)
