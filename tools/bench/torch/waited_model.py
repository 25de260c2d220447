# SPDX-License-Identifier: Apache-2.0
"""A model whose accelerator is waited for: it has a real model's tensors and computes nothing.

    model = WaitedModel(description, step_s=0.161, seed=rank)   # describe_model's JSON
    model().backward()    # gradients come out of autograd, each at its time

A third of a step is the forward pass. A layer's share of both passes is its share of the model's
multiply-adds. Gradients are tensors of normal numbers, made once.
"""

import time

import torch
from torch import nn


class Accelerator:
    """A clock. Work is queued as on a GPU's stream; times count from the step's start.

    A forward piece begins when the piece before it has ended, or later if hooks of modules held the
    host up for so long. How long the host takes otherwise changes no time.
    """

    def __init__(self):
        self._free_at = 0.0  # when the newest piece of work ends
        self._host_at = 0.0  # the step's start, and what hooks have taken since
        self._called_at = 0.0

    def begin_step(self):
        self._host_at = time.monotonic()

    def call_layer(self):
        """Notes that the hooks before a layer's forward pass begin."""
        self._called_at = time.monotonic()

    def queue(self, seconds):
        """Queues a layer's forward pass, as soon as the hooks before it have returned."""
        self._host_at += time.monotonic() - self._called_at
        self._free_at = max(self._free_at, self._host_at) + seconds

    def finish(self, seconds):
        """Queues a layer's backward pass and waits until it has ended."""
        self._free_at += seconds
        left = self._free_at - time.monotonic()
        if left > 0:
            time.sleep(left)


class Pass(torch.autograd.Function):
    """A layer's passes. The backward pass returns gradients when the accelerator has made them."""

    @staticmethod
    def forward(ctx, signal, layer, *_):
        ctx.layer = layer
        layer.accelerator.queue(layer.forward_s)
        return signal.view_as(signal)

    @staticmethod
    def backward(ctx, signal):
        ctx.layer.accelerator.finish(2 * ctx.layer.forward_s)
        # New tensors on the same memory: autograd makes them `grad` as they are, without a copy.
        return (signal, None, *[gradient.detach() for gradient in ctx.layer.gradients])


class Layer(nn.Module):
    """Parameters whose gradients are ready together, or a folder of layers without parameters."""

    def __init__(self):
        super().__init__()
        self.gradients = []

    def take_part(self, accelerator, forward_s, tensors, generator):
        """Gives it its tensors, {name: shape}, and its place on the accelerator."""
        self.accelerator, self.forward_s, self.names = accelerator, forward_s, list(tensors)
        for name, shape in tensors.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
            self.gradients.append(torch.randn(shape, generator=generator))

    def forward(self, signal):
        return Pass.apply(signal, self, *[getattr(self, name) for name in self.names])


class WaitedModel(nn.Module):
    def __init__(self, description, step_s, seed):
        super().__init__()
        self._accelerator = Accelerator()
        self._layers = []  # in forward order; the modules are in a tree, by their tensors' names
        generator = torch.Generator().manual_seed(seed)
        tensors = iter(description["tensors"])
        for count, share in description["layers"]:
            named = dict(next(tensors) for _ in range(count))
            layer = self._module_of(next(iter(named)))
            layer.take_part(
                self._accelerator,
                share * step_s / 3,
                {name.rpartition(".")[2]: shape for name, shape in named.items()},
                generator,
            )
            self._layers.append(layer)

    def _module_of(self, tensor):
        """Returns the module that a tensor's name says, as in layer1.0.conv1.weight."""
        module = self
        for name in tensor.split(".")[:-1]:
            if name not in module._modules:
                module.add_module(name, Layer())
            module = module._modules[name]
        return module

    def forward(self):
        self._accelerator.begin_step()
        signal = torch.zeros(())
        for layer in self._layers:
            self._accelerator.call_layer()
            signal = layer(signal)
        return signal
