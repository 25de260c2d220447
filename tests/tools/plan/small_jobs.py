# SPDX-License-Identifier: Apache-2.0
"""Models and costs of tests: few tensors, round numbers."""

from plan.terms import Cluster, CodecCosts, Costs, Curve, Layer, Model, Tensor

KIB = 1 << 10


def model(*elements, forward=1.0, backward=2.0):
    """Returns a model with a layer per tensor; each has the same times."""
    return Model(
        "small",
        tuple(Tensor("t%d" % index, count, (count,)) for index, count in enumerate(elements)),
        tuple(Layer(index, 1, forward, backward) for index in range(len(elements))),
    )


def linear(per_element):
    return Curve([(1, per_element)])


def codec(encode_ns=0.0, decode_ns=0.0, payload=4.0):
    return CodecCosts(linear(encode_ns * 1e-6), linear(decode_ns * 1e-6), linear(payload))


FREE = Costs(
    codecs={"none": codec(), "bf16": codec(payload=2.0), "1bit": codec(payload=0.125)},
    copy_ns=0.0,
    step_ns=0.0,
    local_ns=0.0,
    message_ms=0.0,
    item_ms=0.0,
    wire_ns=0.0,
)


def cluster(**changes):
    """Returns one worker and one server on nodes of their own; 1 MB takes 1 ms."""
    fields = {
        "workers": 1,
        "servers": 1,
        "together": False,
        "bits_per_second": 8e9,
        "efficiency": 1.0,
        "ahead_bytes": 0.0,
    }
    fields.update(changes)
    return Cluster(**fields)
