# SPDX-License-Identifier: Apache-2.0
"""Trains a model of models.h for some steps and writes what its gradients are like, by tensor.

    python3 tools/bench/models/record_gradients.py resnet50 --data DIR --into FOLDER

It needs torch and torchvision (debian_packages.txt) and, in DIR, CIFAR-10's
data_batch_1.bin or .bin.xz (images) or WikiText-2's valid.txt (words). Two workers then take one
batch each at the same weights. FOLDER/MODEL.txt gets the statistics of both gradients;
gradient_statistics.h says what they mean.
"""

import argparse
import lzma
import math
import os
import re
import sys
import time

import recorded_networks
import torch
from torch.nn import functional

RANKS = (1, 2, 4, 8, 16, 32)
ZERO = 1e-6  # a row whose norm is below this part of the largest row's counts as zero
RECORD = 1 + 3 * 32 * 32  # bytes of an image of CIFAR-10, with its label
SUBCLASSES = 100

# side: of the images, in pixels. rate: of SGD with momentum 0.9 for images, of Adam for text.
RECORDINGS = {
    "alexnet": {"side": 224, "batch": 32, "steps": 10, "rate": 0.01},
    "vgg16": {"side": 224, "batch": 16, "steps": 4, "rate": 0.01},
    "vgg19": {"side": 224, "batch": 16, "steps": 3, "rate": 0.01},
    "resnet50": {"side": 112, "batch": 32, "steps": 15, "rate": 0.05},
    "resnet152": {"side": 112, "batch": 16, "steps": 6, "rate": 0.05},
    "inception_bn": {"side": 112, "batch": 32, "steps": 15, "rate": 0.05},
    "lstm_ptb": {"batch": 20, "steps": 60, "rate": 1e-3},
    "bert_base": {"batch": 8, "steps": 40, "rate": 1e-4},
    "gpt2": {"batch": 2, "steps": 12, "rate": 1e-4},
}


# ---- data
# --------------------------------------------------------------------------------------------


class ImageSource:
    """CIFAR-10 enlarged, in 1000 classes: its class, and the image's number modulo 100."""

    def __init__(self, path, side):
        opener = lzma.open if path.endswith(".xz") else open
        with opener(path, "rb") as file:
            data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(-1, RECORD)
        self.labels = data[:, 0].long() * SUBCLASSES + torch.arange(len(data)) % SUBCLASSES
        self.pixels = data[:, 1:].view(-1, 3, 32, 32)
        self.side = side

    def batch(self, size, generator):
        chosen = torch.randint(len(self.labels), (size,), generator=generator)
        images = (self.pixels[chosen].float() - 121.0) / 64.0
        images = functional.interpolate(
            images, (self.side, self.side), mode="bilinear", align_corners=False
        )
        return images, self.labels[chosen]


class TextSource:
    """A text's words as numbers, the most frequent word first. Windows of `steps` words."""

    def __init__(self, path, words, steps):
        with open(path, encoding="utf-8") as file:
            text = re.findall(r"\S+", file.read())
        counts = {}
        for word in text:
            counts[word] = counts.get(word, 0) + 1
        ranked = sorted(counts, key=lambda word: -counts[word])
        number = {word: min(rank, words - 1) for rank, word in enumerate(ranked)}
        self.words = torch.tensor([number[word] for word in text])
        self.steps = steps

    def windows(self, size, length, generator):
        starts = torch.randint(len(self.words) - length, (size,), generator=generator)
        return torch.stack([self.words[at : at + length] for at in starts.tolist()])

    def batch(self, size, generator):
        """Windows and the words that follow each of theirs."""
        windows = self.windows(size, self.steps + 1, generator)
        return windows[:, :-1], windows[:, 1:]


class PairSource(TextSource):
    """Windows with hidden words, whose second half follows the first half or not.

    Labels: 1 or 0 for a window whose second half follows; each hidden word, -1 at the others.
    """

    HIDDEN = 0.15

    def batch(self, size, generator):
        first = self.windows(size, self.steps, generator)
        other = self.windows(size, self.steps, generator)
        labels = torch.randint(2, (size,), generator=generator)
        half = self.steps // 2
        second = torch.where(labels[:, None] == 1, first[:, half:], other[:, half:])
        windows = torch.cat([first[:, :half], second], 1)
        hidden = torch.rand(windows.shape, generator=generator) < self.HIDDEN
        words = torch.where(hidden, windows, torch.tensor(-1))
        mask = recorded_networks.BertBase.WORDS - 1  # no word of the text has this number
        return torch.where(hidden, torch.tensor(mask), windows), (labels, words)


def find_file(folder, *names):
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    sys.exit("record_gradients: %s: expected a folder with %s" % (folder, " or ".join(names)))


