# SPDX-License-Identifier: Apache-2.0
"""What people save on rank 0 alone, load on every rank of any job, and move to and from torch."""

import copy
import warnings

import accelerate
import scenario
import slimps
import slimps.torch
import torch
import torch_training
from torch.distributed.checkpoint import state_dict as distributed_state
from torch_training import batches, farthest, loss_of, mine, network, refused, step, step_by_halves

HALF = 3  # steps before the state is saved
CLOSE = 2e-6  # weights of about 0.1; the servers and torch sum and round in another order
OPTIMIZERS = {
    **torch_training.OPTIMIZERS,
    "onebit": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
}


def wrapped(model, kind, **settings):
    return slimps.torch.DistributedOptimizer(
        OPTIMIZERS[kind](model), model.named_parameters(), **settings
    )


def part(store, images, labels):
    return mine(store.rank, images, labels) if store.num_workers == 2 else (images, labels)


def save_on_rank_0(path, kind):
    """Rank 0 saves and prints nothing to the others, which go on into their next step."""
    model, twin = network(), network()
    plain = OPTIMIZERS[kind](twin)
    given = list(batches(HALF + 1))
    optimizer = wrapped(model, kind)
    for images, labels in given[:HALF]:
        step(optimizer, model, *part(optimizer.store, images, labels))
        step_by_halves(plain, twin, images, labels)
    if optimizer.store.rank == 0:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved, path)
        assert saved["optimizer"]["round"] == HALF
        assert copy.deepcopy(saved["optimizer"]).keys() == saved["optimizer"].keys()
        of_torch = plain.state_dict()
        assert saved["optimizer"]["param_groups"] == of_torch["param_groups"]
        for number, state in of_torch["state"].items():
            got = saved["optimizer"]["state"][number]
            assert sorted(got) == sorted(state), (sorted(got), sorted(state))
            for name, values in state.items():
                assert got[name].dtype == torch.float32 and got[name].shape == values.shape
                assert float((got[name] - values).abs().max()) < 1e-6, (number, name)
    step(optimizer, model, *part(optimizer.store, *given[HALF]))
    step_by_halves(plain, twin, *given[HALF])
    assert farthest(model, twin) < CLOSE, farthest(model, twin)
    optimizer.close()


def all_resume(path, kind):
    """Every rank of this job loads rank 0's file. torch's own optimizer does, too."""
    saved = torch.load(path, weights_only=True)
    model, twin = network(seed=5), network(seed=6)
    model.load_state_dict(saved["model"])
    twin.load_state_dict(saved["model"])
    plain = OPTIMIZERS[kind](twin)
    plain.load_state_dict(copy.deepcopy(saved["optimizer"]))
    optimizer = wrapped(model, kind)
    optimizer.load_state_dict(saved["optimizer"])
    for images, labels in list(batches(HALF + 2))[HALF:]:
        step(optimizer, model, *part(optimizer.store, images, labels))
        step_by_halves(plain, twin, images, labels)
        assert farthest(model, twin) < CLOSE, farthest(model, twin)
    optimizer.close()


def takes_what_torch_has(kind, way):
    """torch's state is loaded, or is in the optimizer that is wrapped: its own, or a loaded one."""
    twin = network()
    plain = OPTIMIZERS[kind](twin)
    given = list(batches(HALF + 2))
    for images, labels in given[:HALF]:
        step_by_halves(plain, twin, images, labels)
    plain.param_groups[0]["lr"] *= 0.5
    state = copy.deepcopy(plain.state_dict())
    model = network(seed=8)
    model.load_state_dict(twin.state_dict())
    inner = OPTIMIZERS[kind](model)
    rank = slimps.init().rank
    if way == "wrapped" and (rank or 0) == 0:  # rank 0's counts
        inner.load_state_dict(state)
    if way == "wrapped":
        inner.param_groups[0]["lr"] = plain.param_groups[0]["lr"]
    optimizer = slimps.torch.DistributedOptimizer(inner, model.named_parameters())
    if way == "loaded":
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    for images, labels in given[HALF:]:
        step(optimizer, model, *part(optimizer.store, images, labels))
        step_by_halves(plain, twin, images, labels)
        assert farthest(model, twin) < CLOSE, farthest(model, twin)
    optimizer.close()


def distributed_checkpoints(kind):
    """Neither getting nor setting a state makes a step."""
    model = network()
    before = copy.deepcopy(model)
    optimizer = wrapped(model, kind)
    if optimizer.store.rank == 0:
        found = distributed_state.get_optimizer_state_dict(model, optimizer)
        assert set(found["state"]) == {name for name, _ in model.named_parameters()}
        assert farthest(model, before) == 0
    given = list(batches(HALF))
    for images, labels in given:
        step(optimizer, model, *part(optimizer.store, images, labels))
    for flat in (False, True):
        options = distributed_state.StateDictOptions(flatten_optimizer_state_dict=flat)
        before = copy.deepcopy(model)
        found = distributed_state.get_optimizer_state_dict(model, optimizer, options=options)
        distributed_state.set_optimizer_state_dict(model, optimizer, found, options=options)
        again = distributed_state.get_optimizer_state_dict(model, optimizer, options=options)
        assert str(found) == str(again)
        assert farthest(model, before) == 0
        assert optimizer.state_dict()["round"] == HALF
    optimizer.store.barrier()
    optimizer.close()


