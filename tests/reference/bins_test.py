# SPDX-License-Identifier: Apache-2.0
"""usage: bins_test.py CODEC_TOOL"""

import numpy as np

import bins
from arithmetic import F
from harness import INPUTS, compare, encode, huge

CONVOLUTION, DENSE = bins.CONVOLUTION, 2
# spec: reference, layer kind
CODECS = (
    ("adacomp", bins.adacomp(), CONVOLUTION),
    ("adacomp", bins.adacomp(), DENSE),
    ("adacomp:lt=64", bins.adacomp(64, 64), DENSE),
    ("adacomp:lt=65,scale_factor=3", bins.adacomp(65, 65, 3), DENSE),
    ("adacomp:lt_conv=500,lt_fc=5000", bins.adacomp(500, 5000), DENSE),
    ("adacomp:lt=1", bins.adacomp(1, 1), DENSE),
    ("local_selection", bins.local_selection(), CONVOLUTION),
    ("local_selection", bins.local_selection(), DENSE),
    ("local_selection:lt=7", bins.local_selection(7, 7), DENSE),
)


def effective_rates():
    """The residues of a gradient grow over rounds until they are sent. The rates settle near the
    paper's 40 and 200."""
    random = np.random.default_rng(11)
    for layer, length, least, most in ((CONVOLUTION, 50, 20, 80), (DENSE, 500, 100, 1000)):
        n, rounds = 20000, 40
        gradients = random.standard_normal((rounds, n)).astype(F)
        got = encode("adacomp", gradients, layer=layer, kernels="one")
        rates = [bins.effective_rate(n, round_.sent, length) for round_ in got]
        settled = float(np.mean(rates[rounds // 2 :]))
        assert least < settled < most, f"bins of {length}: effective rate {settled}"
        for round_ in got:
            assert round_.sent == np.count_nonzero(round_.decoded)
        print(
            f"bins of {length}: effective rate {rates[0]:.1f} in round 1, {settled:.1f} once "
            f"settled"
        )


def entry_bytes():
    """Returns the bytes of one block: header, directory entry, a bit per bin, then the entries."""
    gradient = np.random.default_rng(12).standard_normal((1, 4096)).astype(F)
    for length in (63, 64, 65):
        got = encode(f"adacomp:lt={length}", gradient, kernels="one")[0]
        bitmap = -(-(-(-4096 // length)) // 8)
        assert (
            len(got.payload) == 12 + 4 + bitmap + got.sent * bins.entry_bits(length) // 8
        ), f"bins of {length}"


def main():
    for spec, codec, layer in CODECS:
        compare(spec, codec, feedback=True, layer=layer, inputs=INPUTS + (huge,))
        compare(spec, codec, feedback=False, layer=layer, sizes=(255, 3 * 4096 + 5))
    entry_bytes()
    effective_rates()


if __name__ == "__main__":
    main()
