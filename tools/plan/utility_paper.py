# SPDX-License-Identifier: Apache-2.0
"""The performance model of Agarwal et al., "On the Utility of Gradient Compression in Distributed
Training Systems", MLSys 2022, with the constants that the paper publishes. Pure.

    setup = Setup(RESNET50, workers=64, gbit=10.0)
    setup.sync_ms(), setup.powersgd_ms(), crossover_gbit(setup)

It answers the paper's own questions, to show that the answers of `slimps plan` mean the same thing
as the paper's. The plan itself is simulated (simulator.py), with no formula.

The latency alpha is 0, as in the paper's figures: with 0.5 to 1 ms (table 1) the ring's 2 (p - 1)
alpha would be 63 to 126 ms for each bucket of 64 machines, more than everything else together.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Optional

MB = 1e6
BUCKET_BYTES = 25 * MB  # section 2.2
GAMMA = 1.07  # middle of 1.04 to 1.1, section 4.1: backward is so much slower while it communicates


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the paper. `fitted`: where compute_ms comes from, if it is not published."""

    name: str
    gradient_bytes: float
    compute_ms: float  # backward pass of one batch of 64
    encode_decode_ms: float  # PowerSGD, rank 4
    ratio: float = 72.0  # PowerSGD, rank 4, table 3
    fitted: str = ""


# Sizes: section 3. Times: table 3.
RESNET50 = Network("ResNet-50", 97 * MB, 122.0, 45.0)


def scaled(name: str, gradient_bytes: float) -> Network:
    """Returns a network whose times are not published, with ResNet-50's times by its bytes.

    compute_ms is a first guess, which fit_compute replaces.
    """
    times = gradient_bytes / RESNET50.gradient_bytes
    return Network(
        name, gradient_bytes, RESNET50.compute_ms * times, RESNET50.encode_decode_ms * times
    )


