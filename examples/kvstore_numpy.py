# SPDX-License-Identifier: Apache-2.0
"""Workers fit a linear model together through the parameter servers, with numpy only.

    tools/slimps launch --workers 2 --servers 2 -- python3 examples/kvstore_numpy.py

Each worker sees samples of its own. The servers sum the gradients over the workers and make the
step. With --restart 5 --checkpoint DIR processes may die: the job goes on where it was, or from its
last checkpoint.
"""

import numpy as np

import slimps

TRUE_SLOPES = np.arange(1, 9, dtype=np.float32)
BATCH = 64
ROUNDS = 100


def main() -> None:
    store = slimps.kv.create("dist_sync")
    slopes = np.zeros(8, dtype=np.float32)
    store.init("slopes", slopes)
    store.set_optimizer(
        slimps.optimizer.SGD(
            learning_rate=0.1, momentum=0.5, rescale_grad=1 / (BATCH * store.num_workers)
        )
    )
    former = store.resume().rounds
    if former > 0:  # the job goes on after a failure
        store.pull("slopes", out=slopes)
    for round_ in range(former + 1, ROUNDS + 1):
        random = np.random.default_rng((store.rank, round_))
        inputs = random.normal(size=(BATCH, 8)).astype(np.float32)
        errors = inputs @ (slopes - TRUE_SLOPES)
        store.push("slopes", inputs.T @ errors)
        store.pull("slopes", out=slopes)
        if round_ % 20 == 0:
            store.save_step(round_)
        if store.rank == 0 and round_ % 20 == 0:
            print("round %3d: mean squared error %.2e" % (round_, np.mean(errors**2)))
    totals = store.totals()
    store.close()
    if store.rank == 0:
        print(
            "slopes %s; pushed %d bytes, pulled %d"
            % (np.round(slopes, 3), totals["bytes_pushed"], totals["bytes_pulled"])
        )


if __name__ == "__main__":
    main()
