# SPDX-License-Identifier: Apache-2.0
"""The scenarios of torch_overlap_test.py: modules that wait for their own weights."""

import copy

import scenario
import slimps
import slimps.torch
import torch
from torch_training import batches, farthest, loss_of, mine, network, refused, step

CASES = {
    "plain": ({}, {}),
    "backup": ({}, {"backup_model": True}),
    "clipped": ({}, {"clip_norm": 0.5}),
    "1bit": ({"compression": "1bit", "threshold": 0, "pull_compression": "1bit"}, {}),
}


def optimizers(model, waiting, of_store=None, **options):
    """Returns an optimizer whose model's modules wait, and one that waits, of one store."""
    overlapping = slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model,
        overlap_forward=True,
        **(of_store or {}),
        **options,
    )
    reference = slimps.torch.DistributedOptimizer(
        torch.optim.SGD(waiting.parameters(), lr=0.1, momentum=0.9),
        [("waiting." + name, one) for name, one in waiting.named_parameters()],
        store=overlapping.store,
        **options,
    )
    return overlapping, reference


def has_the_bits_of_steps_that_wait(case):
    model, waiting = network(), network()
    of_store, options = CASES[case]
    optimizer, reference = optimizers(model, waiting, of_store, **options)
    with optimizer, reference:
        for images, labels in batches(6):
            for one, of in ((optimizer, model), (reference, waiting)):
                step(one, of, *mine(optimizer.store.rank, images, labels))
    assert farthest(model, waiting) == 0


def whoever_reads_weights_between_steps_has_them(dtype):
    """In an evaluation, a state_dict() and global_weights()."""
    dtype = getattr(torch, dtype)
    model, waiting = network().to(dtype), network().to(dtype)
    optimizer, reference = optimizers(model, waiting)
    with optimizer, reference:
        for images, labels in batches(4):
            images = images.to(dtype)
            both = ((optimizer, model), (reference, waiting))
            for one, of in both:
                step(one, of, *mine(optimizer.store.rank, images, labels))
            with torch.no_grad():
                assert torch.equal(model(images), waiting(images))
            for one, of in both:
                step(one, of, *mine(optimizer.store.rank, images, labels))
            expected = waiting.state_dict()
            for name, saved in model.state_dict().items():
                assert torch.equal(saved, expected[name])
            with optimizer.global_weights():
                assert farthest(copy.deepcopy(model), waiting) == 0


class Tied(torch.nn.Module):
    """A language model's head, which reads the embedding's weight outside of its module."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.embedding = torch.nn.Embedding(5, 4)
        self.out = torch.nn.Linear(4, 4)
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, tokens=None, values=None):
        if values is None:
            values = self.embedding(tokens)
        return torch.nn.functional.linear(self.out(values), self.embedding.weight)


def a_parameter_that_nobody_waited_for_is_named():
    model = Tied()
    tokens, values = torch.tensor([1, 3]), torch.ones(2, 4)
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, overlap_forward=True
    ) as optimizer:
        model(values=values).sum().backward()  # the first step's weights are there
        optimizer.step()
        model(tokens).sum().backward()  # its module has waited, before
        optimizer.step()
        optimizer.await_weights()
        model(values=values).sum().backward()
        optimizer.step()
        refused(
            slimps.FailedPreconditionError,
            "parameter embedding.weight: has a gradient, but the module",
            lambda: model(values=values).sum().backward(),
        )
        optimizer.step()


def attention_has_its_parts_weights():
    """MultiheadAttention reads its output's weight without calling that module."""
    torch.manual_seed(4)
    model = torch.nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
    waiting = copy.deepcopy(model)
    optimizer, reference = optimizers(model, waiting)
    values = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(5))
    with optimizer, reference:
        for _ in range(3):
            for one, of in ((optimizer, model), (reference, waiting)):
                one.zero_grad()
                of(values).square().mean().backward()
                one.step()
            model.eval()
            waiting.eval()
            with torch.no_grad():
                assert torch.equal(model(values), waiting(values))
            model.train()
            waiting.train()
            saved = model.self_attn.state_dict()
            assert torch.equal(saved["out_proj.weight"], waiting.self_attn.out_proj.weight)


def an_older_graph_raises_torchs_error():
    model = network()
    with slimps.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, overlap_forward=True
    ) as optimizer:
        images, labels = next(iter(batches(1)))
        loss = loss_of(model, *mine(optimizer.store.rank, images, labels))
        loss.backward(retain_graph=True)
        optimizer.step()
        refused(RuntimeError, "modified by an inplace operation", loss.backward)


if __name__ == "__main__":
    scenario.play(globals())
