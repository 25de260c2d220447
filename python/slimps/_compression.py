# SPDX-License-Identifier: Apache-2.0
"""The compression of a store's pushes, as far as the Python side must know it."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Union

from slimps import native
from slimps.errors import InvalidArgumentError


class Compression(NamedTuple):
    """What is known of a store's codec.

    codec         its spec; empty if a dictionary was given
    refuses_half  float16 pushes are refused, as MXNet's compression refuses them
    momentum      the codec applies momentum itself (compress/codec/catalogue/decorators.h), so the
                  optimizer must not
    """

    codec: str
    refuses_half: bool = False
    momentum: bool = False

    @classmethod
    def of(cls, codec: str) -> "Compression":
        """Returns the Compression of a spec that the store has accepted."""
        name, _, options = codec.partition(":")
        return cls(
            codec,
            momentum=name == "dgc"
            or any(one.startswith("momentum=") for one in options.split(",")),
        )

    @property
    def takes_rows(self) -> bool:
        """True if the store takes pushes of rows: there is no compression."""
        return self.codec.partition(":")[0] == "none"

    @property
    def passes_non_finite(self) -> bool:
        """True if a push of NaN or infinity can travel raw: there are neither phases nor votes."""
        return self.codec.partition(":")[0] not in ("powersgd", "thc", "signsgd")

    @property
    def is_one_bit(self) -> bool:
        """True if pushes are `1bit`, by whatever options."""
        return self.codec.partition(":")[0] == "1bit"

    @property
    def counts_signs(self) -> bool:
        """True if the servers count signs, which have no scale."""
        return self.codec.partition(":")[0] == "signsgd"


def put(params: Union[str, Mapping[str, object]], store: native.Store) -> Compression:
    """Sets the store's compression, as KVStore.set_gradient_compression describes; returns it."""
    if isinstance(params, str):
        store.set_compression(params)
        return Compression.of(params)
    if not isinstance(params, Mapping):
        raise InvalidArgumentError(
            "compression_params: expected a dict or a str, got %s" % type(params).__name__
        )
    store.set_compression_dictionary({str(name): str(value) for name, value in params.items()})
    # BytePS's names (compress/codec/catalogue/dictionary.h); MXNet's have no momentum.
    momentum = any(str(name).endswith(("momentum", "momentum_type")) for name in params)
    return Compression("", "type" in params, momentum)
