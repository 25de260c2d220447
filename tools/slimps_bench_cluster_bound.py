"""What no system can beat: the bytes that a round's arithmetic and copies must touch, on all nodes, and the bound made
of them. Pure.

Bytes read and bytes written both count, as in d += s, which touches 12 an element. Checksums, headers and a second copy
that an implementation makes do not: they need not be. Where a node's worker and server share memory, what passes
between those two needs no copy into the kernel and out of it: payloads are read where they lie; only raw weights are
copied, once, to where they belong.
"""

import collections

# All by iteration. fp32 bytes: `gradient` of the whole model, `compressed` and `pull_compressed` of its tensors that
# are. Payload bytes of one worker: `payload_out` pushed, `payload_in` pulled; `shared` is the share of both that passes
# through memory shared with its node's server.
Round = collections.namedtuple(
    "Round", "workers gradient compressed pull_compressed payload_out payload_in backup encodes_on_cpu shared",
    defaults=(0.0,))


def shared_of(same_host, placement, nodes):
    """Round.shared: servers have equal shares of a model, and one of them is on the worker's node, or none."""
    return 1.0 / nodes if same_host == "shm" and placement == "together" else 0.0


def worker_stages(job):
    """(stage, bytes that one worker touches in it)."""
    apart = 1.0 - job.shared
    return [
        ("copy: gradient to grad_buf", 2 * job.gradient),
        # x = g + e, e = x - decode(x): both read, e and the payload written. What is not compressed leaves as it is.
        ("encode", 3 * job.compressed + (job.payload_out - (job.gradient - job.compressed))
         if job.encodes_on_cpu and job.compressed else 0),
        ("send: into the kernel", 2 * apart * job.payload_out),
        ("receive: out of the kernel", 2 * apart * job.payload_in),
        ("receive: raw weights out of shared memory", 2 * job.shared * (job.gradient - job.pull_compressed)),
        # Raw weights are where they belong once received; a change is read and added to them.
        ("decode", 2 * job.pull_compressed + (job.payload_in - (job.gradient - job.pull_compressed))
         if job.pull_compressed else 0),
        ("local update: glo_buf and gradient to loc_buf", 3 * job.gradient if job.backup else 0),
    ]


def server_stages(job):
    """(stage, bytes that all servers touch in it)."""
    apart = 1.0 - job.shared
    pulled = job.payload_in - (job.gradient - job.pull_compressed) if job.pull_compressed else 0
    return [
        ("receive: out of the kernel", 2 * apart * job.workers * job.payload_out),
        ("aggregate and update: payloads to weights", job.workers * job.payload_out + 2 * job.gradient),
        # Weights and what workers have of them to a change; made once for all workers.
        ("encode the change", 3 * job.pull_compressed + pulled),
        ("send: into the kernel", 2 * apart * job.workers * job.payload_in),
    ]


def touched_bytes(job):
    return (job.workers * sum(size for _, size in worker_stages(job))
            + sum(size for _, size in server_stages(job)))


def cpu_ms(job, bytes_per_second, cores):
    return 1e3 * touched_bytes(job) / bytes_per_second / cores


def wire_ms(wire_bytes, bits_per_second):
    """None as a rate: a link without one, on which bytes take no time."""
    return 8e3 * wire_bytes / bits_per_second if bits_per_second else 0.0


def bound_ms(compute_ms, wire, cpu):
    return max(compute_ms, wire, cpu)
