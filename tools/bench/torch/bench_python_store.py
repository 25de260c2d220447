"""A worker as bench_store (tools/bench/transport) is, in Python: ResNet-50's tensors, pushed and pulled once per round.

Says {"ready": true}; then a line "model rounds=N" on stdin is answered by {"seconds": S, "push_seconds": P}. Its place in the
job comes from DMLC_*.
"""

import json
import queue
import sys
import time

import numpy as np
import slimps
import torchvision


def main():
    model = torchvision.models.resnet50()
    names = [name for name, _ in model.named_parameters()]
    weights = [np.zeros(tuple(parameter.shape), np.float32) for _, parameter in model.named_parameters()]
    gradients = [np.full_like(weight, 0.5) for weight in weights]
    del model
    store = slimps.kv.create("dist_sync")
    store.init(names, weights)
    store.set_optimizer(slimps.optimizer.SGD(learning_rate=0.01))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        if "rounds=" not in line:  # the end
            break
        rounds = int(line.split("rounds=")[1])
        pushing = 0.0
        start = time.monotonic()
        for _ in range(rounds):
            # As bench_store does: the last layers first, each pulled as soon as it is pushed.
            arrived = queue.SimpleQueue()
            for place in reversed(range(len(names))):
                begun = time.monotonic()
                store.push(names[place], gradients[place], priority=-place)
                pushing += time.monotonic() - begun
                store.pull_then(names[place], weights[place], arrived.put, priority=-place)
            for _ in names:
                error = arrived.get()
                if error is not None:
                    raise error
        print(json.dumps({"seconds": time.monotonic() - start, "push_seconds": pushing}), flush=True)
    store.close()


if __name__ == "__main__":
    main()
