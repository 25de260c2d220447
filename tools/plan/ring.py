# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel with a ring all-reduce, beside which a plan stands. Pure.

Buckets are filled in the order in which gradients become ready, and are reduced one after the other
while the backward pass goes on. The next forward pass begins when all are there. The accelerators
sum, and the optimizer's step costs nothing. So this is what DDP reaches at best.
"""

from __future__ import annotations

from typing import Optional

from plan.terms import Cluster, Model, Tensor

FIRST_BUCKET_BYTES = 1 << 20  # torch: a small first bucket, then 25 MiB, in bytes of fp32
BUCKET_BYTES = 25 << 20
RANK = 4
# Encoding and decoding ResNet-50 with rank 4 takes 45 ms on a V100. Source: Agarwal et al., MLSys
# 2022, table 3. By elements, so that it holds for other models.
POWERSGD_NS = 45e6 / 25557032


def ring_ms(cluster: Cluster, size: float) -> float:
    """Returns the time of one all-reduce (Agarwal et al., equation 1)."""
    rate = cluster.bytes_per_ms()
    passage = 0.0 if rate is None else wire_bytes(cluster, size) / rate
    return passage + (cluster.workers - 1) * cluster.round_trip_ms


def wire_bytes(cluster: Cluster, size: float) -> float:
    """Returns the bytes that an all-reduce of `size` bytes sends over each link."""
    return 2 * size * (cluster.workers - 1) / cluster.workers


def ddp_ms(model: Model, cluster: Cluster, bytes_per_element: float) -> float:
    """Returns an iteration's time: bf16 has 2 bytes an element, by torch's bf16_compress_hook."""
    now = sum(layer.forward for layer in model.layers)
    free = now  # when the ring can begin
    bucket, limit = 0.0, float(FIRST_BUCKET_BYTES)
    for layer in reversed(model.layers):
        now += layer.backward
        for tensor in reversed(model.tensors[layer.first : layer.first + layer.tensors]):
            bucket += 4.0 * tensor.elements
            if bucket >= limit:
                free = max(free, now) + ring_ms(cluster, bucket / 4 * bytes_per_element)
                bucket, limit = 0.0, float(BUCKET_BYTES)
    if bucket > 0:
        free = max(free, now) + ring_ms(cluster, bucket / 4 * bytes_per_element)
    return max(free, now)


def factor_elements(tensor: Tensor) -> Optional[int]:
    """Returns the elements of both factors; None: torch's hook leaves the tensor whole."""
    rows = tensor.shape[0]
    columns = tensor.elements // rows
    factors = RANK * (rows + columns)
    # powerSGD_hook's min_compression_rate is 2.
    return factors if len(tensor.shape) > 1 and 2 * factors < tensor.elements else None


def powersgd_ms(model: Model, cluster: Cluster) -> Optional[float]:
    """Returns an iteration's time with rank 4 after the backward pass; None: no shapes are known.

    That is faster than overlapping both (Agarwal et al., section 3.1). P and Q are reduced one
    after the other, and beside P what is left whole.
    """
    if not all(tensor.shape for tensor in model.tensors):
        return None
    factors = whole = encoded = 0
    for tensor in model.tensors:
        small = factor_elements(tensor)
        if small is None:
            whole += tensor.elements
        else:
            factors += small
            encoded += tensor.elements
    return (
        model.compute_ms()
        + encoded * POWERSGD_NS * 1e-6
        + ring_ms(cluster, 4.0 * whole + 2.0 * factors)
        + ring_ms(cluster, 2.0 * factors)
    )
