"""A torch model's parameters as slimps sees them: named, checked, and as numpy arrays over the same memory."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np
import torch

from slimps import _open_stores, kv
from slimps.errors import FailedPreconditionError, InvalidArgumentError

Named = Union[Iterable[Tuple[str, torch.Tensor]], Mapping[str, torch.Tensor]]

_broadcasts = itertools.count()


def pairs(named: Named, what: str) -> List[Tuple[str, torch.Tensor]]:
    """(name, tensor) of named_parameters() or a state dict. Raises InvalidArgumentError: other things, a name twice."""
    found = list(named.items() if isinstance(named, Mapping) else named)
    names = set()
    for pair in found:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
                and isinstance(pair[1], torch.Tensor)):
            raise InvalidArgumentError("%s: expected (name, tensor) pairs, as model.named_parameters(), got %s"
                                       % (what, type(pair).__name__))
        if pair[0] in names:
            raise InvalidArgumentError("%s: name %r stands twice" % (what, pair[0]))
        names.add(pair[0])
    return found


def memory_of(tensor: torch.Tensor, what: str) -> np.ndarray:
    """The tensor's own memory. Raises InvalidArgumentError: not float32, dense, without gaps and on the CPU."""
    if tensor.device.type != "cpu":
        raise InvalidArgumentError("%s: expected a tensor on the CPU, got one on %s" % (what, tensor.device))
    if tensor.layout != torch.strided:
        raise InvalidArgumentError("%s: expected a dense tensor, got layout %s" % (what, tensor.layout))
    if tensor.dtype != torch.float32:
        raise InvalidArgumentError("%s: expected torch.float32, got %s" % (what, tensor.dtype))
    if not tensor.is_contiguous():
        raise InvalidArgumentError("%s: expected contiguous memory, got strides %s of shape %s"
                                   % (what, tuple(tensor.stride()), tuple(tensor.shape)))
    array = tensor.detach().numpy()
    return array if array.ndim else array.reshape(1)


def packed_gradient(gradient: torch.Tensor, name: str) -> np.ndarray:
    """Itself, where it is without gaps."""
    if gradient.layout == torch.strided and not gradient.is_contiguous():
        gradient = gradient.contiguous()
    return memory_of(gradient, "gradient of %s" % name)


def store_of(given: Optional[kv.KVStore], kind: str, options: Dict[str, Any]) -> kv.KVStore:
    """`given`, or one made by kv.create(kind, **options), where None and "none" stand for the defaults.

    Raises InvalidArgumentError: both, since a store that is there has its options.
    """
    wanted = {name: value for name, value in options.items() if value is not None}
    if given is None:
        return kv.create(kind, **wanted)
    if wanted:
        raise InvalidArgumentError("store: has its own options; expected no %s beside it" % ", ".join(sorted(wanted)))
    return given


def open_store() -> kv.KVStore:
    """This process's distributed store. Raises FailedPreconditionError: there is none, or more than one."""
    stores = _open_stores.distributed()
    if len(stores) != 1:
        raise FailedPreconditionError(
            "store: expected one that is open, found %d; make the DistributedOptimizer, the CommHookState or a "
            "slimps.kv.create(\"dist_sync\") first, or pass store=" % len(stores))
    return stores[0]


def _broadcast_exactly(store: kv.KVStore, tensors: List[torch.Tensor]) -> None:
    """Tensors that are not float32, as float64: rank 0's, the sum with the others' zeros."""
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        if flat.is_complex():
            raise InvalidArgumentError("broadcast_parameters: expected real numbers, got %s" % tensor.dtype)
        for first in range(0, flat.numel(), 256):
            part = flat[first:first + 256].to(torch.float64)
            if not bool(torch.equal(part.to(tensor.dtype), flat[first:first + 256])):
                raise InvalidArgumentError("broadcast_parameters: %s values beyond float64's" % tensor.dtype)
            mine = part.tolist() if store.rank == 0 else [0.0] * part.numel()
            with torch.no_grad():
                flat[first:first + 256] = torch.tensor(store.all_reduce_sum(mine), dtype=torch.float64).to(tensor.dtype)
        with torch.no_grad():
            tensor.copy_(flat.reshape(tensor.shape))


def broadcast_parameters(parameters: Named, store: Optional[kv.KVStore] = None) -> None:
    """Every worker gets rank 0's values, in place.

    `parameters`: named_parameters() or a state_dict(), so batch normalisation's buffers too. DistributedOptimizer and
    CommHookState do not need it for the parameters that they are given: those are rank 0's already
    (DistributedOptimizer) or DDP's (CommHookState). Collective, with equal names and shapes; float32 on the servers,
    other types by way of the scheduler, a few hundred numbers at a time. Once per run: the servers keep what was
    broadcast. A checkpoint's optimizer states name it too: a run that resumes makes the same calls, before
    load_state_dict.
    """
    found = pairs(parameters, "broadcast_parameters")
    broadcast(found, open_store() if store is None else store, "broadcast%d/" % next(_broadcasts))


def broadcast(tensors: List[Tuple[str, torch.Tensor]], store: kv.KVStore, prefix: str) -> None:
    """As broadcast_parameters; the servers' keys are the names behind `prefix`."""
    arrays: Dict[str, Any] = {}
    for name, tensor in tensors:
        if tensor.dtype == torch.float32 and tensor.numel():
            array = tensor.detach().numpy()
            arrays[prefix + name] = array if array.ndim else array.reshape(1)
    if arrays:
        store.broadcast(list(arrays), list(arrays.values()), out=list(arrays.values()))
    _broadcast_exactly(store, [tensor for _, tensor in tensors if tensor.dtype != torch.float32])
