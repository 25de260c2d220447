"""A worker as bench_store (tools/bench/transport) is, in Python: ResNet-50's tensors, pushed and pulled once per round.

Says {"ready": true}; then a line "list rounds=N" (one pushpull of all tensors) or "model rounds=N" (tensor by tensor, as a
backward pass has them) on stdin is answered by {"seconds": S, "push_seconds": P}, P null of a list. Its place in the job
comes from DMLC_*.
"""

import json
import queue
import sys
import time

import numpy as np
import slimps
import torchvision


class Worker:
    """The last layers go first, as bench_store's."""

    def __init__(self):
        named = list(torchvision.models.resnet50().named_parameters())[::-1]
        self.names = [name for name, _ in named]
        self.weights = [np.zeros(tuple(parameter.shape), np.float32) for _, parameter in named]
        self.gradients = [np.full_like(weight, 0.5) for weight in self.weights]
        self.store = slimps.kv.create("dist_sync")
        self.store.init(self.names, self.weights)
        self.store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.01))
        self.push_seconds = None

    def whole_list(self):
        self.store.pushpull(self.names, self.gradients, out=self.weights)

    def tensor_by_tensor(self):
        """Each pulled as soon as it is pushed."""
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
        start = time.monotonic()
        for _ in range(int(rounds)):
            (self.tensor_by_tensor if kind == "model" else self.whole_list)()
        return {"seconds": time.monotonic() - start, "push_seconds": self.push_seconds}


def main():
    worker = Worker()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        if "rounds=" not in line:  # the end
            break
        print(json.dumps(worker.answer(line)), flush=True)
    worker.store.close()


if __name__ == "__main__":
    main()
