# SPDX-License-Identifier: Apache-2.0
"""The lower bound of an iteration's time, from the bytes that a round must touch. Pure.

The bytes of all nodes count. Bytes read and bytes written both count: d += s touches 12 bytes per
element. Checksums, headers and extra copies of an implementation do not count, since they are not
necessary. If a node's worker and server share memory, data between them is not copied into the
kernel and out of it: payloads are read where they lie, and only raw weights are copied once, to
their place.
"""

import collections

# Bytes per iteration.
#   gradient                     fp32 bytes of the whole model
#   compressed, pull_compressed  fp32 bytes of the tensors that are compressed in pushes, in pulls
#   payload_out, payload_in      payload bytes that one worker pushes, pulls
#   shared                       fraction of both payloads that goes through memory shared with the
#                                node's server, 0 to 1
Round = collections.namedtuple(
    "Round",
    "workers gradient compressed pull_compressed payload_out payload_in backup encodes_on_cpu "
    "shared",
    defaults=(0.0,),
)


def shared_of(same_host, placement, nodes):
    """Returns Round.shared.

    Servers have equal shares of a model; one server or none is on the worker's node.
    """
    return 1.0 / nodes if same_host == "shm" and placement == "together" else 0.0


def worker_stages(job):
    """Returns [(stage, bytes that one worker touches in it)]."""
    apart = 1.0 - job.shared
    return [
        ("copy: gradient to grad_buf", 2 * job.gradient),
        # x = g + e, e = x - decode(x): reads g and e, writes e and the payload. Tensors that are
        # not compressed are sent as they are.
        (
            "encode",
            3 * job.compressed + (job.payload_out - (job.gradient - job.compressed))
            if job.encodes_on_cpu and job.compressed
            else 0,
        ),
        ("send: into the kernel", 2 * apart * job.payload_out),
        ("receive: out of the kernel", 2 * apart * job.payload_in),
        (
            "receive: raw weights out of shared memory",
            2 * job.shared * (job.gradient - job.pull_compressed),
        ),
        # Raw weights are received in their place. A change is read and added to the weights.
        (
            "decode",
            2 * job.pull_compressed + (job.payload_in - (job.gradient - job.pull_compressed))
            if job.pull_compressed
            else 0,
        ),
        ("local update: glo_buf and gradient to loc_buf", 3 * job.gradient if job.backup else 0),
    ]


def server_stages(job):
    """Returns [(stage, bytes that all servers together touch in it)]."""
    apart = 1.0 - job.shared
    pulled = job.payload_in - (job.gradient - job.pull_compressed) if job.pull_compressed else 0
    return [
        ("receive: out of the kernel", 2 * apart * job.workers * job.payload_out),
        (
            "aggregate and update: payloads to weights",
            job.workers * job.payload_out + 2 * job.gradient,
        ),
        # Reads the weights and the workers' version of them, writes the change; once for all
        # workers.
        ("encode the change", 3 * job.pull_compressed + pulled),
        ("send: into the kernel", 2 * apart * job.workers * job.payload_in),
    ]


def touched_bytes(job):
    return job.workers * sum(size for _, size in worker_stages(job)) + sum(
        size for _, size in server_stages(job)
    )


def cpu_ms(job, bytes_per_second, cores):
    return 1e3 * touched_bytes(job) / bytes_per_second / cores


def wire_ms(wire_bytes, bits_per_second):
    """Returns the milliseconds of so many bytes on a link; 0 if the rate is None (unshaped)."""
    return 8e3 * wire_bytes / bits_per_second if bits_per_second else 0.0


def bound_ms(compute_ms, wire, cpu):
    return max(compute_ms, wire, cpu)
