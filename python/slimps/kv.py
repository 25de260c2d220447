"""slimps.kv.create(type): a KVStore with MXNet's methods and semantics.

    store = slimps.kv.create("dist_sync", compression="1bit", threshold=4096)
    store.init([0, 1], [weights, bias])
    store.push([0, 1], [weights_gradient, bias_gradient])
    store.pull([0, 1], out=[weights, bias])

Keys are ints or strs, one kind per store. Where a key stands, a list of keys may stand, and then a list of values. A
value is an array (numpy, torch on the CPU, or another by the buffer protocol or DLPack) of float32 or float16, or a
list of such, one per device, which push and pushpull sum. Arrays of float32 without gaps are not copied on their way to
the store; others are. A key initialised from float16 travels as float16 when it is pulled; the servers keep float32.
float64 is converted, both ways, with one warning.

Every method raises slimps.Error with the whole message: NotFoundError (a KeyError) for a key that was never
initialised, InvalidArgumentError (a ValueError), DeadlineExceededError (a TimeoutError) after `timeout_s` seconds, and
the first error of anything in the background, from then on. Methods that wait let other threads run and end on Ctrl-C;
KeyboardInterrupt ends the store, since the others' rounds would wait for this worker, and they are told why.
"""

from __future__ import annotations

from typing import Any

from slimps import _job, _open_stores, _options, _slimps, _store_types
from slimps._kvstore import KVStore

__all__ = ["KVStore", "create"]


def create(type: str = "dist_sync", **options: Any) -> "KVStore":  # pylint: disable=redefined-builtin
    """Joins the job and waits until all its nodes are there.

    type     "dist_sync" (rounds; "dist_device_sync" is the same), "dist_async" (each push is a step of its own),
             "dist_ssp" (the same, and a worker that pulls is at most `staleness` rounds ahead of the slowest), or, in
             this process alone and without a job, "local" or "device" (whose devices' pushes can be compressed).
             MXNet's other names for these are taken too, as "local_allreduce_device"
    options  as slimps_worker's flags:
        compression         codec spec, as "1bit" or "topk:ratio=0.01"; "none"
        threshold           gradients of at least so many fp32 bytes are compressed (0: all); "auto": measured
        pull_compression    what pulls carry: "none", "fp16", "bf16", or a codec of the change; dist_sync only
        pull_threshold      as threshold, for pulls
        pre_steps           rounds that "auto" measures, from 4
        remeasure_every     rounds between measurements later on, from 8; 0: none
        threshold_table     file with a saved table: nothing is measured
        partition_bytes     larger tensors are cut, fp32 bytes
        encode_threads      threads that compress; 0: as many as there are cores
        staleness           rounds, of dist_ssp; 0
        grad_scale          codecs see gradient * grad_scale; rescale_grad of the optimizer undoes it
        same_host           how a server on this machine is reached: "shm", "ipc" or "tcp"
        emulate_link        rate of an emulated link, as "100mbit" or "12.5MB"; emulate_latency_ms: its delay
        timeout_s           seconds that joining, a push or a pull may take; 60

    Raises InvalidArgumentError: type, option or value; FailedPreconditionError: the scheduler is not known, or this
    process has a store of that job; DeadlineExceededError: it is silent, or nodes are missing.
    """
    kind = _store_types.resolve(type)
    job = _job.current() if kind in _store_types.ROUNDS + _store_types.PUSH_BY_PUSH else None
    if job is not None:
        _open_stores.check_none_of(job)
    made = _options.make(job, options)
    return KVStore(_slimps.Store.create(kind, made), type, made, job)
