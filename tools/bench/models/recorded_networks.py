# SPDX-License-Identifier: Apache-2.0
"""The networks of models.h in PyTorch, to record gradients of. Tensors have the names of models.h.

    network = NETWORKS["bert_base"]()      # random first weights
    loss = network.loss(samples, labels)   # what record_gradients.py trains by
"""

import math

import torch
import torchvision
from torch import nn
from torch.nn import functional

BERT_WIDTH = GPT_WIDTH = 768
HEADS = 12
LAYERS = 12


class Images(nn.Module):
    """A network of torchvision on images, by cross entropy."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def loss(self, samples, labels):
        return functional.cross_entropy(self.network(samples), labels)

    def tensors(self):
        return dict(self.network.named_parameters())


class InceptionBn(nn.Module):
    """Ioffe and Szegedy, "Batch Normalization", 2015, figure 5. As models_of_images.cc has it."""

    # name, 1x1, 3x3 reduce, 3x3, double reduce, double, pool's projection (0: none)
    BLOCKS = (
        ("3a", 64, 64, 64, 64, 96, 32),
        ("3b", 64, 64, 96, 64, 96, 64),
        ("3c", 0, 128, 160, 64, 96, 0),
        ("4a", 224, 64, 96, 96, 128, 128),
        ("4b", 192, 96, 128, 96, 128, 128),
        ("4c", 160, 128, 160, 128, 160, 128),
        ("4d", 96, 128, 192, 160, 192, 128),
        ("4e", 0, 128, 192, 192, 256, 0),
        ("5a", 352, 192, 320, 160, 224, 128),
        ("5b", 352, 192, 320, 192, 224, 128),
    )

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict()
        self._add("conv1", 3, 64, 7, 2)
        self._add("conv2_reduce", 64, 64, 1)
        self._add("conv2", 64, 192, 3)
        channels = 192
        for name, one, reduce3, three, reduce_double, double, pool in self.BLOCKS:
            prefix = "inception_%s_" % name
            stride = 2 if one == 0 else 1
            if one:
                self._add(prefix + "1x1", channels, one, 1)
            self._add(prefix + "3x3_reduce", channels, reduce3, 1)
            self._add(prefix + "3x3", reduce3, three, 3, stride)
            self._add(prefix + "double_3x3_reduce", channels, reduce_double, 1)
            self._add(prefix + "double_3x3_1", reduce_double, double, 3)
            self._add(prefix + "double_3x3_2", double, double, 3, stride)
            if pool:
                self._add(prefix + "pool_proj", channels, pool, 1)
            channels = one + three + double + (pool or channels)
        self.layers["fc"] = nn.Linear(channels, 1000)

    def _add(self, name, inputs, outputs, kernel, stride=1):
        self.layers[name] = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
        self.layers[name + "_bn"] = nn.BatchNorm2d(outputs)

    def _run(self, name, values):
        return torch.relu(self.layers[name + "_bn"](self.layers[name](values)))

    def forward(self, values):
        values = functional.max_pool2d(self._run("conv1", values), 3, 2, 1)
        values = self._run("conv2", self._run("conv2_reduce", values))
        values = functional.max_pool2d(values, 3, 2, 1)
        for name, one, _, _, _, _, pool in self.BLOCKS:
            prefix = "inception_%s_" % name
            parts = [self._run(prefix + "1x1", values)] if one else []
            parts.append(self._run(prefix + "3x3", self._run(prefix + "3x3_reduce", values)))
            double = self._run(
                prefix + "double_3x3_1", self._run(prefix + "double_3x3_reduce", values)
            )
            parts.append(self._run(prefix + "double_3x3_2", double))
            pooled = functional.max_pool2d(values, 3, 1 if one else 2, 1)
            parts.append(self._run(prefix + "pool_proj", pooled) if pool else pooled)
            values = torch.cat(parts, 1)
        return self.layers["fc"](values.mean((2, 3)))

    def loss(self, samples, labels):
        return functional.cross_entropy(self(samples), labels)

    def tensors(self):
        return dict(self.layers.named_parameters())


class LstmPtb(nn.Module):
    """Zaremba et al., "Recurrent Neural Network Regularization", 2014, the medium one."""

    WORDS, UNITS, STEPS = 10000, 650, 35

    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(self.WORDS, self.UNITS)
        self.rnn = nn.LSTM(self.UNITS, self.UNITS, 2, batch_first=True, dropout=0.5)
        self.decoder = nn.Linear(self.UNITS, self.WORDS)

    def loss(self, samples, labels):
        hidden = functional.dropout(self.rnn(self.encoder(samples))[0], 0.5)
        return functional.cross_entropy(self.decoder(hidden).flatten(0, 1), labels.flatten())

    def tensors(self):
        return dict(self.named_parameters())


def attend(query, key, value, causal):
    """Attention of all heads. Shapes {batch, positions, width}."""

    def split(values):
        return values.unflatten(2, (HEADS, -1)).transpose(1, 2)

    scores = split(query) @ split(key).transpose(2, 3) / math.sqrt(query.shape[2] // HEADS)
    if causal:
        positions = query.shape[1]
        scores = scores + torch.full((positions, positions), -math.inf).triu(1)
    return (scores.softmax(3) @ split(value)).transpose(1, 2).flatten(2)


def small_weights(module):
    """The first weights of BERT and GPT-2: normal with deviation 0.02."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        width = BERT_WIDTH
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict(
                    {name: nn.Linear(width, width) for name in ("query", "key", "value")}
                ),
                "output": nn.ModuleDict(
                    {"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width)}
                ),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, 4 * width)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(4 * width, width), "LayerNorm": nn.LayerNorm(width)}
        )

    def forward(self, values):
        own, after = self.attention["self"], self.attention["output"]
        mixed = attend(own["query"](values), own["key"](values), own["value"](values), False)
        values = after["LayerNorm"](values + after["dense"](mixed))
        inner = functional.gelu(self.intermediate["dense"](values))
        return self.output["LayerNorm"](values + self.output["dense"](inner))