def with_the_backup_model_it_is_the_global_weights():
    model, twin = network(), network()
    plain = OPTIMIZERS["adam"](twin)
    optimizer = wrapped(model, "adam", backup_model=True)
    (given,) = batches(1)
    step(optimizer, model, *part(optimizer.store, *given))
    step_by_halves(plain, twin, *given)
    if optimizer.store.rank == 0:
        saved = optimizer.state_dict()
        assert saved["round"] == 1
        for number, state in plain.state_dict()["state"].items():
            for name, values in state.items():
                assert float((saved["state"][number][name] - values).abs().max()) < 1e-6
    with optimizer.global_weights():
        assert farthest(model, twin) < CLOSE
    optimizer.close()


def without_rounds_there_is_none_to_name():
    model = network()
    optimizer = wrapped(model, "adam", type="dist_async")
    (given,) = batches(1)
    step(optimizer, model, *part(optimizer.store, *given))
    if optimizer.store.rank == 0:
        saved = optimizer.state_dict()
        assert saved["round"] is None
        assert all(1 <= state["step"] <= 2 for state in saved["state"].values())
    optimizer.store.barrier()
    optimizer.close()


def frozen_moments_are_adams(path):
    """1-bit Adam's momentum and variance in torch: its next step divides by the same numbers."""
    if slimps.init().num_workers == 2:
        model = network()
        optimizer = wrapped(model, "onebit", freeze_after=2)
        for images, labels in batches(HALF):
            step(optimizer, model, *part(optimizer.store, images, labels))
        if optimizer.store.rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        optimizer.close()
        return
    saved = torch.load(path, weights_only=True)
    states = saved["optimizer"]["state"]
    assert all("server_error" in state for state in states.values())
    model, twin = network(seed=4), network(seed=5)
    for one in (model, twin):
        one.load_state_dict(saved["model"])
    plain = OPTIMIZERS["onebit"](twin)
    plain.load_state_dict(saved["optimizer"])
    optimizer = wrapped(model, "onebit", freeze_after=2)
    optimizer.load_state_dict(saved["optimizer"])
    for (number, state), now in zip(states.items(), optimizer.state_dict()["state"].values()):
        for name, values in state.items():
            assert torch.allclose(values, now[name], rtol=1e-6, atol=0), (number, name)
    ((images, labels),) = batches(1, seed=99)
    variances = [plain.state[one]["exp_avg_sq"].clone() for one in twin.parameters()]
    before = copy.deepcopy(twin)
    step(optimizer, model, images, labels)
    # The same step by hand: of torch's momentum, by the variance that does not change.
    loss_of(twin, images, labels).backward()
    for one, variance, old, own in zip(
        twin.parameters(), variances, before.parameters(), model.parameters()
    ):
        m = plain.state[one]["exp_avg"] * 0.9 + one.grad * 0.1
        root = (variance / (1 - 0.999**HALF)).sqrt() + 1e-8
        stepped = old.data - 0.01 / (1 - 0.9 ** (HALF + 1)) * m / root
        one.data = torch.where(variance > 0, stepped, own.data)
    assert farthest(model, twin) < 1e-5, farthest(model, twin)
    optimizer.close()


def accelerate_takes_a_new_optimizers_state_and_gives_it_back():
    model = network()
    optimizer = wrapped(model, "adam")
    accelerated = accelerate.Accelerator(cpu=True).prepare(optimizer)
    for images, labels in batches(2):
        step(accelerated, model, *part(optimizer.store, images, labels))
    if optimizer.store.rank == 0:
        saved = accelerated.state_dict()
        assert saved["round"] == 2 and saved["state"][0]["step"] == 2
    optimizer.close()


def residuals_of_other_workers():
    model = network()
    optimizer = wrapped(model, "sgd", compression="1bit", threshold=0)
    rank = optimizer.store.rank
    for images, labels in batches(2):
        step(optimizer, model, *part(optimizer.store, images, labels))
    assert "residuals" not in optimizer.state_dict()
    saved = optimizer.state_dict(residuals=True)
    assert saved["residuals"]["num_workers"] == 2 and list(saved["residuals"]["by_rank"]) == [rank]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer.load_state_dict(saved)
        assert not said
        optimizer.load_state_dict(dict(saved, residuals=dict(saved["residuals"], num_workers=3)))
        saved["residuals"]["by_rank"] = {1 - rank: saved["residuals"]["by_rank"][rank]}
        optimizer.load_state_dict(saved)
    (only,) = said
    assert "expected residuals of worker %d of 2, got those of %d of 3" % (rank, rank) in str(
        only.message
    )
    optimizer.close()


def one_worker_cannot_read_its_state():
    """All of them learn it, and nothing has changed."""
    model = network()
    optimizer = wrapped(model, "sgd", compression="1bit", threshold=0)
    (given,) = batches(1)
    before = optimizer.state_dict(residuals=True)
    step(optimizer, model, *part(optimizer.store, *given))
    after = optimizer.state_dict(residuals=True)
    rank = optimizer.store.rank
    optimizer.store.barrier()
    groups, residuals = copy.deepcopy(after), copy.deepcopy(before)
    if rank == 1:
        groups["param_groups"].append(groups["param_groups"][0])
        residuals["residuals"]["by_rank"][1] = residuals["residuals"]["by_rank"][1][:-1]
    for changed, complaint in (
        (groups, "expected parameter groups of sizes [6], got [6, 6]"),
        (residuals, "residuals"),
    ):
        changed["param_groups"][0]["lr"] = 5.0
        refused(
            slimps.Error,
            complaint if rank == 1 else "load_state_dict: 1 of 2 workers could not read theirs",
            lambda: optimizer.load_state_dict(changed),
        )
        assert optimizer.param_groups[0]["lr"] == 0.1
        now = optimizer.state_dict(residuals=True)
        assert str(now) == str(after)
        assert torch.equal(*(one["residuals"]["by_rank"][rank] for one in (now, after)))
    optimizer.close()


if __name__ == "__main__":
    scenario.play(globals())