@dataclasses.dataclass(frozen=True)
class Setup:
    """A network on `workers` machines; `batch` 64 is the one of which the times are known."""

    network: Network
    workers: int = 64
    gbit: float = 10.0
    batch: float = 64.0
    compute_speed: float = 1.0  # of backward and of encoding: figure 20
    encode_speed: float = 1.0  # k of figure 21
    growth: float = 1.0  # factor of PowerSGD's bytes: l k of figure 21

    def ring_ms(self, size: float) -> float:
        """Equation 1 with alpha = 0."""
        bytes_per_ms = self.gbit * 1e9 / 8e3
        return 2 * size * (self.workers - 1) / (self.workers * bytes_per_ms)

    def backward_ms(self) -> float:
        return self.network.compute_ms * self.batch / 64.0 / self.compute_speed

    def buckets(self) -> tuple[float, float]:
        """Returns the bytes of all buckets but the last, and those of the last."""
        count = -(-self.network.gradient_bytes // BUCKET_BYTES)
        before = (count - 1) * BUCKET_BYTES
        return before, self.network.gradient_bytes - before

    def sync_ms(self, ratio: float = 1.0) -> float:
        """Section 4.1: all buckets but the last overlap the backward pass.

        `ratio`: a compression that costs nothing (figure 18).
        """
        before, last = self.buckets()
        return max(GAMMA * self.backward_ms(), self.ring_ms(before / ratio)) + self.ring_ms(
            last / ratio
        )

    def powersgd_ms(self) -> float:
        """Appendix B: encoding and the two factors after the whole backward pass.

        P and Q together have gradient_bytes / ratio.
        """
        encode = self.network.encode_decode_ms / self.compute_speed / self.encode_speed
        factors = self.network.gradient_bytes / self.network.ratio * self.growth
        return self.backward_ms() + encode + self.ring_ms(factors)

    def gain_percent(self) -> float:
        """Returns by how much less time PowerSGD takes, in percent of syncSGD's (figure 9)."""
        return 100.0 * (1.0 - self.powersgd_ms() / self.sync_ms())


def root(of: Callable[[float], float], low: float, high: float) -> Optional[float]:
    """Returns where `of` changes its sign between low and high; None: it does not."""
    if of(low) * of(high) > 0:
        return None
    falls = of(low) > 0
    for _ in range(60):
        middle = (low + high) / 2
        if (of(middle) > 0) == falls:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def crossover_gbit(setup: Setup) -> Optional[float]:
    """Returns the bandwidth at which PowerSGD stops to pay (figures 3 and 19)."""

    def saved(gbit: float) -> float:
        there = dataclasses.replace(setup, gbit=gbit)
        return there.sync_ms() - there.powersgd_ms()

    return root(saved, 0.1, 100.0)


def required_ratio(setup: Setup) -> float:
    """Returns the compression that hides all buckets but the last (figures 12 and 18)."""
    before, _ = setup.buckets()
    return max(1.0, setup.ring_ms(before) / (GAMMA * setup.backward_ms()))


def fit_compute(network: Network, gbit: float, source: str) -> Network:
    """Returns `network` with the backward time for which PowerSGD stops to pay at `gbit`.

    Takes the time that the buckets before the last just hide, or less: beyond it syncSGD waits for
    compute, and the crossover would not depend on the link.
    ValueError: no time does that.
    """

    def saved(compute_ms: float) -> float:
        there = Setup(dataclasses.replace(network, compute_ms=compute_ms), gbit=gbit)
        return there.sync_ms() - there.powersgd_ms()

    link = Setup(network, gbit=gbit)
    found = root(saved, 0.0, link.ring_ms(link.buckets()[0]) / GAMMA)
    if found is None:
        raise ValueError("%s: no backward time crosses at %g Gbit/s" % (network.name, gbit))
    return dataclasses.replace(network, compute_ms=found, fitted=source)


def resnet101() -> Network:
    return fit_compute(scaled("ResNet-101", 170 * MB), 8.2, "figure 3: 8.2 Gbit/s")


def bert_base() -> Network:
    return fit_compute(scaled("BERT", 418 * MB), 15.0, "figure 19: 15 Gbit/s")


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: what the paper says, what its model gives, and whether compute was fitted."""

    figure: str
    what: str
    paper: str
    model: float
    fitted: str = ""


def comparison() -> list[Row]:
    """Returns every figure that the published constants reach."""
    there = Setup(RESNET50)
    faster = dataclasses.replace(there, compute_speed=3.5)
    small = dataclasses.replace(there, batch=16)
    rows = [
        Row(
            "18", "ResNet-50, batch 64, 10 Gbit/s: required ratio", "below 4", required_ratio(there)
        ),
        Row(
            "18", "ResNet-50, batch 16, 10 Gbit/s: required ratio", "below 4", required_ratio(small)
        ),
        Row("19", "ResNet-50: PowerSGD pays up to, Gbit/s", "9", crossover_gbit(there) or 0.0),
        Row(
            "20",
            "ResNet-50, compute 3.5 times faster: syncSGD / PowerSGD",
            "1.75",
            faster.sync_ms() / faster.powersgd_ms(),
        ),
    ]
    for k in (2, 3, 4):
        for factor in (1, 2, 3):
            traded = dataclasses.replace(there, encode_speed=k, growth=factor * k)
            rows.append(
                Row(
                    "21",
                    "ResNet-50, k = %d, l = %d: time over rank 4's" % (k, factor),
                    "below 1",
                    traded.powersgd_ms() / there.powersgd_ms(),
                )
            )
    deep, bert = resnet101(), bert_base()
    rows += [
        Row(
            "3",
            "ResNet-101: pays up to, Gbit/s",
            "8.2",
            crossover_gbit(Setup(deep)) or 0.0,
            deep.fitted,
        ),
        Row(
            "19", "BERT: pays up to, Gbit/s", "15", crossover_gbit(Setup(bert)) or 0.0, bert.fitted
        ),
    ]
    for batch, paper in ((16, "+42.5"), (32, "+25.7"), (64, "-6.3")):
        at = Setup(deep, workers=96, batch=batch)
        rows.append(
            Row(
                "9", "ResNet-101, batch %d: gain, %%" % batch, paper, at.gain_percent(), deep.fitted
            )
        )
    return rows
