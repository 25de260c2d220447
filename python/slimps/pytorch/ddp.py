# SPDX-License-Identifier: Apache-2.0
"""comm_hook: sends DistributedDataParallel's gradients through the servers, not an all-reduce.

This module does not import `annotations` from __future__, since DistributedDataParallel reads the
types in comm_hook's annotations.
"""

import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union, cast

import numpy as np
import torch

from slimps import _compression, kv, native
from slimps.errors import FailedPreconditionError, InvalidArgumentError
from slimps.pytorch import conversion, gpu, params, script_rows

if TYPE_CHECKING:
    GradBucket = Any  # torch's types lack it
else:
    GradBucket = torch.distributed.GradBucket


class CommHookState:
    """The state of comm_hook: a store with a key per parameter, whose value is the gradients' mean.

    named_parameters  model.named_parameters(), before or after DistributedDataParallel wraps the
                      model; parameters that need no gradient are left out. A parameter is a key, so
                      codecs and the threshold table see tensors, not buckets. Or the model itself:
                      then codecs know each layer's kind too, as for DistributedOptimizer
    compression, threshold, policy, pull_compression, pull_threshold, and all other options
                      the options of slimps.kv.create. Codecs see gradient * grad_scale; the servers
                      undo it
    optimizer         your optimizer, which makes steps with the means. It is needed if the codec
                      applies momentum (dgc, momentum=): if the optimizer had momentum too, a
                      gradient would go through momentum twice. Its groups are checked here and in
                      every step
    scaler            your torch.amp.GradScaler. Codecs then see the gradients of the unscaled loss,
                      so that residuals keep their size when the scale changes
    store             your own dist_sync store without an optimizer, instead of the options. The
                      rounds of its other keys then give the mean over the workers too

    Collective. Parameters are float32, float16 or bfloat16, on the CPU or a GPU; gradients travel
    in float32. From a GPU they are copied to the host while backward goes on, and means are copied
    back. Where a gradient is not finite on one worker, the mean is not finite on any (option
    non_finite="pass", the default here), so that a GradScaler skips the step on all. Call close()
    at the end, or use it as a context manager.

    Raises
        InvalidArgumentError: no parameter needs a gradient, a parameter is of another type,
            the store is not dist_sync, codec and optimizer both have momentum (for Adam: the first
            beta), or there is a scaler and non-finite gradients are refused.
        FailedPreconditionError: the store has another optimizer.
    """

    def __init__(
        self,
        named_parameters: params.Named,
        *,
        compression: Optional[str] = None,
        threshold: Union[int, str, None] = None,
        policy: Optional[str] = None,
        pull_compression: Optional[str] = None,
        pull_threshold: Union[int, str, None] = None,
        grad_scale: Optional[float] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        scaler: Any = None,
        store: Optional[kv.KVStore] = None,
        **options: Any,
    ) -> None:
        if "clip_norm" in options:
            raise InvalidArgumentError(
                "CommHookState: the servers only average, and clip_norm is DistributedOptimizer's; "
                "expected torch.nn.utils.clip_grad_norm_ after backward, where every rank has the "
                "mean gradient"
            )
        wanted = [
            (name, parameter)
            for name, parameter in params.pairs(named_parameters, "CommHookState")
            if parameter.requires_grad and parameter.numel()
        ]
        if not wanted:
            raise InvalidArgumentError("CommHookState: no parameter needs a gradient")
        for name, parameter in wanted:
            params.check(parameter, "parameter %s" % name, params.FLOATS)
        self._optimizer = optimizer
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if store is not None:
            momentum, passes = store.codec_has_momentum, store.passes_non_finite
        else:
            codec = _compression.Compression.of(compression or "none")
            non_finite = options.setdefault("non_finite", "pass")
            momentum, passes = codec.momentum, non_finite == "pass" and codec.passes_non_finite
        self._check_momentum(momentum)
        if self._scaler is not None and not passes:
            raise InvalidArgumentError(
                "CommHookState: with a scaler, non-finite gradients must reach all workers, which "
                "skip that step together; expected a store of non_finite=\"pass\" and another "
                "codec than powersgd, thc and signsgd"
            )
        self._owns_store = store is None
        self.store = params.store_of(
            store,
            "dist_sync",
            dict(
                options,
                compression=compression,
                threshold=threshold,
                policy=policy,
                pull_compression=pull_compression,
                pull_threshold=pull_threshold,
                grad_scale=grad_scale,
            ),
        )
        if not self.store.has_rounds:
            raise InvalidArgumentError(
                "CommHookState: expected a dist_sync store, got %s" % self.store.type
            )
        if optimizer is not None:
            conversion.warn_of_one_bit(optimizer, self.store)
        self._names: Dict[int, str] = {
            id(parameter): "gradient/" + name for name, parameter in wanted
        }
        self._priority = {"gradient/" + name: -place for place, (name, _) in enumerate(wanted)}
        # Keeps the parameters alive, so that no other object gets one of their ids.
        self._parameters = [parameter for _, parameter in wanted]
        self._failed: Optional[Exception] = None
        self._lock = threading.Lock()
        mean = native.OptimizerSpec()  # no step: the value is the mean, in place of the sum
        mean.kind = "NONE"
        mean.average = True
        mean.rescale_grad = self.store.unscale
        self.store.set_optimizer_spec(mean, "a CommHookState")
        names = list(self._names.values())
        self.store.init(
            names,
            [np.zeros(parameter.shape or (1,), np.float32) for parameter in self._parameters],
            params.layers_of(named_parameters, self._parameters),
        )
        self._passes = script_rows.passes()

    def totals(self) -> Dict[str, float]:
        """Returns this worker's bytes and seconds, as KVStore.totals does."""
        return self.store.totals()

    def close(self) -> None:
        """Ends this worker's part of the job, unless the store was passed in."""
        self.__exit__(None, None, None)

    def __reduce__(self) -> Any:
        return CopiedState, ()

    def __enter__(self) -> "CommHookState":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._passes is not None:
            self._passes.end()
        if self._owns_store:
            self.store.__exit__(*error)

    def hook(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Does what exchange does, and raises no error: backward raises it when it ends.

        The future of an error would reach the caller of backward without its type and text, and
        DistributedDataParallel cannot go on after a hook that raises.
        """
        if bucket.is_last():
            _at_end_of_backward(self._raise_failed)
        try:
            return self.exchange(bucket)
        except Exception as error:
            self._fail(error)
            future = gpu.future_of(bucket.buffer())
            future.set_result(bucket.buffer())
            return future

    def exchange(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Sends the bucket's gradients and returns a future of their means over the workers.

        The means are the bucket's buffer; of a sparse gradient, a tensor with the rows of all
        workers. After an error the future has the buffer, and later calls raise the error.
        """
        self._raise_failed()
        self._check_momentum(self.store.codec_has_momentum)  # a schedule may have set it since
        buffer = bucket.buffer()
        is_sparse = buffer.layout == torch.sparse_coo  # then it is the bucket's only gradient
        values = (
            buffer.to_dense() if is_sparse else buffer
        ).float()  # of float32: the buffer itself
        # The GPU computes with the scale, so nothing waits for its value.
        one = torch.ones((), device=values.device)
        scale = None if self._scaler is None else cast(torch.Tensor, self._scaler.scale(one))
        if scale is not None:
            values.div_(scale)
        names, memories, copies = self._name(
            bucket,
            [values]
            if is_sparse
            else [
                _at(values, buffer, gradient, parameter)
                for gradient, parameter in zip(bucket.gradients(), bucket.parameters())
            ],
        )
        for name, memory in zip(names, memories):
            self.store.push(name, memory, priority=self._priority[name])
        future = gpu.future_of(buffer)
        stream = gpu.stream_of(buffer)

        def arrived(error: Optional[Exception]) -> None:
            result = buffer
            with stream:
                try:
                    if error is not None:
                        raise error
                    gpu.start_writing(copies)
                    if scale is not None:
                        values.mul_(scale)
                    if is_sparse:
                        result = values.to_sparse(buffer.sparse_dim()).to(buffer.dtype)
                    else:
                        buffer.copy_(values)
                except Exception as failure:
                    self._fail(failure)
                future.set_result(result)

        self.store.pull_then(names, memories, arrived)
        return future

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._failed = self._failed or error

    def _raise_failed(self) -> None:
        if self._failed is not None:
            # The traceback would grow, and its frames keep buckets.
            raise self._failed.with_traceback(None)

    def _check_momentum(self, codec_has_it: bool) -> None:
        """Raises InvalidArgumentError if codec and optimizer both have momentum.

        A hook sees only gradients, so the script must pass its optimizer to let this be checked.
        """
        if not codec_has_it:
            return
        if self._optimizer is None:
            raise InvalidArgumentError(
                "CommHookState: the codec has momentum of its own, and a gradient must not go "
                "through momentum twice; expected optimizer= beside it, one without momentum"
            )
        for number, group in enumerate(self._optimizer.param_groups):
            momentum = group.get("momentum") or group.get("betas", (0,))[0]
            if momentum:
                raise InvalidArgumentError(
                    "CommHookState: the codec has momentum of its own, and a gradient would go "
                    "through momentum twice; expected an optimizer without (torch.optim.SGD with "
                    "momentum=0), got %s with %s in parameter "
                    "group %d" % (type(self._optimizer).__name__, momentum, number)
                )

    def _name(self, bucket: GradBucket, gradients: List[torch.Tensor]) -> Any:
        """Returns the names of the bucket's gradients, their memory in its buffer, and copies.

        The copy of a gradient in another layout, as channels_last, has its elements in the order
        of the parameter's dimensions. `copies` has (gradient, copy).
        """
        names: List[str] = []
        memories: List[Union[np.ndarray, torch.Tensor]] = []
        copies: List[Tuple[torch.Tensor, torch.Tensor]] = []
        for parameter, gradient in zip(bucket.parameters(), gradients):
            if not parameter.numel():
                continue
            name = self._names.get(id(parameter))
            if name is None:
                raise FailedPreconditionError(
                    "comm_hook: DistributedDataParallel has a parameter of shape %s that "
                    "CommHookState was not given" % (tuple(parameter.shape),)
                )
            names.append(name)
            packed = gradient.detach().contiguous()
            if not gradient.is_contiguous():
                copies.append((gradient, packed))
            if gpu.is_on(packed):
                memories.append(packed.reshape(parameter.shape or (1,)))
            else:
                memories.append(params.packed_gradient(packed, name))
        return names, memories, copies


class CopiedState:
    """A CommHookState's copy, as in a deepcopy or torch.save of the model: no part of the job."""

    def hook(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        raise FailedPreconditionError(
            "comm_hook: got the copy of a CommHookState, which is no part of the job; expected a "
            "CommHookState that was made with this model's own parameters"
        )


def comm_hook(
    state: Union[CommHookState, CopiedState], bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Returns a future of the bucket's mean gradients, which come from the servers.

    Pass it to DistributedDataParallel.register_comm_hook(state, comm_hook).
    """
    return state.hook(bucket)


def _at(
    values: torch.Tensor, buffer: torch.Tensor, gradient: torch.Tensor, parameter: torch.Tensor
) -> torch.Tensor:
    """Returns the view of `values` that `gradient` is of `buffer`, in the parameter's layout.

    The bucket's own view is contiguous, but a dense parameter's values lie as the parameter's do.
    """
    first = values.storage_offset() + gradient.storage_offset() - buffer.storage_offset()
    strides = parameter.stride() if params.is_dense(parameter) else gradient.stride()
    return values.as_strided(gradient.size(), strides, first)


def _at_end_of_backward(function: Callable[[], None]) -> None:
    """Calls it at the end of this backward pass, after what DistributedDataParallel does there.

    DistributedDataParallel asks for its own call later than for its hooks', so `function` is asked
    for when the pass is at its end.
    """
    at_end = torch.autograd.Variable._execution_engine.queue_callback
    at_end(lambda: at_end(function))
