# SPDX-License-Identifier: Apache-2.0
"""A torch model's parameters: named, checked, and as numpy arrays over the same memory."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import nn

from slimps import _open_stores, kv, native
from slimps.errors import FailedPreconditionError, InvalidArgumentError
from slimps.pytorch import gpu

Named = Union[Iterable[Tuple[str, torch.Tensor]], Mapping[str, torch.Tensor], torch.nn.Module]

NamedTensors = List[Tuple[str, torch.Tensor]]

# KVStore.init's kinds of layers, by torch's classes.
_LAYERS: Tuple[Tuple[Any, str], ...] = (
    (nn.modules.conv._ConvNd, "convolution"),
    ((nn.Linear, nn.Bilinear), "dense"),
    ((nn.RNNBase, nn.RNNCellBase), "recurrent"),
    ((nn.Embedding, nn.EmbeddingBag), "embedding"),
    ((nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm), "normalisation"),
)


HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)

_SHARDED = ("DTensor", "FlatParameter", "ShardedTensor")


def pairs(named: Named, what: str) -> NamedTensors:
    """Returns the (name, tensor) pairs of a module, named_parameters() or a state dict.

    Names are those of the model itself: without the parts that torch.compile and
    DistributedDataParallel put before them. A tensor with several names, as tied weights have them
    in state_dict(keep_vars=True), has the first, and its place.
    InvalidArgumentError: `named` is something else, has a name twice, or a tensor that has no
        shape yet.
    """
    if isinstance(named, nn.Module):
        named = named.named_parameters()
    found = list(named.items() if isinstance(named, Mapping) else named)
    names = set()
    firsts: Dict[int, Tuple[str, torch.Tensor]] = {}
    for pair in found:
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and isinstance(pair[1], torch.Tensor)
        ):
            raise InvalidArgumentError(
                "%s: expected (name, tensor) pairs, as model.named_parameters(), got %s"
                % (what, type(pair).__name__)
            )
        if pair[0] in names:
            raise InvalidArgumentError("%s: name %r stands twice" % (what, pair[0]))
        names.add(pair[0])
        check_is_made(*pair)
        firsts.setdefault(id(pair[1]), pair)
    bare = _bare([name for name, _ in firsts.values()])
    return [(name, tensor) for name, (_, tensor) in zip(bare, firsts.values())]


def check_is_made(name: str, tensor: torch.Tensor) -> None:
    """Raises InvalidArgumentError if the tensor is a lazy module's, which has no shape yet."""
    if nn.parameter.is_lazy(tensor):
        raise InvalidArgumentError(
            "parameter %s: has no shape before the first forward pass, since its module is lazy; "
            "expected one pass of the model (without gradients) before" % name
        )


def _bare(names: List[str]) -> List[str]:
    names = [".".join(part for part in name.split(".") if part != "_orig_mod") for name in names]
    if not names or not all(name.startswith("module.") for name in names):
        return names
    return _bare([name[len("module.") :] for name in names])


def layers_of(named: Optional[Named], tensors: List[torch.Tensor]) -> List[str]:
    """Returns each parameter's kind of layer, from the class of the module that owns it.

    "" (the kind then follows from the shape) if the class is unknown or `named` is not a module.
    """
    kinds: Dict[int, str] = {}
    for module in named.modules() if isinstance(named, nn.Module) else ():
        for classes, kind in _LAYERS:
            if isinstance(module, classes):
                for parameter in module.parameters(recurse=False):
                    kinds.setdefault(id(parameter), kind)
    return [kinds.get(id(tensor), "") for tensor in tensors]


