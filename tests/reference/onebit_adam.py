# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam in float64: Tang et al., ICML 2021, algorithm 1, with Adam's bias corrections, and
masks for elements whose frozen variance is 0 (docs/decisions/onebit-adam.md).
"""

import numpy as np


def one_bit(x):
    """The 1bit codec by its paper's formula: in blocks of 4096, the signs times the mean of |x|."""
    blocks = [x[i : i + 4096] for i in range(0, len(x), 4096)]
    return np.concatenate([np.abs(b).mean() * np.where(b >= 0, 1.0, -1.0) for b in blocks])


def uncompressed(x):
    return x.copy()


class OneBitAdam:
    """Steps one tensor of one partition by the mean of the workers' gradients."""

    def __init__(self, weights, workers, freeze_after, compress, rate, betas, epsilon):
        self.weights = weights.astype(np.float64)
        self.freeze_after, self.compress = freeze_after, compress
        self.rate, self.betas, self.epsilon = rate, betas, epsilon
        self.updates = 0
        self.momentum, self.variance = np.zeros(weights.size), np.zeros(weights.size)
        self.worker_errors, self.server_error = np.zeros((workers, weights.size)), 0.0

    def step(self, gradients):
        """Steps by one gradient of each worker, and returns the weights."""
        beta1, beta2 = self.betas
        self.updates += 1
        if self.updates <= self.freeze_after:  # line 1: Adam
            g = gradients.astype(np.float64).mean(axis=0)
            self.momentum = beta1 * self.momentum + (1 - beta1) * g
            self.variance = beta2 * self.variance + (1 - beta2) * g * g
            corrected = self.variance / (1 - beta2**self.updates)
            if self.updates == self.freeze_after:
                self.variance = corrected
        else:
            self._compress(gradients)
            corrected = self.variance
        denominator = np.sqrt(corrected) + self.epsilon
        rate = self.rate / (1 - beta1**self.updates)
        self.weights = self.weights - rate * self.momentum / denominator  # line 12
        return self.weights

    def _compress(self, gradients):
        beta1 = self.betas[0]
        masked = self.variance == 0
        sent = []
        for own_error, gradient in zip(self.worker_errors, gradients):
            own = beta1 * self.momentum + (1 - beta1) * gradient  # line 6
            sent.append(self.compress(own + own_error))  # line 7
            own_error += own - sent[-1]
        mean = np.mean(sent, axis=0) + self.server_error  # line 9
        self.momentum = self.compress(mean)  # line 10
        self.server_error = mean - self.momentum
        first = masked & (gradients != 0).any(axis=0)
        if first.any():
            least = self.variance[~masked].mean() if not masked.all() else 0.0
            shown = self.momentum[first] / (1 - beta1)
            self.variance[first] = np.maximum(least, shown**2)
        masked = self.variance == 0
        self.momentum[masked] = 0
        self.server_error[masked] = 0