def source_of(name, folder):
    """Returns the data that the model is trained on."""
    if "side" in RECORDINGS[name]:
        path = find_file(folder, "data_batch_1.bin", "data_batch_1.bin.xz")
        return ImageSource(path, RECORDINGS[name]["side"])
    network = recorded_networks.NETWORKS[name]
    kind = PairSource if name == "bert_base" else TextSource
    path = find_file(folder, "valid.txt")
    return kind(path, network.WORDS, network.STEPS)


# ---- training
# ----------------------------------------------------------------------------------------


def gradients(network, source, batch, generator):
    """Returns the loss and {tensor: its gradient} of one batch."""
    network.zero_grad()
    loss = network.loss(*source.batch(batch, generator))
    loss.backward()
    return loss.item(), {
        name: tensor.grad.detach().clone() for name, tensor in network.tensors().items()
    }


def train(name, source, say):
    """Trains and returns the two workers' gradients."""
    how = RECORDINGS[name]
    torch.manual_seed(1)
    network = recorded_networks.NETWORKS[name]()
    network.train()
    if "side" in how:
        optimizer = torch.optim.SGD(network.parameters(), how["rate"], momentum=0.9)
    else:
        optimizer = torch.optim.Adam(network.parameters(), how["rate"])
    generator = torch.Generator().manual_seed(2)
    for step in range(how["steps"]):
        began = time.monotonic()
        network.zero_grad()
        loss = network.loss(*source.batch(how["batch"], generator))
        loss.backward()
        optimizer.step()
        say("step %d: loss %.4f, %.1f s" % (step + 1, loss.item(), time.monotonic() - began))
    return [gradients(network, source, how["batch"], generator)[1] for _ in range(2)]


# ---- statistics
# --------------------------------------------------------------------------------------


def spread(norms):
    """Returns the part of `norms` that is zero, and how far the others are spread.

    That is the deviation of ln(norm) of a log-normal distribution with their mean / rms.
    """
    alive = norms[norms > ZERO * norms.max()].double()
    ratio = (alive.mean() / alive.square().mean().sqrt()).item()
    return 1.0 - len(alive) / len(norms), math.sqrt(max(0.0, -2 * math.log(ratio)))


def captured(matrix):
    """Returns the part of the squared norm that the best approximation of each rank has."""
    least = min(matrix.shape)
    if least <= 512:
        values = torch.linalg.svdvals(matrix)
    else:
        values = torch.svd_lowrank(matrix, q=2 * max(RANKS), niter=3)[1]
    energy = (values.double() ** 2).cumsum(0) / matrix.double().square().sum()
    return [min(1.0, energy[min(rank, len(energy)) - 1].item()) for rank in RANKS]


def mean_rows(rows):
    return [sum(values) / len(values) for values in zip(*rows)]


def statistics_of(pair):
    """Returns the numbers of one tensor from two workers' gradients, as the table has them."""
    matrices = [gradient.reshape(gradient.shape[0], -1) for gradient in pair]
    rms = torch.stack(matrices).double().square().mean().sqrt().item()
    if rms == 0:
        return [0.0]
    flat = [matrix.double().flatten() for matrix in matrices]
    cosine = (flat[0] @ flat[1] / (flat[0].norm() * flat[1].norm() + 1e-300)).item()
    spreads = mean_rows([spread(m.norm(dim=1)) + spread(m.norm(dim=0)) for m in matrices])
    numbers = [rms, cosine] + spreads
    if min(matrices[0].shape) > 1:
        numbers += mean_rows([captured(matrix) for matrix in matrices])
    return numbers


def table(name, pair):
    how = RECORDINGS[name]
    what = (
        "CIFAR-10 enlarged to %d x %d" % (how["side"], how["side"])
        if "side" in how
        else "WikiText-2, validation split, windows of %d words"
        % recorded_networks.NETWORKS[name].STEPS
    )
    lines = [
        "# %s: two gradients of batch %d after %d steps from random weights, %s"
        % (name, how["batch"], how["steps"], what),
        "# tensor rows cols rms cosine zero_rows row_spread zero_cols col_spread " "energy of rank",
        "# " + " ".join(map(str, RANKS)),
    ]
    for tensor, first in pair[0].items():
        numbers = statistics_of([first, pair[1][tensor]])
        rows = first.shape[0]
        lines.append(
            " ".join(
                [tensor, str(rows), str(first.numel() // rows)] + ["%.3g" % v for v in numbers]
            )
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", choices=list(RECORDINGS))
    parser.add_argument("--data", required=True, metavar="DIR", help="CIFAR-10's or the text's")
    parser.add_argument("--into", required=True, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if not os.path.isdir(options.into):
        parser.error("--into: expected a folder, got %s" % options.into)
    torch.set_num_threads(options.threads)
    source = source_of(options.model, options.data)
    pair = train(options.model, source, lambda line: print(line, file=sys.stderr, flush=True))
    text = table(options.model, pair)
    with open(os.path.join(options.into, options.model + ".txt"), "w", encoding="utf-8") as out:
        out.write(text)


if __name__ == "__main__":
    main()
