# SPDX-License-Identifier: Apache-2.0
"""The Python counterpart of bench_store (tools/bench/transport).

It pushes and pulls ResNet-50's tensors once per round. It prints {"ready": true} and then answers
lines on stdin:

    list rounds=N    one pushpull of all tensors
    own rounds=N     the same in numpy's own memory
    model rounds=N   tensor by tensor, as a backward pass makes them

An answer is {"seconds": S, "push_seconds": P}; P is null except for model. Its place in the job
comes from DMLC_*.
"""

import json
import mmap
import queue
import sys
import time

import numpy as np
import slimps
import torchvision


HUGE_PAGE = 2 << 20


def as_cpp_has_it(like):
    """Returns a copy in memory like that of bench_store's tensors.

    That memory is 64-byte aligned, and in huge pages from 2 MiB on. numpy's own is aligned to 16
    bytes and in huge pages from 4 MiB on.
    """
    huge = like.nbytes >= HUGE_PAGE
    alignment = HUGE_PAGE if huge else 64
    memory = mmap.mmap(-1, like.nbytes + alignment)
    if huge:
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    first = -whole.ctypes.data % alignment
    array = whole[first : first + like.nbytes].view(np.float32).reshape(like.shape)
    array[:] = like
    return array


class Worker:
    """The store and the tensors. The last layers go first, as in bench_store."""

    def __init__(self):
        named = list(torchvision.models.resnet50().named_parameters())[::-1]
        self.names = [name for name, _ in named]
        self.own_weights = [np.zeros(tuple(parameter.shape), np.float32) for _, parameter in named]
        self.own_gradients = [np.full_like(weight, 0.5) for weight in self.own_weights]
        self.weights = [as_cpp_has_it(array) for array in self.own_weights]
        self.gradients = [as_cpp_has_it(array) for array in self.own_gradients]
        self.store = slimps.kv.create("dist_sync")
        self.store.init(self.names, self.weights)
        self.store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.01))
        self.push_seconds = None

    def whole_list(self):
        self.store.pushpull(self.names, self.gradients, out=self.weights)

    def own_memory(self):
        self.store.pushpull(self.names, self.own_gradients, out=self.own_weights)

    def tensor_by_tensor(self):
        """Pushes the tensors one by one, and pulls each as soon as it is pushed."""
        arrived = queue.SimpleQueue()
        for place, name in enumerate(self.names):
            begun = time.monotonic()
            self.store.push(name, self.gradients[place], priority=place)
            self.push_seconds += time.monotonic() - begun
            self.store.pull_then(name, self.weights[place], arrived.put, priority=place)
        for _ in self.names:
            error = arrived.get()
            if error is not None:
                raise error

    def answer(self, command):
        kind, rounds = command.split(" rounds=")
        self.push_seconds = 0.0 if kind == "model" else None
        one_round = {
            "list": self.whole_list,
            "own": self.own_memory,
            "model": self.tensor_by_tensor,
        }[kind]
        start = time.monotonic()
        for _ in range(int(rounds)):
            one_round()
        return {"seconds": time.monotonic() - start, "push_seconds": self.push_seconds}


def main():
    worker = Worker()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        if "rounds=" not in line:  # "quit"
            break
        print(json.dumps(worker.answer(line)), flush=True)
    worker.store.close()


if __name__ == "__main__":
    main()
