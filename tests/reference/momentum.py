# SPDX-License-Identifier: Apache-2.0
"""Deep Gradient Compression (Lin et al., ICLR 2018): what it does before any codec. From the
papers.

That is momentum correction, factor masking, local clipping and warm-up. Also BytePS's Nesterov
momentum (Zheng et al. 2019).
"""

import numpy as np

from arithmetic import F, total

# DGC, section 3.3: sparsity 75 %, 93.75 %, 98.4375 %, 99.6 %, 99.9 %.
WARMUP_DENSITIES = (0.25, 0.0625, 0.015625, 0.004, 0.001)


def heavy_ball(u, g, mu):
    """DGC, section 3.2: u = mu u + g, and u accumulates."""
    u = mu * u + g
    return u, u


def nesterov(u, g, mu):
    """u = mu u + g, and g + mu u goes on to the codec."""
    u = mu * u + g
    return u, mu * u + g


def dgc_nesterov(u, g, mu):
    """DGC's Nesterov form: u = mu (u + g); u + g accumulates."""
    u = mu * (u + g)
    return u, u + g


class Before:
    """Changes a gradient before the codec, and the momentum after it."""

    def __init__(self, rule=None, mu=0.9, clip=None, workers=1, masks=False):
        self.rule, self.mu, self.clip, self.workers, self.masks = rule, F(mu), clip, workers, masks
        self.momentum = np.zeros(0, F)

    def begin(self, n):
        self.momentum = np.zeros(n if self.rule else 0, F)

    def advance(self, gradient, grad_scale):
        """Clips locally to clip / sqrt(workers), as a part of the scale. Then applies momentum."""
        scale = F(grad_scale)
        if self.clip is not None:
            g = gradient * scale
            norm2 = total(g * g)
            if not np.isfinite(norm2):
                norm2 = sum(float(value) * float(value) for value in g)
            norm = np.sqrt(norm2)
            bound = self.clip / np.sqrt(self.workers)
            if norm > bound:
                scale = scale * F(bound / norm)
        g = gradient * scale
        if not self.rule:
            return g
        self.momentum, onward = self.rule(self.momentum, g, self.mu)
        return onward

    def after(self, sent):
        """Factor masking: the momentum of sent elements starts again at 0."""
        if self.masks:
            self.momentum = np.where(sent, F(0), self.momentum)


def warmup(codec_of_density, ratio, rounds_per_step):
    """Returns the densities of the paper above the codec's own, each for a number of rounds, then
    the codec's own."""
    densities = [density for density in WARMUP_DENSITIES if density > ratio] + [ratio]

    def encode(x, step):
        index = min((step.round - 1) // rounds_per_step, len(densities) - 1)
        return codec_of_density(densities[index])(x, step)

    return encode
