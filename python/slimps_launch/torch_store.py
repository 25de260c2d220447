# SPDX-License-Identifier: Apache-2.0
"""Says or finds a value in torchrun's TCPStore. A program, so that torch is gone when it ends.

    python torch_store.py set KEY VALUE     # by one process
    python torch_store.py get KEY           # by the others; prints the value

Where torchrun's agent has no store for its workers (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1), the
process that sets the value serves one until all others have read it. Later its port is for the
script's own process group.
"""

import datetime
import os
import sys

SECONDS = float(os.environ.get("SLIMPS_JOIN_TIMEOUT_S") or 600)


def exchange(store_class, serves_itself, key, value, environment):
    """Returns the value. `value` is None where it is to be found."""
    store = store_class(
        environment["MASTER_ADDR"],
        int(environment["MASTER_PORT"]),
        is_master=serves_itself and value is not None,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    readers = int(environment["WORLD_SIZE"]) - 1
    if value is not None:
        store.set(key, value)
        if serves_itself and readers:
            store.wait([key + "/all have it"])
        return value
    value = store.get(key).decode("ascii")
    if serves_itself:
        if store.add(key + "/have it", 1) == readers:
            store.set(key + "/all have it", "")
        try:
            store.wait([key + "/never"])  # until the store is gone, and its port is free
        except RuntimeError:
            pass
    return value


def main(arguments):
    from torch.distributed import TCPStore

    serves_itself = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    value = arguments[2] if arguments[0] == "set" else None
    try:
        print(exchange(TCPStore, serves_itself, arguments[1], value, os.environ))
    except RuntimeError as error:
        print(str(error).partition("\n")[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
