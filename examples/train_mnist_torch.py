# SPDX-License-Identifier: Apache-2.0
r"""Handwritten digits: one process, DistributedOptimizer, or DistributedDataParallel with a hook.

    python3 examples/train_mnist_torch.py --mode plain                 # the script as it was before
    tools/slimps launch --workers 2 --servers 2 -- python3 examples/train_mnist_torch.py
    tools/slimps launch --workers 2 --servers 2 -- \
        python3 examples/train_mnist_torch.py --compression 1bit --backup_model on    # SlimGC
    tools/slimps launch --workers 2 --servers 2 -- python3 examples/train_mnist_torch.py --mode ddp

--data_dir holds MNIST's four files (train-images-idx3-ubyte.gz and so on, as Yann LeCun published
them). Without it the 1,797 digits that scikit-learn has with it are taken, enlarged to 28 x 28.
"""

import gzip
import os

import numpy as np
import torch
import training
from torch import nn


def idx(folder, name, header):
    with gzip.open(os.path.join(folder, name)) as packed:
        return np.frombuffer(packed.read(), np.uint8, offset=header)


def mnist(folder):
    """Yields (images, labels) to train on, then (images, labels) to test with.

    Images are {count, 1, 28, 28}, with mean 0 and deviation 1.
    """
    for part in ("train", "t10k"):
        images = idx(folder, part + "-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
        labels = idx(folder, part + "-labels-idx1-ubyte.gz", 8)
        yield (
            (torch.from_numpy(images.astype(np.float32)) / 255 - 0.1307) / 0.3081,
            torch.from_numpy(labels.astype(np.int64)),
        )


def digits():
    """Returns the same as mnist() from scikit-learn's digits; every fifth image is for the test."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = nn.functional.interpolate(
        torch.from_numpy(bunch.images.astype(np.float32))[:, None], size=(28, 28)
    )
    images = (images - 4.884) / 6.017
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    to_test = torch.arange(len(labels)) % 5 == 0
    return (images[~to_test], labels[~to_test]), (images[to_test], labels[to_test])


def lenet():
    """Returns LeNet (LeCun et al. 1998) in Caffe's widths."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


def main():
    parser = training.parser(__doc__.split("\n", maxsplit=1)[0], epochs=3, batch=32, lr=0.1)
    parser.add_argument("--data_dir", default="")
    parser.add_argument("--save", default="", help="rank 0 saves the model's state here")
    flags = parser.parse_args()
    device = training.device(flags)
    torch.set_num_threads(1)
    torch.manual_seed(flags.seed)
    parts = mnist(flags.data_dir) if flags.data_dir else digits()
    (images, labels), (test_images, test_labels) = (
        (images.to(device), labels.to(device)) for images, labels in parts
    )
    model = lenet().to(device)

    def accuracy(trained):
        if flags.save:
            torch.save(trained.state_dict(), flags.save)
        right = sum(
            int((trained(part).argmax(1) == expected).sum())
            for part, expected in zip(test_images.split(500), test_labels.split(500))
        )
        return 100 * right / len(test_labels)

    with training.Run(flags, model, torch.optim.SGD(model.parameters(), lr=flags.lr)) as run:
        for samples in run.steps(len(labels)):
            run.step(nn.functional.cross_entropy(run.model(images[samples]), labels[samples]))
        run.report(accuracy, "test accuracy %.2f %%")


if __name__ == "__main__":
    main()
