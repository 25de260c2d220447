# SPDX-License-Identifier: Apache-2.0
"""AdaComp (Chen et al., AAAI 2018) and local selection, its baseline, from the paper.

Functions have the form of those in quantizers.py.
"""

import numpy as np

from arithmetic import BLOCK, F

CONVOLUTION = 1  # LayerKind


def bin_maxima(magnitude, length):
    return np.maximum.reduceat(magnitude, np.arange(0, len(magnitude), length))


def one_scale(maxima, length, n):
    """Returns the paper's one scale of a layer, the mean of g_max.

    The maxima of the bins that begin in a block are added one after the other in fp64, then the
    blocks' sums.
    """
    of_block = np.arange(0, n, length) // BLOCK
    total = 0.0
    for block in np.unique(of_block):
        group = 0.0
        for value in maxima[of_block == block]:
            group += float(value)
        total += group
    return F(total / len(maxima))


def ternary(x, chosen, scale):
    """Quantize() of the chosen elements. An element with sign 0 is not sent."""
    return np.where(chosen & (x > 0), scale, np.where(chosen & (x < 0), -scale, F(0))).astype(F)


def adacomp(lt_conv=50, lt_fc=500, scale_factor=2):
    """Algorithm 2, with x = G = residue + dW and H = G + dW. Sends sign(G) * scale where |H| >=
    max|G| of the bin."""

    def encode(x, step):
        length = lt_conv if step.layer == CONVOLUTION else lt_fc
        maxima = bin_maxima(np.abs(x), length)
        h = x + F(scale_factor - 1) * step.gradient
        chosen = np.abs(h) >= np.repeat(maxima, length)[: len(x)]
        return ternary(x, chosen, one_scale(maxima, length, len(x)))

    return encode


def local_selection(lt_conv=50, lt_fc=500):
    """AdaComp's local selection without its soft threshold: only each bin's maximum, of equals the
    first."""

    def encode(x, step):
        length = lt_conv if step.layer == CONVOLUTION else lt_fc
        maxima = bin_maxima(np.abs(x), length)
        first = [
            begin + np.argmax(np.abs(x[begin : begin + length]))
            for begin in range(0, len(x), length)
        ]
        chosen = np.zeros(len(x), bool)
        chosen[first] = True
        return ternary(x, chosen, one_scale(maxima, length, len(x)))

    return encode


def entry_bits(length):
    """Returns 8 for bins of up to 64, 16 for longer ones (up to 16 K).

    The paper has 8 bits for bins under 64. The format includes 64.
    """
    return 8 if length <= 64 else 16


def effective_rate(n, sent, length):
    """The paper's effective compression rate: 32 bits per element over the bits of the sent
    entries.

    Header, directory and bitmaps do not count.
    """
    return 32 * n / (entry_bits(length) * sent)
