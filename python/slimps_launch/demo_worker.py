# SPDX-License-Identifier: Apache-2.0
"""A worker of `slimps demo`: trains a network on handwritten digits, with numpy.

    python demo_worker.py SUMMARY.json OPTION=VALUE ...     (options of slimps.kv.create)

The network has two hidden layers of 512, as the demo of a checkout has. The servers step. Rank 0
writes the summary.
"""

import gzip
import json
import os
import sys
import time
from typing import Any, List, Tuple

import numpy as np

import slimps

WIDTHS = [64, 512, 512, 10]
EPOCHS = 4
BATCH = 32  # of each worker
DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits.csv.gz")


def digits() -> Tuple[np.ndarray, np.ndarray]:
    """Returns the images as (1797, 64) float32 with mean 0 and deviation 1, and (1797,) labels.

    The order is always the same, and as good as random.
    """
    with gzip.open(DIGITS, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    np.random.default_rng(0).shuffle(table)
    images = table[:, :-1]
    return (images - images.mean()) / images.std(), table[:, -1].astype(int)


def forward(weights: List[np.ndarray], images: np.ndarray) -> List[np.ndarray]:
    """Returns the input of each layer, and the last one's output."""
    values = [images]
    for layer in range(0, len(weights), 2):
        value = values[-1] @ weights[layer] + weights[layer + 1]
        values.append(np.maximum(value, 0) if layer < len(weights) - 2 else value)
    return values


def gradients(
    weights: List[np.ndarray], images: np.ndarray, labels: np.ndarray
) -> List[np.ndarray]:
    """Returns the gradients of the mean cross entropy, one per array of `weights`."""
    values = forward(weights, images)
    odds = np.exp(values[-1] - values[-1].max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    result: List[np.ndarray] = []
    for layer in reversed(range(0, len(weights), 2)):
        inputs = values[layer // 2]
        result[:0] = [inputs.T @ error, error.sum(axis=0)]
        error = (error @ weights[layer].T) * (inputs > 0)
    return result


def train(store: Any) -> float:
    """Returns the accuracy on the test images."""
    images, labels = digits()
    test, rest = slice(0, len(images) // 5), slice(len(images) // 5, None)
    random = np.random.default_rng(1)
    weights: List[np.ndarray] = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        spread = np.float32(np.sqrt(2 / inputs))
        weights += [random.standard_normal((inputs, outputs), np.float32) * spread]
        weights += [np.zeros(outputs, np.float32)]
    names = ["%d" % number for number in range(len(weights))]
    store.init(names, weights)
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.2, rescale_grad=1 / store.num_workers))
    accuracy = 0.0
    for epoch in range(EPOCHS):
        order = random.permutation(len(images[rest]))  # the same on all workers
        mine = order[store.rank :: store.num_workers]
        for start in range(0, len(order) // store.num_workers - BATCH + 1, BATCH):
            batch = mine[start : start + BATCH]
            found = gradients(weights, images[rest][batch], labels[rest][batch])
            store.pushpull(names, found, out=weights)
        accuracy = np.mean(forward(weights, images[test])[-1].argmax(axis=1) == labels[test])
        if store.rank == 0:
            print("epoch %d of %d: accuracy %.1f %%" % (epoch + 1, EPOCHS, 100 * accuracy))
    return float(accuracy)


def main(arguments: List[str]) -> None:
    options = dict(argument.split("=", 1) for argument in arguments[1:])
    with slimps.kv.create("dist_sync", **options) as store:
        began = time.monotonic()
        accuracy = train(store)
        seconds = time.monotonic() - began
        totals = store.totals()
        if store.rank == 0:
            summary = dict(totals, accuracy=accuracy, seconds=seconds)
            with open(arguments[0], "w", encoding="utf-8") as out:
                json.dump(summary, out)


if __name__ == "__main__":
    main(sys.argv[1:])
