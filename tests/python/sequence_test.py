# SPDX-License-Identifier: Apache-2.0
"""Random sequences of init, push, pull and pushpull equal a plain numpy model (sequences.py)."""

import jobs
import pytest


@pytest.mark.parametrize("optimizer", ["none", "test"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_random_sequence_equals_numpy(seed, optimizer):
    for said in jobs.run("sequences", str(seed), optimizer):
        assert "keys as numpy has them" in said