def check(tensor: torch.Tensor, what: str, dtypes: Sequence[torch.dtype]) -> None:
    """Raises InvalidArgumentError if the tensor is not a dense one of `dtypes` on a CPU or GPU."""
    if type(tensor).__name__ in _SHARDED:
        raise InvalidArgumentError(
            "%s: is a %s, which FSDP and tensor parallel make; expected whole tensors, as of a "
            "model that every worker holds" % (what, type(tensor).__name__)
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(
            "%s: expected a tensor on the CPU or a CUDA device, got one on %s"
            % (what, tensor.device)
        )
    if tensor.layout != torch.strided:
        raise InvalidArgumentError(
            "%s: expected a dense tensor, got layout %s" % (what, tensor.layout)
        )
    if tensor.is_complex():
        raise InvalidArgumentError(
            "%s: is complex, and the servers keep real numbers; expected a parameter of its real "
            "and imaginary parts (torch.view_as_real), of which the model makes "
            "torch.view_as_complex" % what
        )
    if tensor.dtype not in dtypes:
        raise InvalidArgumentError(
            "%s: expected %s, got %s" % (what, " or ".join(map(str, dtypes)), tensor.dtype)
        )


def is_dense(tensor: torch.Tensor) -> bool:
    """Returns True if the tensor's elements fill its memory, in any order of the dimensions."""
    return (
        tensor.is_contiguous()
        or torch.empty_like(tensor, device="meta").stride() == tensor.stride()
    )


def bits_of(parameter: torch.Tensor) -> np.ndarray:
    """Returns an array over a parameter's memory, whose elements are its bits as integers."""
    return floats(
        parameter.detach().view(torch.int16 if parameter.dtype in HALVES else torch.int32)
    )


def packed_gradient(gradient: torch.Tensor, name: str) -> np.ndarray:
    """Returns a gradient's values on the host as a packed array.

    They are not copied if they are contiguous float32.
    """
    if gradient.layout == torch.strided:
        gradient = gradient.detach().contiguous()
        if gradient.dtype in HALVES:
            gradient = gradient.float()
    check(gradient, "gradient of %s" % name, (torch.float32,))
    return floats(gradient)


def gradient_memory(gradient: torch.Tensor, name: str) -> native.Array:
    """Returns a dense gradient as the exchange takes it, on its GPU or packed on the host."""
    if gpu.is_on(gradient):
        return gpu.gradient_of(gradient, name)
    return packed_gradient(gradient, name)


def store_of(given: Optional[kv.KVStore], kind: str, options: Dict[str, Any]) -> kv.KVStore:
    """Returns the store `given`, or else one made by kv.create(kind, **options).

    Options that are None or "none" are left at their defaults.
    InvalidArgumentError: a store and options are given; the store has its own options.
    """
    wanted = {name: value for name, value in options.items() if value not in (None, "none")}
    if given is None:
        return kv.create(kind, **wanted)
    if wanted:
        raise InvalidArgumentError(
            "store: has its own options; expected no %s beside it" % ", ".join(sorted(wanted))
        )
    return given


def open_store() -> kv.KVStore:
    """Returns this process's distributed store.

    FailedPreconditionError: there is none, or more than one.
    """
    stores = _open_stores.distributed()
    if len(stores) != 1:
        raise FailedPreconditionError(
            "store: expected one that is open, found %d; make the DistributedOptimizer, the "
            "CommHookState or a "
            "slimps.kv.create(\"dist_sync\") first, or pass store=" % len(stores)
        )
    return stores[0]


def broadcast_parameters(parameters: Named, store: Optional[kv.KVStore] = None) -> None:
    """Copies rank 0's tensors into every worker's, in place.

    parameters  a module, named_parameters() or a state_dict() (for batch normalisation's buffers
                too), of any element types; values may be NaN or infinite
    store       None: this process's distributed store

    Collective, with equal names, shapes and types on all workers, as often as you like. The workers
    compare hashes; only tensors that differ on some worker travel, as they lie in memory, and the
    servers keep nothing of them. The parameters given to a DistributedOptimizer or a CommHookState
    do not need it: they are already rank 0's (DistributedOptimizer), or DistributedDataParallel
    copies them (CommHookState).

    Raises
        FailedPreconditionError: `store` is None, and this process has no distributed store, or more
            than one.
        InvalidArgumentError: `parameters` is something else, or has a name twice, or a tensor has
            another size on rank 0.
    """
    found = pairs(parameters, "broadcast_parameters")
    broadcast_tensors([tensor for _, tensor in found], open_store() if store is None else store)


def broadcast_others(tensors: NamedTensors, store: kv.KVStore) -> None:
    """Broadcasts a model's tensors that an optimizer does not step.

    Leaves out those that the store has, which belong to another optimizer.
    """
    broadcast_tensors([tensor for name, tensor in tensors if not store.has_key(name)], store)


def broadcast_tensors(tensors: List[torch.Tensor], store: kv.KVStore) -> None:
    """Copies rank 0's tensors into every worker's, in place. Collective."""
    group: List[torch.Tensor] = []
    for tensor in tensors:
        if group and _bytes_in(group) + _bytes_in([tensor]) > _MOST_COPIED:
            _broadcast(group, store)
            group = []
        group.append(tensor)
    _broadcast(group, store)


# Tensors on GPUs and of other layouts have packed copies on the host while they travel.
_MOST_COPIED = 1 << 30


def _bytes_in(tensors: List[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _broadcast(tensors: List[torch.Tensor], store: kv.KVStore) -> None:
    if not tensors:
        return
    packed = [gpu.on_host(tensor).detach().contiguous() for tensor in tensors]
    written = store.broadcast_bytes(
        [tensor.reshape(-1).view(torch.uint8).numpy() for tensor in packed]
    )
    with torch.no_grad():
        for tensor, values, differed in zip(tensors, packed, written):
            if differed:
                tensor.copy_(values)  # also where `values` is its memory: torch counts the change


def floats(tensor: torch.Tensor) -> np.ndarray:
    array = tensor.detach().numpy()
    return array if array.ndim else array.reshape(1)
