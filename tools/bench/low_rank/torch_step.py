# SPDX-License-Identifier: Apache-2.0
"""Times one worker's step of powersgd in torch on one thread: algorithms 1 and 2 of PowerSGD
(arXiv 1905.13727) as torch's own DDP hook computes them. Prints the median milliseconds of a step
and the library that multiplies the matrices.

usage: torch_step.py ROWS COLUMNS RANK RUNS
"""

import os
import re
import statistics
import sys
import time

import torch

WARM_UP = 2


def orthogonalise(factor):
    """Makes the columns orthonormal in place, by Gram-Schmidt as the hook does for fp32."""
    for column in range(factor.shape[1]):
        vector = factor[:, column : column + 1]
        vector /= torch.norm(vector)
        if column + 1 < factor.shape[1]:
            rest = factor[:, column + 1 :]
            rest -= torch.sum(vector * rest, dim=0) * vector


def step(gradient, error, q):
    matrix = gradient + error
    orthogonalise(q)
    p = matrix @ q
    orthogonalise(p)
    torch.matmul(matrix.t(), p, out=q)
    torch.sub(matrix, p @ q.t(), out=error)


def library():
    """Returns the file name of the BLAS that is loaded."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        files = {os.path.basename(line.split()[-1]) for line in maps if "/" in line}
    for name in ("openblas", "mkl", "blas"):
        for file in sorted(files):
            if re.match(r"lib[a-z_]*" + name, file):
                return file
    return "unknown"


def main():
    rows, columns, rank, runs = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    gradient = torch.randn(rows, columns)
    error = torch.zeros(rows, columns)
    q = torch.randn(columns, rank)
    times = []
    for number in range(WARM_UP + runs):
        begin = time.thread_time()
        step(gradient, error, q)
        if number >= WARM_UP:
            times.append(1e3 * (time.thread_time() - begin))
    print("%.6f %s" % (statistics.median(times), library()))


if __name__ == "__main__":
    main()
