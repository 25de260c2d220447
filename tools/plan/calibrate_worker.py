# SPDX-License-Identifier: Apache-2.0
"""A worker of `slimps plan --calibrate`: measures its machine and its way to the servers.

    python3 calibrate_worker.py BENCH_CODEC [--quick]

`slimps launch` starts it. Each worker prints one line, MARK and a JSON. All measure at the same
time, since in a job all work at the same time: workers of one machine share its memory.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List

import numpy as np

import slimps

MARK = "slimps-calibration "
HERE = os.path.dirname(os.path.abspath(__file__))
# Elements. A partition has at most 256 Ki of a model that is larger than the caches, so the
# largest size is too.
SIZES = "1Ki,16Ki,4Mi"
# atomo decomposes each partition by itself, and the largest has 256 Ki.
ATOMO, ATOMO_SIZES = "atomo", "1Ki,16Ki,256Ki"
# Codecs with phases: how long those take, and how servers add several payloads up.
PHASED = {"thc": "thc", "powersgd4": "powersgd:rank=4"}  # name in the calibration -> spec
OPERATIONS = "encode_ef,decode_add,aggregate"
LARGE = 1 << 18
SMALL = 16
FEW = 16  # keys


def best_isa() -> str:
    """Returns the instruction set that the product takes here."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        flags = next((line for line in lines if line.startswith("flags")), "")
    words = flags.split()
    return "avx512" if "avx512f" in words else "avx2" if "avx2" in words else "scalar"


def codec_reports(program: str, quick: bool) -> List[Dict[str, Any]]:
    """Returns bench_codec's reports: of vectors, then of matrices. RuntimeError: it failed."""
    operations = "--ops=" + OPERATIONS
    if quick:
        few = measured(program, SIZES, operations, "--codecs=none,bf16,1bit", "--workers=1")
        return [few, phased(program, {"thc": "thc"})]
    return [
        measured(program, SIZES, operations, "--workers=1"),
        measured(program, ATOMO_SIZES, operations, "--codecs=" + ATOMO, "--matrix", "--workers=1"),
        phased(program, PHASED),
    ]


def phased(program: str, specs: Dict[str, str]) -> Dict[str, Any]:
    """Returns a report of codecs with phases, under their names in the calibration."""
    report = measured(
        program,
        SIZES,
        "--ops=%s,phases" % OPERATIONS,
        "--codecs=" + ",".join(specs.values()),
        "--matrix",
        "--workers=1,2",
    )
    names = {spec: name for name, spec in specs.items()}
    report["codecs"] = {names[spec]: about for spec, about in report["codecs"].items()}
    for row in report["results"]:
        row["codec"] = names[row["codec"]]
    return report


def measured(program: str, sizes: str, *flags: str) -> Dict[str, Any]:
    """Returns a report of bench_codec. RuntimeError: it failed."""
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        path = os.path.join(folder, "codecs.json")
        command = [program, "--json=" + path, "--isa=" + best_isa(), "--elements=" + sizes]
        command += ["--threads=1", *flags]
        ran = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if ran.returncode not in (0, 1):  # 1: a codec is slower than its bar
            raise RuntimeError("bench_codec failed with status %d" % ran.returncode)
        with open(path, encoding="utf-8") as report:
            return dict(json.load(report))


def nanoseconds(repeats: int, body: Callable[[], object]) -> float:
    """Returns the median time of a call."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter_ns()
        body()
        times.append(time.perf_counter_ns() - began)
    return float(np.median(times))


def copy_ns_per_byte() -> float:
    source, target = np.ones(LARGE * 16, np.float32), np.zeros(LARGE * 16, np.float32)
    return nanoseconds(9, lambda: np.copyto(target, source)) / source.nbytes


def exchange(store: Any, keys: List[str], elements: int, repeats: int) -> Dict[str, float]:
    """Pushes and pulls all keys; returns the median round's ms, and the CPU's of this process."""
    values = [np.zeros(elements, np.float32) for _ in keys]
    rounds, cpu = [], []
    for _ in range(repeats):
        began, used = time.perf_counter(), time.process_time()
        store.pushpull(keys, values, out=values)
        rounds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return {"ms": 1e3 * float(np.median(rounds)), "cpu_ms": 1e3 * float(np.mean(cpu))}


def network(store: Any) -> Dict[str, Dict[str, float]]:
    """Measures the way to the servers: a small key at each; small ones that share messages; few
    large ones; their bytes in many, which are still too large to share messages.
    """
    result = {}
    for name, count, elements, repeats in (
        ("one", int(os.environ["DMLC_NUM_SERVER"]), SMALL, 200),
        ("small", 32 * FEW, SMALL, 50),
        ("few", FEW, LARGE, 15),
        ("many", 8 * FEW, LARGE // 8, 15),
    ):
        keys = ["%s%d" % (name, index) for index in range(count)]
        store.init(keys, [np.zeros(elements, np.float32) for _ in keys])
        exchange(store, keys, elements, 3)
        result[name] = exchange(store, keys, elements, repeats)
        result[name].update(bytes=4.0 * elements * count, keys=count)
    return result


def main() -> None:
    sys.path.insert(0, os.path.dirname(HERE))
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "python"))
    from plan import calibration

    program, quick = sys.argv[1], "--quick" in sys.argv[2:]
    store = slimps.kv.create("dist_sync", same_host="tcp", timeout_s=900)
    store.barrier()
    said = {
        "rank": store.rank,
        "machine": calibration.this_machine(),
        "codecs": codec_reports(program, quick),
        "copy_ns_per_byte": copy_ns_per_byte(),
    }
    store.barrier()
    said["network"] = network(store)
    store.close()
    print(MARK + json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
