"""DistributedOptimizer: a torch optimizer whose steps the servers take."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
import torch

from slimps import (
    _slimps, _torch_changes, _torch_evaluation, _torch_groups, _torch_optimizer, _torch_parameters, kv)
from slimps.errors import FailedPreconditionError, InvalidArgumentError


class DistributedOptimizer(torch.optim.Optimizer):
    """Takes `optimizer`'s place: push in backward, step on the servers, new weights in the parameters after step().

    optimizer         torch.optim.SGD, Adam or AdamW over float32 parameters on the CPU. Learning rate and weight decay
                      may differ by parameter group and change (rank 0's count); what else it is told stays as it is
    named_parameters  model.named_parameters(): names are the keys, their order the priority (front layers first). The
                      model itself: the same, and codecs that treat layers differently (adacomp) hear of each layer's
                      kind, which else is told by the shape. None: names by group and place. Those that `optimizer` does not step, or that need no gradient,
                      get rank 0's values and are then left alone
    compression, threshold, pull_compression, pull_threshold, and all other options: as slimps.kv.create's
    backup_model      SlimGC's: the next forward pass begins on this worker's own step while the round goes on, which
                      costs exactly one round of lag. False: step() waits for the round
    local_lr          learning rate of the backup model's step, beside group 0's present one; it follows each group's in proportion.
                      None: the group's own
    push_in_backward  False: gradients leave in step(), as they are then: for torch.nn.utils.clip_grad_norm_, which
                      then clips this worker's gradient, and for GradScaler
    backward_passes_per_step  gradients leave in that many-th backward pass of a step, accumulated
    clip_gradient     limit of each element of the mean, at the servers
    grad_scale        codecs see gradient * grad_scale (2bit's threshold is meant for sums over a batch)
    non_finite        "stop": NaN or infinity is an InvalidArgumentError of step(); "skip": counts as zero
    store             an own dist store, in place of its options. Optimizers that share one must be of the same kind and
                      options, learning rate and weight decay aside

    Collective: every worker makes it alike; all begin from rank 0's parameters, all of the named ones. Load a
    checkpoint's weights into the model before, and change no weights afterwards: that is refused where it is seen. A
    step's gradient is the mean over the workers, as DistributedDataParallel's; a parameter without gradient on all of
    them is not stepped.

    Raises InvalidArgumentError: what servers or codecs cannot do, by name; other slimps.Error: the job.
    """

    _step_supports_amp_scaling = True  # GradScaler calls step(grad_scaler=...) and leaves its checks to it

    def __init__(self, optimizer: torch.optim.Optimizer, named_parameters: Optional[_torch_parameters.Named] = None, *,
                 compression: Optional[str] = None, threshold: Union[int, str, None] = None,
                 pull_compression: Optional[str] = None, pull_threshold: Union[int, str, None] = None,
                 backup_model: bool = False, local_lr: Optional[float] = None, push_in_backward: bool = True,
                 backward_passes_per_step: int = 1, clip_gradient: Optional[float] = None,
                 grad_scale: Optional[float] = None, non_finite: str = "stop", timeout_s: Optional[float] = None,
                 type: Optional[str] = None,  # pylint: disable=redefined-builtin
                 store: Optional[kv.KVStore] = None, **options: Any) -> None:
        # torch.optim.Optimizer's own would make groups of its own.
        self._wrapped = optimizer
        self.defaults = optimizer.defaults
        self.state = optimizer.state
        self.param_groups = optimizer.param_groups
        self._hook_for_profile()
        self._check_arguments(backward_passes_per_step, non_finite, clip_gradient)
        if local_lr is not None and not backup_model:
            raise InvalidArgumentError("local_lr: is the backup model's; expected backup_model=True beside it")
        self._passes_wanted = backward_passes_per_step
        self._push_in_backward = push_in_backward
        found = _torch_groups.find(optimizer, named_parameters)
        self._names, self._parameters, self._left_out = found.names, found.tensors, found.left_out
        self._arrays = [_torch_parameters.memory_of(parameter, "parameter %s" % name)
                        for name, parameter in zip(self._names, self._parameters)]
        spec = _torch_optimizer.convert(optimizer, _torch_groups.BY_GROUP).spec()
        spec.average = True
        spec.clip_gradient = clip_gradient or 0.0
        self._owns_store = store is None
        self.store = _torch_parameters.store_of(store, type or "dist_sync", dict(
            options, compression=compression, threshold=threshold, pull_compression=pull_compression,
            pull_threshold=pull_threshold, grad_scale=grad_scale, timeout_s=timeout_s))
        spec.rescale_grad = self.store.unscale
        settings = _slimps.ExchangeSettings()
        settings.backup_model = backup_model
        settings.local_lr = local_lr
        settings.skip_non_finite = non_finite == "skip"
        settings.timeout_s = self.store.timeout_s + 5  # the store's own error, which knows more, comes first
        self._backup_model = backup_model
        self._exchange = self.store.exchange(self._names, found.layers, self._arrays, spec, settings)
        if self.store.num_workers > 1:
            _torch_parameters.broadcast_others(found.others, self.store)
        self._rates = _torch_groups.Rates(optimizer, found.group_of)
        self._weights = _torch_changes.Weights(self._names, self._parameters, self._arrays)
        self._closed = False
        self._steps = -1
        self._holds_own = False  # the parameters: this worker's own weights, not those of all
        self._scales = False  # a GradScaler was seen
        self._begin()
        self._watch = self._watch_evaluation()
        self._hooks = [self._hook(index) for index in range(len(self._parameters))]

    # ---- a step ---------------------------------------------------------------------------------

    def step(self, closure: Optional[Callable[[], Any]] = None, grad_scaler: Any = None) -> Any:
        """Sends what has not gone yet, waits for the weights that the next forward pass needs, puts them in place.

        A parameter whose `grad` is None contributes nothing. With `grad_scaler` (torch.cuda.amp.GradScaler passes
        itself) gradients are unscaled first; where any worker's are not finite, all workers skip the step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if grad_scaler is not None and not self._all_finite(grad_scaler):
            self._passes = [0] * len(self._passes)
            return loss
        for index, parameter in enumerate(self._parameters):
            if self._out[index] is None and parameter.grad is not None:
                self._send(index)
        too_late = self._changed_too_late()
        self._finish()
        if too_late is not None:
            wrapped = all(name.startswith("module.") for name in self._names)
            raise FailedPreconditionError("%s; expected DistributedOptimizer(..., push_in_backward=False)%s" % (
                too_late, ", or no DistributedDataParallel around the model, which averages gradients" if wrapped else ""))
        return loss

    def skip_step(self) -> None:
        """In place of a step for which this worker has no data: it contributes nothing, and gets the new weights.

        Its part counts as zero in the mean. Gradients that have gone out already count. Where the others' GradScaler
        finds that they all skip the step, so does this worker; not in the very first step.
        """
        if self._scales and self.store.all_reduce_sum([0.0])[0] != 0:
            return
        self._finish()

    def leave(self) -> None:
        """This worker's data is used up: from now on rounds are complete without it, means are over the others.

        It takes no more steps; global_weights() shows the weights after its last one. Raises FailedPreconditionError:
        with a GradScaler, whose check needs all workers.
        """
        if self._scales:
            raise FailedPreconditionError("leave: all workers take part in GradScaler's check; expected skip_step()")
        self.store.leave()

    @contextlib.contextmanager
    def global_weights(self) -> Iterator[None]:
        """Meanwhile the parameters hold the servers' weights after the newest step: to evaluate, to save the model.

        With the backup model they else hold this worker's next starting point, which differs from worker to worker: a
        forward pass that evaluates them is warned of, once. Waits for the round under way; every worker must have taken that step.
        """
        if any(sent is not None for sent in self._out):
            raise FailedPreconditionError("global_weights: gradients of a step have gone out; expected step() before")
        kept = [array.copy() for array in self._arrays] if self._backup_model else []
        self._exchange.drain()
        own, self._holds_own = self._holds_own, False
        try:
            yield
        finally:
            for array, values in zip(self._arrays, kept):
                np.copyto(array, values)
            self._holds_own = own

    def close(self) -> None:
        """Leaves the servers' weights in the parameters and ends this worker's part of the job; once."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.end()
        self._exchange.drain()
        for hook in self._hooks:
            hook.remove()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> "DistributedOptimizer":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
        elif self._owns_store:
            self.store.__exit__(kind, error, trace)

    def totals(self) -> Dict[str, float]:
        """Of this worker: KVStore.totals, and wait_s, local_update_s, overlap_s of its steps."""
        return {**self.store.totals(), **self._exchange.times()}

    # ---- saved and resumed ----------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """The wrapped optimizer's options, the servers' optimizer states, and this worker's residuals.

        Collective. Each worker saves its own, since residuals differ. The weights are the model's: save them inside
        global_weights(). Not in it: what the backup model has seen of the servers' momentum, which its first step
        then lacks, and of compressed pulls what the servers have not sent yet.
        """
        return {"optimizer": self._wrapped.state_dict(),
                "servers": _as_tensor(self.store.optimizer_states()),
                "residuals": _as_tensor(self.store.residuals()),
                "rank": self.store.rank, "num_workers": self.store.num_workers}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Puts a state_dict() of the same rank back, before the first step. Collective.

        The model's weights must have been loaded before this optimizer was made: the servers began with them.
        """
        missing = {"optimizer", "servers", "residuals", "rank", "num_workers"} - set(state_dict)
        if missing:
            raise InvalidArgumentError("load_state_dict: expected a DistributedOptimizer's, got one without %s"
                                       % ", ".join(sorted(missing)))
        _check_place((state_dict["rank"], state_dict["num_workers"]), (self.store.rank, self.store.num_workers))
        self._wrapped.load_state_dict(state_dict["optimizer"])
        self.param_groups = self._wrapped.param_groups
        self.state = self._wrapped.state
        self.store.put_optimizer_states(_as_bytes(state_dict["servers"]))
        self.store.put_residuals(_as_bytes(state_dict["residuals"]))

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        raise FailedPreconditionError("add_param_group: the servers know the parameters from the beginning; expected "
                                      "it before the DistributedOptimizer is made")

    def __getstate__(self) -> Any:
        raise FailedPreconditionError("DistributedOptimizer: cannot be copied or pickled, it is part of a job; "
                                      "state_dict() can")

    # ---- inside ---------------------------------------------------------------------------------

    @staticmethod
    def _check_arguments(passes: int, non_finite: str, clip_gradient: Optional[float]) -> None:
        if not isinstance(passes, int) or passes < 1:
            raise InvalidArgumentError("backward_passes_per_step: expected an int from 1, got %r" % (passes,))
        if non_finite not in ("stop", "skip"):
            raise InvalidArgumentError("non_finite: expected \"stop\" or \"skip\", got %r" % (non_finite,))
        if clip_gradient is not None and not clip_gradient > 0:
            raise InvalidArgumentError("clip_gradient: expected above 0, or None, got %r" % (clip_gradient,))

    def _watch_evaluation(self) -> Optional[_torch_evaluation.Watch]:
        if not self._backup_model:
            return None
        me = weakref.ref(self)

        def holds_own() -> bool:
            optimizer = me()
            return optimizer is not None and optimizer._holds_own

        return _torch_evaluation.Watch(self._parameters, holds_own)

    def _hook(self, index: int) -> Any:
        """Calls _ready(index) when the parameter's gradient of one backward pass is whole."""
        parameter = self._parameters[index]
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        me = weakref.ref(self)

        def ready(*_: Any) -> None:
            optimizer = me()
            if optimizer is not None:
                optimizer._ready(index)

        handle = accumulator.register_hook(ready)
        handle.accumulator = accumulator  # autograd itself holds it weakly
        return handle

    def _ready(self, index: int) -> None:
        if not self._push_in_backward:
            return
        self._passes[index] += 1
        if self._passes[index] < self._passes_wanted:
            return
        if self._out[index] is not None:
            raise FailedPreconditionError(
                "parameter %s: its gradient came in %d backward passes of one step; expected %d, as "
                "backward_passes_per_step says, or push_in_backward=False, where other losses reach it too"
                % (self._names[index], self._passes[index], self._passes_wanted))
        if self._parameters[index].grad is not None:  # a function may give none
            self._send(index)

    def _send(self, index: int) -> None:
        if not self._hyper_told:
            self._tell_hyper()
        gradient = self._parameters[index].grad
        packed = _torch_parameters.packed_gradient(gradient, self._names[index])
        self._out[index] = _torch_changes.Sent.now(gradient, packed, self._steps)
        self._exchange.on_gradient(index, packed)

    def _tell_hyper(self) -> None:
        """Learning rates and weight decays as the groups have them at this step's first gradient."""
        self._hyper_told = True
        self._rates.tell(self.param_groups, self._exchange.set_hyper)

    def _changed_too_late(self) -> Optional[str]:
        """In words: what the script changed after it had gone out."""
        for name, parameter, sent in zip(self._names, self._parameters, self._out):
            if sent is not None and not sent.is_still(parameter.grad):
                return ("gradient of %s: was changed after it had gone out in backward, as by clip_grad_norm_ or "
                        "clip_grad_value_" % name)
        rates = self._rates.changed(self.param_groups) if self._hyper_told else None
        return rates and rates + ": changed after gradients had gone out in backward"

    def _finish(self) -> None:
        self._weights.check()
        for name, parameter in self._left_out:
            if parameter.grad is not None:
                raise FailedPreconditionError(
                    "parameter %s: has a gradient, and needed none when the DistributedOptimizer was made: the servers "
                    "do not know it. Expected requires_grad_(True) before that, or grad None" % name)
        if not self._hyper_told:
            self._tell_hyper()
        self._exchange.end_step()
        self._holds_own = self._backup_model
        self._begin()

    def _begin(self) -> None:
        self._exchange.begin_step()
        self._steps += 1
        self._passes = [0] * len(self._parameters)
        self._out: List[Optional[_torch_changes.Sent]] = [None] * len(self._parameters)  # of this step
        self._hyper_told = False
        self._weights.mark()

    def _all_finite(self, grad_scaler: Any) -> bool:
        """Unscales the gradients; whether those of all workers are finite. Says so to all of their scalers."""
        if self._push_in_backward:
            raise FailedPreconditionError("GradScaler: gradients have gone out scaled; expected "
                                          "DistributedOptimizer(..., push_in_backward=False)")
        state = grad_scaler._per_optimizer_states[id(self)]
        if not state["found_inf_per_device"]:
            grad_scaler.unscale_(self)
        found = list(state["found_inf_per_device"].values())
        self._scales = True
        mine = float(any(bool(one.item()) for one in found))
        if self.store.all_reduce_sum([mine])[0] == 0:
            return True
        for one in found:
            one.fill_(1.0)  # every worker's scale backs off
        return False


def _check_place(saved: Tuple[int, int], here: Tuple[int, int]) -> None:
    """(rank, number of workers) of whom a state was saved by, and of this worker: residuals are each worker's own."""
    if saved == here:
        return
    what = "load_state_dict: this state was saved by worker %d of %d, and this is worker %d of %d" % (*saved, *here)
    if saved[1] != here[1]:
        raise InvalidArgumentError("%s: expected a job of %d workers" % (what, saved[1]))
    raise InvalidArgumentError("%s: load what worker %d saved, or start this worker with DMLC_WORKER_ID=%d"
                               % (what, here[0], saved[0]))


def _as_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)[:len(content)].clone()


def _as_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()
