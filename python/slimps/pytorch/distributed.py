# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: a torch optimizer whose steps run on the servers."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import torch
from torch import nn

from slimps import kv, native
from slimps.errors import FailedPreconditionError, InvalidArgumentError
from slimps.pytorch import arguments, backward, buffers, changes, conversion
from slimps.pytorch import evaluation, grad_scaler, groups, node, overlap, params, rows
from slimps.pytorch import masters, script_rows
from slimps.pytorch import wrapped
from slimps.pytorch.node_exchange import NodeExchange


class DistributedOptimizer(wrapped.WrappedOptimizer):
    """Replaces `optimizer`: backward pushes gradients, the servers step, step() gets weights.

    optimizer         torch.optim.SGD, Adam or AdamW over parameters on the CPU or a GPU: float32,
                      or float16 and bfloat16, whose float32 masters the servers keep. Gradients on
                      a GPU are copied to the host while backward goes on; weights are copied back
                      when the step ends. Learning rate and weight decay may differ between
                      parameter groups. They may change, and so may a momentum above 0 or the first
                      beta (rank 0's count). Its other options must not change
    named_parameters  model.named_parameters(): the names are the keys, and their order is the
                      priority (front layers first). Or the model itself: then codecs that treat
                      layers differently (adacomp) know each layer's kind, which they otherwise take
                      from the shape. None: names by group and place. Parameters that `optimizer`
                      does not step, or that need no gradient, get rank 0's values once
    compression, threshold, policy, pull_compression, pull_threshold, and all other options
                      the options of slimps.kv.create. compression="1bit" is for SGD; Adam's models
                      want freeze_after beside it, or four bits (a warning says so)
    backup_model      True: SlimGC's backup model. The next forward pass starts from this worker's
                      own step while the round is under way, which costs exactly one round of lag.
                      False: step() waits for the round
    local_lr          learning rate of the backup model's step for group 0. Other groups' rates, and
                      later changes, keep the same proportion to the optimizer's rates. None: the
                      optimizer's rates, and half of them for SGD without momentum beside other
                      workers
    overlap_forward   True: step() returns before the weights have come, and each module of the
                      model waits for its own parameters before its forward pass, front layers
                      first. Needs the model as named_parameters, not compiled, without node_first.
                      Needs push_in_backward. A parameter that is read where its module is not
                      called (a tied weight in torch.nn.functional, a copy of the model) needs
                      await_weights() before; a pass without it makes backward() raise
                      FailedPreconditionError, which names it. False: step() waits for all
    push_in_backward  True: gradients are sent during backward. False: step() sends them as they are
                      then, for GradScaler and for torch.nn.utils.clip_grad_norm_ (which clips this
                      worker's gradient, where clip_norm clips the mean)
    backward_passes_per_step
                      gradients accumulate over this many backward passes, and the last one sends
                      them
    clip_gradient     limit of each element of the mean; the servers apply it
    clip_norm         limit of the norm of the mean gradient of all parameters together, as
                      torch.nn.utils.clip_grad_norm_ clips the gradient of the joint batch; the
                      servers apply it (dist_sync; not with freeze_after or signsgd). Gradients
                      still leave during backward, and no weight is stepped before all of them have
                      arrived. A step with a norm that is not finite is skipped on all workers. It
                      may be changed before a step's first gradient, on all workers alike
    freeze_after      steps of a warm-up after which Adam or AdamW goes on as 1-bit Adam (Tang et
                      al. 2021): its variance is frozen, and `compression` and `pull_compression`
                      compress momenta (slimps.optimizer.OneBitAdam says what it needs). "auto":
                      until the variance is stable. None: off
    grad_scale        codecs see gradient * grad_scale (2bit's threshold is meant for sums over a
                      batch); the servers undo it
    non_finite        "stop": step() raises InvalidArgumentError for NaN or infinity. "skip": a
                      parameter whose gradient has NaN or infinity contributes nothing to this round
    init_sync         False: parameters that `optimizer` does not step are not compared with rank
                      0's, since they are equal on all workers. Those that it steps begin with rank
                      0's values in any case, which the servers need
    broadcast_buffers True: before the first forward pass of each step in training, the model's
                      buffers become rank 0's. DistributedDataParallel does so by default, also
                      before evaluations. That is two questions to the scheduler, beside the
                      buffers, and workers wait for each other, so a worker cannot be started again.
                      Needs the model as named_parameters, and skip_step() in place of leave().
                      False: each worker has its own
    store             your own dist store, instead of the options. Optimizers that share a store
                      must have the same kind and options, except learning rate and weight decay
    node_first        True: the workers of a node add up their gradients, and LOCAL_RANK 0 alone
                      exchanges the sum for weights; means are those over all workers. They use
                      torch.distributed's NCCL if each has a GPU of its own, or else its gloo. It
                      costs one more copy of the model: on the GPU, or on the host. False: each
                      worker exchanges its own. None: True where there are several nodes and one of
                      them has several workers (dist_sync alone, and no nn.Embedding(sparse=True) is
                      seen; with `store`: as its other optimizers).
                      LOCAL_RANK and LOCAL_WORLD_SIZE tell the nodes, and their ranks follow each
                      other. All ranks remain workers of the job: store.rank, num_workers, sums and
                      barriers count them. But the others take no part in rounds, also of other keys
                      of `store`, and their totals() show no pushes. With backup_model,
                      global_weights() and close() are for all workers of a node together

    Gradients of nn.Embedding(sparse=True) are sent as rows, which needs no compression, no
    backup_model and no node_first; pulls are of whole parameters. The servers step the rows that
    some worker sent. The others keep weights, momentum and moments, and do not decay: with SGD
    without momentum and weight decay that is torch's step. With momentum or weight decay, which
    torch refuses there, and with Adam, rows catch up on nothing, and Adam counts steps of the
    parameter, as torch.optim.SparseAdam does. A worker's whole gradient of the parameter makes the
    step a whole one.

    Collective: every worker makes it with equal arguments. All workers begin with rank 0's values
    of the named parameters, and with the state of rank 0's `optimizer`, which goes to the servers.
    Load a checkpoint's weights into the model before this, and do not change weights afterwards; a
    change that is detected raises an error. A step's gradient is the mean over the workers, as with
    DistributedDataParallel. A parameter that has no gradient on any worker is not stepped.

    A gradient must not be changed once it was sent: the library may be reading it.

    Raises
        InvalidArgumentError: the servers or the codec cannot do what an argument asks; the message
            names it.
        other slimps.Error: an error of the job.
    """

    # torch.amp.GradScaler sets `grad_scale` and `found_inf` for step(), and leaves the rest to it.
    _step_supports_amp_scaling = True
    found_inf: torch.Tensor
    grad_scale: Optional[torch.Tensor]

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Optional[params.Named] = None,
        *,
        compression: Optional[str] = None,
        threshold: Union[int, str, None] = None,
        pull_compression: Optional[str] = None,
        pull_threshold: Union[int, str, None] = None,
        backup_model: bool = False,
        local_lr: Optional[float] = None,
        overlap_forward: bool = False,
        push_in_backward: bool = True,
        backward_passes_per_step: int = 1,
        clip_gradient: Optional[float] = None,
        clip_norm: Optional[float] = None,
        freeze_after: Union[int, str, None] = None,
        non_finite: str = "stop",
        init_sync: bool = True,
        broadcast_buffers: bool = False,
        type: Optional[str] = None,
        store: Optional[kv.KVStore] = None,
        node_first: Optional[bool] = None,
        **options: Any,
    ) -> None:
        super().__init__(optimizer)
        settings = arguments.settings_of(
            backward_passes_per_step,
            non_finite,
            clip_gradient,
            clip_norm,
            backup_model,
            local_lr,
            overlap_forward,
        )
        self._clip_norm = clip_norm
        self._passes_wanted = backward_passes_per_step
        model = evaluation.model_of(named_parameters)
        if broadcast_buffers and model is None:
            raise InvalidArgumentError(
                "broadcast_buffers: expected the model as named_parameters, whose buffers they are"
            )
        found = groups.find(optimizer, named_parameters)
        self._waits = (
            overlap.ForwardWaits(model, found.tensors, self._show) if overlap_forward else None
        )
        self._names, self._parameters, self._left_out = found.names, found.tensors, found.left_out
        self._masters = masters.Masters(self._names, self._parameters)
        spec = conversion.convert(optimizer, groups.BY_GROUP, freeze_after).spec()
        spec.average = True
        spec.clip_gradient = clip_gradient or 0.0
        self._owns_store = store is None
        self.store = params.store_of(
            store,
            type or "dist_sync",
            dict(
                options,
                compression=compression,
                threshold=threshold,
                pull_compression=pull_compression,
                pull_threshold=pull_threshold,
            ),
        )
        spec.rescale_grad = self.store.unscale
        self._backup_model = backup_model
        of_rows = list(rows.expected(named_parameters, self._names, self._parameters))
        for name in of_rows:
            rows.check(name, self.store, backup_model, bool(node_first))
        if (of_rows or overlap_forward) and node_first is None:
            node_first = False
        if overlap_forward and not push_in_backward:
            raise InvalidArgumentError(
                "overlap_forward: without push_in_backward nothing tells which parameters a pass "
                "has read; expected push_in_backward=True"
            )
        if overlap_forward and node_first:
            raise InvalidArgumentError(
                "overlap_forward: a node's sums come as a whole; expected node_first=False"
            )
        self._node = node.find(self.store, node_first, store is not None, self._parameters)
        if self._node is None:
            self._masters.add_spares()
        exchange = self.store.exchange(
            self._names, found.layers, self._masters.arrays, self._masters.are_spare, spec, settings
        )
        self._masters.exchange = exchange
        if init_sync and self.store.num_workers > 1:
            params.broadcast_others(found.others, self.store)
        self._buffers = buffers.Buffers(model, self.store) if broadcast_buffers and model else None
        self._exchange: Union[native.Exchange, NodeExchange] = exchange
        if self._node is not None:
            self._exchange = NodeExchange(
                exchange, self._node, self._names, self._masters.arrays, settings
            )
        else:
            node.each_pushes(self.store)
        self._hand_state_over(spec)
        self._rates = groups.Rates(optimizer, found.group_of)
        self._weights = changes.Weights(self._names, self._parameters, self._masters)
        self._closed = False
        self._steps = -1
        self._holds_own = False  # the parameters hold this worker's own weights, not the servers'
        self._scaling = grad_scaler.Scaling(self.store, self._parameters, push_in_backward)
        self._one_at_a_time = threading.Lock()  # backward has a thread for each device
        hooked = self._parameters if push_in_backward else []
        self._backward = backward.Backward(hooked, backward_passes_per_step, self._ready)
        self._begin()
        self._watch = self._watch_evaluation(model) if backup_model and model else None
        self._passes = script_rows.passes()

    # ---- a step ---------------------------------------------------------------------------------

    @script_rows.is_step
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Sends the remaining gradients and waits for the next forward pass's weights.

        Afterwards the parameters hold these weights. Returns the closure's result, or None. A
        parameter whose `grad` is None contributes nothing. Within torch.amp.GradScaler.step,
        gradients are unscaled first; if any worker's are not finite, all workers skip the step, and
        the scales of those workers back off.

        Raises
            FailedPreconditionError: weights, gradients that were sent, or learning rates were
                changed where the servers cannot know it.
            InvalidArgumentError: a gradient has a NaN or infinity, and non_finite is "stop". With
                a codec, or on a GPU, the store has failed then.
        """
        # torch's schedulers that were made for the wrapped optimizer ask whether it has stepped.
        setattr(self._wrapped, "_opt_called", True)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found_inf, grad_scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if not self._scaling.may_step(found_inf, grad_scale):
            self._backward.begin_step()
            return loss
        self.await_weights()  # of parameters that no module has read, before their gradients go
        for index, parameter in enumerate(self._parameters):
            if self._out[index] is None and parameter.grad is not None:
                self._send(index)
        too_late = self._changed_too_late()
        self._finish()
        if too_late is not None:
            raise FailedPreconditionError(
                "%s; expected DistributedOptimizer(..., push_in_backward=False), or clip_norm= or "
                "clip_gradient= in place of clipping (and transformers' max_grad_norm=0, or "
                "slimps.transformers.distribute), and no DistributedDataParallel around the model, "
                "which averages gradients itself" % too_late
            )
        return loss

    @property
    def clip_norm(self) -> Optional[float]:
        """The limit of the mean gradient's norm; None: none. Set it on all workers alike.

        Raises
            FailedPreconditionError: gradients of the step have gone out.
            InvalidArgumentError: it is not above 0, or the servers cannot clip.
        """
        return self._clip_norm

    @clip_norm.setter
    def clip_norm(self, clip_norm: Optional[float]) -> None:
        arguments.check_limit("clip_norm", clip_norm)
        self._check_between_steps("clip_norm")
        self._exchange.set_clip_norm(clip_norm)
        self._clip_norm = clip_norm

    @property
    def grad_norm(self) -> float:
        """The norm of the newest step's mean gradient before clipping, as clip_grad_norm_ returns.

        With backup_model or overlap_forward, of the step before. NaN or infinite: the servers
        skipped that step. 0.0 before the first step and without clip_norm.
        """
        return self._exchange.clipping().norm

    @property
    def skipped_steps(self) -> int:
        """How many steps the servers skipped since their norm was not finite (clip_norm)."""
        return self._exchange.clipping().skipped_steps

    def skip_step(self) -> None:
        """Replaces step() when this worker has no data: contributes nothing, gets the new weights.

        This worker counts as zero in the mean. Gradients that were sent before still count. If the
        workers use a GradScaler and skip the step, this worker skips it too. With dist_async, its
        first step with a GradScaler must not be a skip_step(): the others would wait for it.
        """
        if self._buffers is not None:
            self._buffers.settle()
        if self._scaling.may_step():
            self.await_weights()
            self._finish()

    def leave(self) -> None:
        """Leaves the rounds because this worker's data is used up; means are then over the others.

        This worker makes no more steps. global_weights() shows the weights after its last step.

        Raises
            FailedPreconditionError: a GradScaler is in use, whose check needs all workers; or the
                node reduces first, which needs all its workers; or buffers are broadcast.
        """
        if self._node is not None:
            raise FailedPreconditionError(
                "leave: all workers of a node take part in its sums; expected skip_step() until "
                "all have ended, or DistributedOptimizer(..., node_first=False)"
            )
        if self._buffers is not None:
            raise FailedPreconditionError(
                "leave: broadcast_buffers=True, for which all workers wait in each step; expected "
                "skip_step() until all have ended"
            )
        self._scaling.check_leaving()
        self.store.leave()

    def await_weights(self) -> None:
        """Waits until all parameters have this step's weights, with overlap_forward."""
        if self._waits is not None:
            self._waits.show_all()

    @contextlib.contextmanager
    def global_weights(self) -> Iterator[None]:
        """Within the `with` block, the parameters hold the servers' weights after the newest step.

        Use it to evaluate and to save the model. With the backup model, the parameters otherwise
        hold this worker's next starting point, which differs from worker to worker; evaluating that
        gives a warning, once. Waits for the round under way, which needs all workers to have made
        that step.

        Raises
            FailedPreconditionError: gradients of a step were sent, and step() was not called yet;
                or the script has changed the parameters itself.
        """
        self.await_weights()
        self._weights.check()
        self._check_between_steps("global_weights")
        kept = self._masters.copies() if self._backup_model else []
        self._masters.settle()
        self._exchange.drain()
        if self._backup_model:  # else they hold them
            self._publish()
        own, self._holds_own = self._holds_own, False
        try:
            yield
        finally:
            if self._backup_model:
                self._masters.settle()
                self._masters.restore(kept)
                self._publish()
            self._holds_own = own

    def close(self) -> None:
        """Puts the servers' weights into the parameters and ends this worker's part of the job.

        A store that was passed in stays open. A second call does nothing.

        Raises
            FailedPreconditionError: the script has changed the parameters itself. They stay as they
                are, and this worker's part is ended.
        """
        if self._closed:
            return
        self._closed = True
        # Also after an error, as of another worker that has ended.
        with contextlib.ExitStack() as ending:
            if self._owns_store:
                ending.push(self.store)
            if self._node is not None:
                ending.callback(self._node.close)
            ending.callback(self._end_state)
            ending.callback(self._backward.end)
            for watching in (self._watch, self._passes, self._buffers, self._waits):
                if watching is not None:
                    ending.callback(watching.end)
            self.await_weights()
            changed = self._weights.find_change()
            kept = self._masters.copies() if changed else []
            self._masters.settle()
            self._exchange.drain()
            self._masters.restore(kept)
            if changed is None and self._backup_model:
                self._masters.publish()
        if changed is not None:
            raise FailedPreconditionError("%s; expected close() before that" % changed)

    def __enter__(self) -> "DistributedOptimizer":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
        elif self._owns_store:
            self.store.__exit__(kind, error, trace)

    def totals(self) -> Dict[str, float]:
        """Returns this worker's KVStore.totals, with the seconds of its steps.

        wait_s           the training thread waited for weights
        local_update_s   the backup model's local steps
        overlap_s        communication that went on while the training thread did not wait
        """
        return {**self.store.totals(), **self._exchange.times()}

    # ---- inside ---------------------------------------------------------------------------------

    def _watch_evaluation(self, model: nn.Module) -> evaluation.Watch:
        me = weakref.ref(self)

        def holds_own() -> bool:
            optimizer = me()
            return optimizer is not None and optimizer._holds_own

        return evaluation.Watch(model, self._parameters, holds_own)

    def _ready(self, index: int, passes: int) -> None:
        """Sends the gradient of a parameter, which is complete after so many backward passes."""
        if self._out[index] is not None:
            raise FailedPreconditionError(
                "parameter %s: its gradient came in %d backward passes of one step; expected %d, "
                "as backward_passes_per_step says, or push_in_backward=False, where other losses "
                "reach it too" % (self._names[index], passes, self._passes_wanted)
            )
        if self._parameters[index].grad is not None:  # an autograd function may return None
            if self._waits is not None:
                self._waits.check(index, self._names[index])
            with self._one_at_a_time:
                self._send(index)

    def _send(self, index: int) -> None:
        if not self._hyper_told:
            self._tell_hyper()
        gradient = self._parameters[index].grad
        assert gradient is not None
        name = self._names[index]
        if gradient.layout == torch.sparse_coo:
            rows.check(name, self.store, self._backup_model, self._node is not None)
            assert isinstance(self._exchange, native.Exchange)
            self._exchange.on_rows(index, *rows.of(gradient, name))
        elif isinstance(self._exchange, NodeExchange):
            self._exchange.on_gradient(index, gradient)
        else:
            self._exchange.on_gradient(index, params.gradient_memory(gradient, name))
        self._out[index] = changes.Sent.now(gradient)

    def _tell_hyper(self) -> None:
        """Tells the servers the groups' learning rates and weight decays, once per step.

        The values at the step's first gradient count.
        """
        self._hyper_told = True
        self._masters.settle()  # what is sent from here on may bring new weights
        self._rates.tell(self.param_groups, self._exchange.set_hyper)

    def _check_between_steps(self, what: str) -> None:
        if any(sent is not None for sent in self._out):
            raise FailedPreconditionError(
                "%s: gradients of a step have gone out; expected step() before" % what
            )

    def _changed_too_late(self) -> Optional[str]:
        """Returns, in words, what the script changed after it was sent; None: nothing."""
        for name, parameter, sent in zip(self._names, self._parameters, self._out):
            if sent is not None and not sent.is_still(parameter.grad):
                return (
                    "gradient of %s: was changed after it had gone out in backward, as by "
                    "clip_grad_norm_ or clip_grad_value_" % name
                )
        rates = self._rates.changed(self.param_groups) if self._hyper_told else None
        return rates and rates + ": changed after gradients had gone out in backward"

    def _finish(self) -> None:
        self._weights.check()
        for name, parameter in self._left_out:
            if parameter.grad is not None:
                raise FailedPreconditionError(
                    "parameter %s: has a gradient, and needed none when the DistributedOptimizer "
                    "was made: the servers "
                    "do not know it. Expected requires_grad_(True) before that, or grad None" % name
                )
        if not self._hyper_told:
            self._tell_hyper()
        self._masters.settle()  # await_weights() may have begun copies to GPUs
        self._exchange.end_step()
        self._holds_own = self._backup_model
        self._begin()

    def _begin(self) -> None:
        self._exchange.begin_step()
        self._steps += 1
        self._backward.begin_step()
        if self._buffers is not None:
            self._buffers.begin_step()
        # What this step has sent.
        self._out: List[Optional[changes.Sent]] = [None] * len(self._parameters)
        self._hyper_told = False
        if self._waits is None or self._steps == 0:
            self._publish()
        else:
            self._masters.count_changes()
            self._waits.begin_step()

    def _show(self, index: int) -> None:
        """Waits until a parameter has this step's weights."""
        assert isinstance(self._exchange, native.Exchange)
        self._exchange.await_weights(index)
        self._masters.publish(index)
        self._weights.mark_one(index)

    def _publish(self) -> None:
        """Shows the masters' values in the parameters."""
        self._masters.publish()
        self._weights.mark()
