# SPDX-License-Identifier: Apache-2.0
"""What slimps.torch.Scalars writes, through a writer of the test's and through TensorBoard's."""

import jobs
import pytest
import slimps
import slimps.torch
import torch
from conftest import model_and_sgd, refused, wrap

ELEMENTS = 8  # of model_and_sgd's model


class Writer:
    """Keeps {(tag, step): value}."""

    def __init__(self):
        self.scalars = {}

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value

    def tags(self, step):
        return {tag for tag, at in self.scalars if at == step}


def train(optimizer, model, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.tensor([[1.0, 2.0, 4.0]])).sum().backward()
        optimizer.step()


@pytest.fixture(name="training")
def one_training():
    with jobs.lone_store(compression="1bit", threshold=0) as store:
        model, sgd = model_and_sgd()
        with wrap(store, model, sgd) as optimizer:
            yield optimizer, model


def test_bytes_are_means_of_the_steps_since_the_call_before(training):
    optimizer, model = training
    writer = Writer()
    scalars = slimps.torch.Scalars(writer, optimizer)
    for step, steps in ((0, 1), (3, 3)):
        before = optimizer.totals()["bytes_pushed"]
        train(optimizer, model, steps)
        pushed = optimizer.totals()["bytes_pushed"] - before
        scalars.log(step)
        assert writer.scalars["slimps/raw_bytes_pushed", step] == 4 * ELEMENTS
        assert writer.scalars["slimps/bytes_pushed", step] == pushed / steps > 0


def test_every_figure_has_its_tag(training):
    optimizer, model = training
    writer = Writer()
    scalars = slimps.torch.Scalars(writer, optimizer, first_step=7, prefix="mine/")
    train(optimizer, model)
    scalars.log(7)
    assert writer.tags(7) == {
        "mine/" + name
        for name in (
            "raw_bytes_pushed",
            "bytes_pushed",
            "bytes_pulled",
            "copy_s",
            "encode_s",
            "send_s",
            "wait_s",
            "decode_s",
            "local_update_s",
            "overlap",
            "compression_gain",
            "compression_error",
            "threshold_bytes",
        )
    }
    assert 0 <= writer.scalars["mine/overlap", 7] <= 1
    assert 0 < writer.scalars["mine/compression_error", 7] < 1
    assert writer.scalars["mine/threshold_bytes", 7] == 0


def test_a_bare_store_has_no_overlap_and_raw_pushes_no_threshold():
    with jobs.lone_store() as store:
        store.init("w", torch.zeros(6))
        writer = Writer()
        scalars = slimps.torch.Scalars(writer, store)
        store.pushpull("w", torch.ones(6))
        scalars.log(0)
    assert writer.scalars["slimps/bytes_pushed", 0] == 24
    assert writer.scalars["slimps/bytes_pulled", 0] == 24
    assert not writer.tags(0) & {"slimps/overlap", "slimps/threshold_bytes"}


def test_a_step_that_was_logged_is_refused(training):
    optimizer, model = training
    scalars = slimps.torch.Scalars(Writer(), optimizer)
    train(optimizer, model)
    scalars.log(0)
    with refused("Scalars.log: expected a step from 1 on, got 0"):
        scalars.log(0)


def test_tensorboard_shows_what_was_written(training, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator
    from torch.utils.tensorboard import SummaryWriter

    optimizer, model = training
    with SummaryWriter(str(tmp_path)) as writer:
        scalars = slimps.torch.Scalars(writer, optimizer)
        train(optimizer, model)
        scalars.log(0)
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.value for event in events.Scalars("slimps/raw_bytes_pushed")] == [4.0 * ELEMENTS]
