# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients, as nn.Embedding(sparse=True) makes them: some rows, and zero elsewhere."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import nn

from slimps import kv
from slimps.errors import InvalidArgumentError
from slimps.pytorch import gpu, params


def expected(
    named: Optional[params.Named], names: Sequence[str], tensors: Sequence[torch.Tensor]
) -> Iterator[str]:
    """Yields the names of the tensors that get sparse gradients, by the modules of `named`."""
    if not isinstance(named, nn.Module):
        return
    weights = {
        id(module.weight)
        for module in named.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse
    }
    for name, tensor in zip(names, tensors):
        if id(tensor) in weights:
            yield name


def check(name: str, store: kv.KVStore, backup_model: bool, node_first: bool) -> None:
    """Raises InvalidArgumentError unless rows of the parameter `name` can be sent."""
    for is_so, why in (
        (not store.takes_rows, "compression=None and policy=None, since codecs know whole tensors"),
        (backup_model, "backup_model=False, since its local step needs whole gradients"),
        (node_first, "node_first=False, since the workers of a node add up whole gradients"),
    ):
        if is_so:
            raise InvalidArgumentError(
                "gradient of %s: is sparse; expected sparse=False in its nn.Embedding, or %s"
                % (name, why)
            )


def of(gradient: torch.Tensor, name: str) -> Tuple[np.ndarray, np.ndarray]:
    """Returns a sparse gradient's row numbers, int64, ascending and each once, and their values.

    InvalidArgumentError: it is sparse in more than its first dimension.
    """
    if gradient._nnz() == 0:  # of any form
        return np.empty(0, np.int64), np.empty(0, np.float32)
    if gradient.sparse_dim() != 1:
        raise InvalidArgumentError(
            "gradient of %s: expected a sparse tensor of whole rows, got %d sparse dimensions"
            % (name, gradient.sparse_dim())
        )
    gradient = gpu.on_host(gradient.detach().coalesce())
    rows = gradient.indices()[0].contiguous().numpy()
    return rows, params.packed_gradient(gradient.values(), name)
