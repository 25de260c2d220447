# SPDX-License-Identifier: Apache-2.0
"""slimps.kv.create(type): a KVStore with MXNet's methods and semantics.

    store = slimps.kv.create("dist_sync", compression="1bit", threshold=4096)
    store.init([0, 1], [weights, bias])
    store.push([0, 1], [weights_gradient, bias_gradient])
    store.pull([0, 1], out=[weights, bias])

Keys are ints or strs, one kind per store. Every method that takes a key also takes a list of keys
with a list of values. A value is an array of float32 or float16, or a list of arrays, one per
device; push and pushpull sum the list. An array is a numpy array, a torch tensor on the CPU,
anything with the buffer protocol or DLPack or, for push, pull and pushpull, contiguous float32 on a
GPU (torch's, or with __cuda_array_interface__). Contiguous float32 arrays reach the store without a
copy; others are copied. float64 is converted, both ways, with one warning. The servers keep
float32; a key that was initialised from float16 is pulled as float16.

Every method raises a subclass of slimps.Error with the whole message:
    NotFoundError (a KeyError): the key was never initialised.
    InvalidArgumentError (a ValueError): an argument makes no sense.
    DeadlineExceededError (a TimeoutError): something did not arrive within `timeout_s` seconds.
After the first error in the background, every later call raises that error.

Methods that wait let other threads run, and end on Ctrl-C. The KeyboardInterrupt ends the store,
since the other workers' rounds would wait for this worker; the other workers are told why.
"""

from __future__ import annotations

from typing import Any

from slimps import _job, _open_stores, _options, _trace, native
from slimps._kvstore import KVStore

__all__ = ["KVStore", "create"]


def create(type: str = "dist_sync", **options: Any) -> "KVStore":
    """Joins the job, waits until all its nodes are there, and returns this worker's KVStore.

    type     how the servers join pushes; MXNet's other names, as "local_allreduce_device", work
        too: "dist_sync"         in rounds, one push of each worker per round ("dist_device_sync":
                                 the same)
        "dist_async"        each push is a step of its own
        "dist_ssp"          as dist_async, but a worker that pulls is at most `staleness` rounds
                            ahead of the slowest worker
        "local", "device"   in this process alone, without a job; "device" can compress each
                            device's push
    options  the same as slimps_worker's flags:
        compression         codec spec, as "1bit" or "topk:ratio=0.01"; for Adam, as
                            "qsgd:bits=4,norm=max,error_feedback=on"; default "none"
        threshold           gradients of at least this many fp32 bytes are compressed (0: all, which
                            costs "1bit" accuracy); "auto": the store measures which size pays
        policy              what decides which codec a push uses: "threshold" (the two above), or a
                            policy that adapts and names its codecs itself, as
                            "lgreco:codec=topk"; dist_sync only
        pull_compression    what pulls carry: "none" or "fp16" or "bf16" weights, or a codec for the
                            change of the weights; "policy": the change, in the codec that the
                            policy has chosen for the pushes; dist_sync only
        pull_threshold      the threshold for pulls
        pre_steps           number of rounds that "auto" measures, at least 4
        remeasure_every     later on, "auto" measures again every so many rounds, at least 8; 0:
                            never
        threshold_table     file with a saved table, which replaces the measurement
        partition_bytes     larger tensors are cut into partitions of this many fp32 bytes
        encode_threads      partitions encoded (and merged) at a time; 0: one per core
        staleness           rounds, for dist_ssp; default 0
        grad_scale          codecs see gradient * grad_scale; the optimizer's rescale_grad undoes it
        non_finite          "stop" (the default): a push of NaN or infinity is refused. "pass": it
                            travels raw, no residual changes, and the round's sum is not finite
                            either, for every worker. Needs dist_sync; powersgd, thc and signsgd
                            refuse it still
        same_host           transport to a server on this machine: "shm", "ipc" or "tcp"
        emulate_link        rate of an emulated link, as "100mbit" or "12.5MB"
        emulate_latency_ms  delay of the emulated link in milliseconds
        join_timeout_s      seconds until all nodes of the job have come; default 600
        timeout_s           seconds that a call waits for others that live; default 0: as the job
                            says (slimps launch --timeout_s, 1800)
        metrics_port        port where this worker's own metrics are served for Prometheus, at
                            /metrics, until the store is closed; 0: any free one; default: that of
                            SLIMPS_METRICS_PORT, or -1, none
        watch_bind          its address; default: that of SLIMPS_WATCH_BIND, or "127.0.0.1"

    Raises
        InvalidArgumentError: the type, an option or its value is unknown.
        FailedPreconditionError: the scheduler is not known, or this process already has a store of
            that job.
        DeadlineExceededError: the scheduler does not answer, or nodes are missing.
        UnavailableError: the metrics' port is in use, or the address is not this machine's.
    """
    kind = _options.resolve_type(type)
    job = _job.current() if kind in _options.ROUNDS + _options.PUSH_BY_PUSH else None
    if job is not None:
        _open_stores.check_none_of(job)
    made = _options.make(job, options)
    traced = job is not None and _trace.start(job)
    try:
        return KVStore(native.Store.create(kind, made), type, made, job)
    except BaseException:
        if traced:
            _trace.give_up()
        raise
