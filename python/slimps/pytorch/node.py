# SPDX-License-Identifier: Apache-2.0
"""The workers of one node, in a process group of torch.distributed's gloo that is theirs alone.

    node = node.find(store, wanted=None, given=False)      # collective; None: each sends for itself
    node.wait(node.sum(tensor))                            # the leader's tensor has the node's sum
    node.wait(node.share(tensor))                          # all tensors are the leader's

A worker's node is told by LOCAL_RANK and LOCAL_WORLD_SIZE. Ranks of a node follow each other, and
the first is its leader. The members of the group (node_group.py) learn through the scheduler where
they find each other.
"""

from __future__ import annotations

import contextlib
import datetime
import weakref
from typing import Any, Iterator, List, Optional, Tuple

import torch
from torch import distributed

from slimps import _job, kv
from slimps.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from slimps.pytorch import node_group

_SLICE = datetime.timedelta(milliseconds=50)  # after which Ctrl-C is noticed

# Stores with an optimizer: True if nodes reduce first and their leaders alone push.
_node_first: "weakref.WeakKeyDictionary[kv.KVStore, bool]" = weakref.WeakKeyDictionary()


def find(store: kv.KVStore, wanted: Optional[bool], given: bool) -> Optional[Node]:
    """Returns this worker's node if its workers are to reduce first; None if not. Collective.

    wanted  None: where some node has several workers and there are several nodes
    given   the store is the script's own, whose other keys may have rounds with all workers: then
            None means no, unless another optimizer of the store reduces first

    InvalidArgumentError: `wanted` is True, and the store or the workers' places do not allow it.
    FailedPreconditionError: another optimizer of the store wants it otherwise.
    """
    others = _node_first.get(store)
    if others and wanted is False:
        raise _another_has_it(True)
    if wanted is None and given:
        wanted = bool(others)
    if wanted is False or store.num_workers == 1:
        return None
    if not store.has_rounds or not distributed.is_available():
        if not wanted:
            return None
        raise InvalidArgumentError(
            "node_first: expected a dist_sync store and a torch with torch.distributed, got %s"
            % (store.type if not store.has_rounds else "a torch without")
        )
    place, size = _job.place_on_node()
    with _not_found(store, store.rank):
        server = node_group.tcp_store(0, store.timeout_s) if place == 0 and size > 1 else None
    told = [0.0] * (3 * store.num_workers)
    told[3 * store.rank : 3 * store.rank + 3] = [place, size, server.port if server else 0]
    told = store.all_reduce_sum(told)
    places = [(int(one), int(of)) for one, of in zip(told[::3], told[1::3])]
    sizes = node_sizes(places)
    if not sizes and wanted:
        raise InvalidArgumentError(
            "node_first: expected LOCAL_RANK and LOCAL_WORLD_SIZE to count the workers of each "
            "node, whose ranks follow each other; got, by rank, %s"
            % " ".join("%d/%d" % one for one in places)
        )
    few = 1 if wanted else 2  # nodes
    if not few <= len(sizes) < store.num_workers:
        return None
    if others is False:
        raise _another_has_it(False)
    leader = store.rank - place
    group = None
    if size > 1:
        with _not_found(store, leader):
            server = server or node_group.tcp_store(int(told[3 * leader + 2]), store.timeout_s)
            group = node_group.gloo(server, place, size, store.timeout_s)
    return Node(store, group, leader, len(sizes) / store.num_workers)


def each_pushes(store: kv.KVStore) -> None:
    """Notes that the store has an optimizer for which every worker pushes."""
    _node_first[store] = False


def node_sizes(places: List[Tuple[int, int]]) -> List[int]:
    """Returns each node's number of workers, from each rank's (place on its node, node's size).

    Returns [] unless the ranks of each node follow each other.
    """
    sizes: List[int] = []
    while sum(sizes) < len(places):
        size = places[sum(sizes)][1]
        of_node = places[sum(sizes) : sum(sizes) + size]
        if of_node != [(place, size) for place in range(size)]:
            return []
        sizes.append(size)
    return sizes


class Node:
    """This worker's place on its node.

    share_of_mean  the leader pushes this times the sum of its node's gradients: the servers' mean
                   over the nodes is then the mean over all workers
    """

    def __init__(self, store: kv.KVStore, group: Any, leader: int, share_of_mean: float) -> None:
        self._store = store
        self._group = group  # None: this worker is alone on its node
        self._alone = group is None
        self._leader = leader
        self.leads = leader == store.rank
        self.share_of_mean = share_of_mean

    def leave_rounds_to_leader(self) -> None:
        """Rounds do not wait for this worker from now on, unless it is the leader."""
        if self._store not in _node_first and not self.leads:
            self._store.leave()
        _node_first[self._store] = True

    def sum(self, tensor: torch.Tensor) -> Any:
        """Starts to add all members' tensors into the leader's. The others' are used up."""
        return None if self._alone else self._open().reduce(tensor, 0, distributed.ReduceOp.SUM)

    def share(self, tensor: torch.Tensor) -> Any:
        """Starts to copy the leader's tensor into the others'."""
        return None if self._alone else self._open().broadcast(tensor, 0)

    def is_done(self, work: Any) -> bool:
        return work is None or work.is_completed()

    def wait(self, work: Any) -> None:
        """Waits for what sum() or share() has started. UnavailableError: another member is gone."""
        while not self.is_done(work):
            with contextlib.suppress(RuntimeError):  # of the end of the slice, or of the work
                work.wait(_SLICE)
        try:
            if work is not None:
                work.wait()
        except RuntimeError as error:
            raise UnavailableError(
                "node_first: worker %d waited for the workers of its node, led by worker %d: %s"
                % (self._store.rank, self._leader, _first_line(error))
            ) from None

    @contextlib.contextmanager
    def ended_by_errors(self) -> Iterator[None]:
        """An error within the `with` block ends the group, so that nobody waits for this member."""
        try:
            yield
        except BaseException:
            self._group = None
            raise

    def _open(self) -> Any:
        if self._group is None:
            raise FailedPreconditionError("node_first: an earlier step of this worker failed")
        return self._group


@contextlib.contextmanager
def _not_found(store: kv.KVStore, leader: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise UnavailableError(
            "node_first: worker %d does not find worker %d, its LOCAL_RANK 0, on this machine: %s"
            % (store.rank, leader, _first_line(error))
        ) from None


def _another_has_it(value: bool) -> FailedPreconditionError:
    return FailedPreconditionError(
        "node_first: another optimizer of this store has it %s; expected the same" % value
    )


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
