# SPDX-License-Identifier: Apache-2.0
"""The workers of one node, in a process group of torch.distributed that is theirs alone.

    node = node.find(store, None, False, parameters)       # collective; None: each sends for itself
    tensor = torch.zeros(9, device=node.device)
    node.wait(node.sum(tensor))                            # the leader's tensor has the node's sum
    node.wait(node.share(tensor))                          # all tensors are the leader's

A worker's node is told by LOCAL_RANK and LOCAL_WORLD_SIZE. Ranks of a node follow each other, and
the first is its leader. The group is NCCL's on all nodes if each worker has a GPU that no other of
its node has, or else gloo's on all (node_group.py). The scheduler adds up what each worker tells.
"""

from __future__ import annotations

import contextlib
import datetime
import time
import weakref
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import distributed

from slimps import _job, kv
from slimps.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from slimps.pytorch import node_group

_SLICE = datetime.timedelta(milliseconds=50)  # after which Ctrl-C is noticed
_POLL_S = 0.0005

# Stores with an optimizer: True if nodes reduce first and their leaders alone push.
_node_first: "weakref.WeakKeyDictionary[kv.KVStore, bool]" = weakref.WeakKeyDictionary()


def find(
    store: kv.KVStore, wanted: Optional[bool], given: bool, parameters: Sequence[torch.Tensor]
) -> Optional[Node]:
    """Returns this worker's node if its workers are to reduce first; None if not. Collective.

    wanted      None: where some node has several workers and there are several nodes
    given       the store is the script's own, whose other keys may have rounds with all workers:
                then None means no, unless another optimizer of the store reduces first
    parameters  lie where their gradients will

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
    mine = [place, size, server.port if server else 0, node_group.gpu_for_nccl(parameters)]
    told = [0.0] * (4 * store.num_workers)
    told[4 * store.rank : 4 * store.rank + 4] = mine
    sums = list(map(int, store.all_reduce_sum(told)))
    places, ports, gpus = list(zip(sums[::4], sums[1::4])), sums[2::4], sums[3::4]
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
    on_gpus = node_group.nccl_can(sizes, gpus)
    group = None
    if size > 1:
        make = node_group.nccl if on_gpus else node_group.gloo
        with _not_found(store, leader):
            server = server or node_group.tcp_store(ports[leader], store.timeout_s)
            group = make(server, place, size, store.timeout_s)
    has_gpu = on_gpus and gpus[store.rank] != node_group.NO_GPU
    device = parameters[0].device if has_gpu else torch.device("cpu")
    return Node(store, group, leader, len(sizes) / store.num_workers, device)


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

    is_alone       no other worker is on the node
    share_of_mean  the leader pushes this times the sum of its node's gradients: the servers' mean
                   over the nodes is then the mean over all workers
    device         where the tensors of sum() and share() lie
    """

    def __init__(
        self, store: kv.KVStore, group: Any, leader: int, share_of_mean: float, device: torch.device
    ) -> None:
        self._store = store
        self._group = group  # None: this worker is alone on its node
        self.is_alone = group is None
        self._leader = leader
        self.leads = leader == store.rank
        self.share_of_mean = share_of_mean
        self.device = device
        # Runs once, at the latest when the process ends. NCCL's group warns if nobody has ended it.
        self._abort: Any = None
        if group is not None and device.type == "cuda":
            self._abort = weakref.finalize(self, node_group.abort_nccl, group)

    def leave_rounds_to_leader(self) -> None:
        """Rounds do not wait for this worker from now on, unless it is the leader."""
        if self._store not in _node_first and not self.leads:
            self._store.leave()
        _node_first[self._store] = True

    def sum(self, tensor: torch.Tensor) -> Any:
        """Starts to add all members' tensors into the leader's. The others' are used up.

        UnavailableError: as of wait().
        """
        if self.is_alone:
            return None
        with self._in_group() as group:
            return group.reduce(tensor, 0, distributed.ReduceOp.SUM)

    def share(self, tensor: torch.Tensor) -> Any:
        """Starts to copy the leader's tensor into the others'.

        UnavailableError: as of wait().
        """
        if self.is_alone:
            return None
        with self._in_group() as group:
            return group.broadcast(tensor, 0)

    def is_done(self, work: Any) -> bool:
        return work is None or work.is_completed()

    def wait(self, work: Any) -> None:
        """Waits for what sum() or share() has started. An error ends the group.

        UnavailableError: another member is gone. gloo notices that at once, NCCL does not: then the
        wait ends after the store's timeout.
        """
        if work is None:
            return
        deadline = time.monotonic() + self._store.timeout_s
        with self._in_group():
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise RuntimeError("not done after %g s" % self._store.timeout_s)
                self._pause(work)
            work.wait()  # raises the error of work that has failed, which counts as completed

    @contextlib.contextmanager
    def ended_by_errors(self) -> Iterator[None]:
        """An error within the `with` block ends the group, so that nobody waits for this member."""
        try:
            yield
        except BaseException:
            self._group = None
            if self._abort is not None:
                self._abort()
            raise

    def close(self) -> None:
        """Ends a group of NCCL's. A second call does nothing.

        Waits for the other members to do so, too, but no longer than the store's timeout: they may
        have more to do, as an evaluation. An error of NCCL's aborts what is left.
        """
        group, self._group = self._group, None
        if group is None or self._abort is None:
            return
        try:
            node_group.end_nccl(group, self._store.timeout_s)
        except RuntimeError:
            self._abort()
        except TimeoutError:
            pass
        self._abort.detach()

    @contextlib.contextmanager
    def _in_group(self) -> Iterator[Any]:
        """Yields the group. Errors of torch within the `with` block become UnavailableErrors."""
        if self._group is None:
            raise FailedPreconditionError("node_first: an earlier step of this worker failed")
        with self.ended_by_errors():
            try:
                yield self._group
            except RuntimeError as error:
                raise UnavailableError(
                    "node_first: worker %d waited for the workers of its node, led by worker %d: %s"
                    % (self._store.rank, self._leader, _first_line(error))
                ) from None

    def _pause(self, work: Any) -> None:
        """Waits for a moment, or until the work is done. Ctrl-C ends it."""
        if self.device.type == "cuda":
            # wait() holds up the GPU's current stream in place of this thread; with a time limit,
            # NCCL's work is aborted at its end.
            time.sleep(_POLL_S)
        else:
            with contextlib.suppress(RuntimeError):  # of the end of the slice, or of the work
                work.wait(_SLICE)


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
