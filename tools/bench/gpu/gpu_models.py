# SPDX-License-Identifier: Apache-2.0
"""The models that slimps bench gpu trains, and a batch of random samples of each."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """A block of ResNet-50 (He et al. 2016, figure 5, right)."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *normalised(inputs, width, 1),
            nn.ReLU(inplace=True),
            *normalised(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *normalised(width, outputs, 1),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(*normalised(inputs, outputs, 1, stride))

    def forward(self, images):
        return torch.relu(self.body(images) + self.shortcut(images))


def normalised(inputs, outputs, size, stride=1):
    """Returns a convolution and its batch normalisation."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]


def resnet(blocks, width, classes):
    """Returns a ResNet of so many bottlenecks in each stage; (3, 4, 6, 3) is ResNet-50."""
    layers = normalised(3, width, 7, 2) + [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(inputs, width << stage, stride))
            inputs = 4 * width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Transformer(nn.Module):
    """An encoder that predicts a token at each place, without dropout."""

    def __init__(self, layers, width, heads, tokens, length):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(width, tokens)

    def forward(self, tokens):
        scores = self.out(self.encoder(self.embedding(tokens) + self.places))
        return scores.transpose(1, 2)  # classes second, as cross_entropy has them


def images(batch, size, classes):
    return torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))


def text(batch, length, tokens):
    return torch.randint(tokens, (batch, length)), torch.randint(tokens, (batch, length))


# Name -> what makes the model, and what makes a batch of samples and labels.
MODELS = {
    "resnet50": (lambda: resnet((3, 4, 6, 3), 64, 1000), lambda batch: images(batch, 224, 1000)),
    # BERT-base's sizes (Devlin et al. 2019).
    "transformer": (
        lambda: Transformer(12, 768, 12, 30522, 128),
        lambda batch: text(batch, 128, 30522),
    ),
    "small_resnet": (lambda: resnet((1, 1), 8, 10), lambda batch: images(batch, 32, 10)),
    "small_transformer": (
        lambda: Transformer(1, 32, 2, 100, 16),
        lambda batch: text(batch, 16, 100),
    ),
}


def make(name, batch, device):
    """Returns the model and its samples and labels, on the device. The same in every process."""
    torch.manual_seed(1)
    model, samples = MODELS[name]
    made = model().to(device)
    return (made,) + tuple(tensor.to(device) for tensor in samples(batch))