class BertBase(nn.Module):
    """Devlin et al., "BERT", 2019: base, with pooler; trained by its paper's two tasks.

    The two heads are not in models.h, so the words' head is not tied to the word embedding.
    """

    WORDS, STEPS = 30522, 128

    def __init__(self):
        super().__init__()
        self.bert = nn.Module()
        self.bert.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(self.WORDS, BERT_WIDTH),
                "position_embeddings": nn.Embedding(512, BERT_WIDTH),
                "token_type_embeddings": nn.Embedding(2, BERT_WIDTH),
                "LayerNorm": nn.LayerNorm(BERT_WIDTH),
            }
        )
        self.bert.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList([BertLayer() for _ in range(LAYERS)])}
        )
        self.bert.pooler = nn.ModuleDict({"dense": nn.Linear(BERT_WIDTH, BERT_WIDTH)})
        self.follows = nn.Linear(BERT_WIDTH, 2)
        self.words = nn.Linear(BERT_WIDTH, self.WORDS)
        self.apply(small_weights)

    def loss(self, samples, labels):
        embeddings = self.bert.embeddings
        positions = torch.arange(samples.shape[1])
        second = (positions >= samples.shape[1] // 2).long()
        values = embeddings["LayerNorm"](
            embeddings["word_embeddings"](samples)
            + embeddings["position_embeddings"](positions)
            + embeddings["token_type_embeddings"](second)
        )
        for layer in self.bert.encoder["layer"]:
            values = layer(values)
        pooled = torch.tanh(self.bert.pooler["dense"](values[:, 0]))
        follows, hidden = labels
        masked = hidden >= 0
        return functional.cross_entropy(self.follows(pooled), follows) + functional.cross_entropy(
            self.words(values[masked]), hidden[masked]
        )

    def tensors(self):
        return dict(self.bert.named_parameters())


class TransposedLinear(nn.Linear):
    """A linear layer whose weight is stored as inputs x outputs."""

    def __init__(self, inputs, outputs):
        super().__init__(outputs, inputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, values):  # pylint: disable=arguments-renamed
        return values @ self.weight + self.bias


class GptLayer(nn.Module):
    def __init__(self):
        super().__init__()
        width = GPT_WIDTH
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict(
            {"c_attn": TransposedLinear(width, 3 * width), "c_proj": TransposedLinear(width, width)}
        )
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": TransposedLinear(width, 4 * width),
                "c_proj": TransposedLinear(4 * width, width),
            }
        )

    def forward(self, values):
        parts = self.attn["c_attn"](self.ln_1(values)).chunk(3, 2)
        values = values + self.attn["c_proj"](attend(*parts, True))
        inner = functional.gelu(self.mlp["c_fc"](self.ln_2(values)))
        return values + self.mlp["c_proj"](inner)


class Gpt2(nn.Module):
    """Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: small."""

    WORDS, STEPS = 50257, 256

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(self.WORDS, GPT_WIDTH)
        self.wpe = nn.Embedding(1024, GPT_WIDTH)
        self.h = nn.ModuleList([GptLayer() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(GPT_WIDTH)
        self.apply(small_weights)

    def loss(self, samples, labels):
        values = self.wte(samples) + self.wpe(torch.arange(samples.shape[1]))
        for layer in self.h:
            values = layer(values)
        logits = self.ln_f(values) @ self.wte.weight.t()
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def tensors(self):
        return dict(self.named_parameters())


def of_torchvision(name):
    return lambda: Images(getattr(torchvision.models, name)(num_classes=1000))


NETWORKS = {
    "alexnet": of_torchvision("alexnet"),
    "vgg16": of_torchvision("vgg16"),
    "vgg19": of_torchvision("vgg19"),
    "resnet50": of_torchvision("resnet50"),
    "resnet152": of_torchvision("resnet152"),
    "inception_bn": InceptionBn,
    "lstm_ptb": LstmPtb,
    "bert_base": BertBase,
    "gpt2": Gpt2,
}
