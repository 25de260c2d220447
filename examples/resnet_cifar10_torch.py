# SPDX-License-Identifier: Apache-2.0
r"""torchvision's ResNet-18 on CIFAR-10, its first layers cut down to images of 32 x 32.

    tools/slimps launch --workers 2 --servers 2 -- \
        python3 examples/resnet_cifar10_torch.py --data_dir DIR \
        --compression 1bit --pull_compression 1bit --backup_model on    # SlimGC

--data_dir holds the binary files data_batch_1.bin to data_batch_5.bin and test_batch.bin, or each
with .xz behind it. Without it random images are taken, which shows the speed, and an accuracy that
means nothing.
"""

import lzma
import os

import numpy as np
import torch
import torchvision
import training
from torch import nn

RECORD = 1 + 3 * 32 * 32


def read(path):
    if os.path.exists(path):
        with open(path, "rb") as plain:
            return plain.read()
    with lzma.open(path + ".xz") as packed:
        return packed.read()


def cifar10(folder, names):
    """Returns the images as bytes, {count, 3, 32, 32}, and the labels, {count}."""
    records = np.frombuffer(
        b"".join(read(os.path.join(folder, name + ".bin")) for name in names), np.uint8
    )
    records = records.reshape(-1, RECORD)
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(
        records[:, 0].astype(np.int64)
    )


def random_images(count):
    made = torch.Generator().manual_seed(0)
    return (
        torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=made),
        torch.randint(0, 10, (count,), generator=made),
    )


def normal(images):
    mean, deviation = torch.tensor(
        [[0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]], device=images.device
    )
    return (images / 255.0 - mean[:, None, None]) / deviation[:, None, None]


def resnet18():
    """Returns ResNet-18 for small images: a 3 x 3 convolution first, and no pooling after it.

    He et al. 2016, section 4.2.
    """
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def main():
    parser = training.parser(__doc__.split("\n", maxsplit=1)[0], epochs=1, batch=32, lr=0.05)
    parser.add_argument("--data_dir", default="")
    flags = parser.parse_args()
    device = training.device(flags)
    torch.set_num_threads(1)
    torch.manual_seed(flags.seed)
    if flags.data_dir:
        images, labels = cifar10(
            flags.data_dir, ["data_batch_%d" % number for number in range(1, 6)]
        )
        test_images, test_labels = cifar10(flags.data_dir, ["test_batch"])
    else:
        images, labels = random_images(4096)
        test_images, test_labels = random_images(256)
    images, labels = images.to(device), labels.to(device)
    test_images, test_labels = test_images.to(device), test_labels.to(device)
    model = resnet18().to(device)

    def accuracy(trained):
        right = sum(
            int((trained(normal(part)).argmax(1) == expected).sum())
            for part, expected in zip(test_images.split(250), test_labels.split(250))
        )
        return 100 * right / len(test_labels)

    with training.Run(
        flags,
        model,
        torch.optim.SGD(model.parameters(), lr=flags.lr, momentum=0.9, weight_decay=5e-4),
    ) as run:
        for samples in run.steps(len(labels)):
            run.step(
                nn.functional.cross_entropy(run.model(normal(images[samples])), labels[samples])
            )
        run.report(accuracy, "test accuracy %.2f %%")


if __name__ == "__main__":
    main()
