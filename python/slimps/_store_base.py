# SPDX-License-Identifier: Apache-2.0
"""Who a store is, what it has sent and what was decided: the base of KVStore."""

from __future__ import annotations

from typing import Any, Dict, Optional

from slimps import _compression, _job, _known_keys, _options, _store_optimizer, native


class StoreBase:
    """What every part of KVStore shares. Thread-safe."""

    def __init__(
        self,
        store: native.Store,
        name: str,
        options: native.Options,
        job: Optional[_job.Job] = None,
    ) -> None:
        self._store = store
        self._job = job
        self._type = name
        self._kind = _options.resolve_type(name)
        self._grad_scale = float(options.get("grad_scale"))
        self._non_finite = options.get("non_finite")
        self._compression = _compression.Compression.of(options.get("compression"))
        self._policy = options.get("policy")
        self._keys = _known_keys.KnownKeys()
        self._optimizer = _store_optimizer.StoreOptimizer()

    @property
    def type(self) -> str:
        """The type as it was given to create()."""
        return self._type

    @property
    def job(self) -> Optional[_job.Job]:
        """The job that the store belongs to; None for a local store."""
        return self._job

    @property
    def is_local(self) -> bool:
        """True if the store lives in this process alone, without a job."""
        return self._kind in _options.LOCAL

    @property
    def has_rounds(self) -> bool:
        """True if the servers join all workers' pushes into rounds (dist_sync)."""
        return self._kind in _options.ROUNDS

    @property
    def rank(self) -> int:
        """This worker's number in the job, from 0."""
        return self._store.rank

    @property
    def num_workers(self) -> int:
        return self._store.num_workers

    @property
    def former_rounds(self) -> int:
        """How many rounds a former process of this worker's rank took part in; 0: there was none.

        Not 0: this process was started again while the job runs. init keeps the servers' weights,
        and training goes on with the step after so many.
        """
        return self._store.former_rounds()

    @property
    def timeout_s(self) -> float:
        """Seconds that a call waits for others that live: the option, or what the job says."""
        return self._store.timeout_s()

    def is_capable(self, capability: str) -> bool:
        """True if the store has a capability. "optimizer": the servers can run an optimizer."""
        return self._store.is_capable(capability.lower())

    @property
    def codec_is_one_bit(self) -> bool:
        """True if pushes are `1bit`."""
        return self._compression.is_one_bit

    @property
    def codec_has_momentum(self) -> bool:
        """True if the codec of pushes applies momentum (dgc); then the optimizer must not."""
        return self._compression.momentum

    @property
    def passes_non_finite(self) -> bool:
        """True if pushes of NaN and infinity reach all workers, and are not refused."""
        return self._non_finite == "pass" and self._compression.passes_non_finite

    @property
    def takes_rows(self) -> bool:
        """True if pushes may be RowSparse: gradients are not compressed."""
        return self._compression.takes_rows and self._policy == "threshold"

    @property
    def unscale(self) -> float:
        """The rescale_grad that undoes grad_scale; 1 if the servers count signs (no scale)."""
        return 1.0 if self._compression.counts_signs else 1.0 / self._grad_scale

    # ---- figures --------------------------------------------------------------------------------

    def totals(self) -> Dict[str, float]:
        """Returns this worker's sums since create().

        bytes_pushed and bytes_pulled count payload bytes, raw_bytes_pushed what the gradients have
        in fp32. copy_s, encode_s, send_s, wait_s and decode_s are seconds, one per stage.
        compression_gain and compression_error are the parts of |gradient + residual|^2 that
        compressed pushes have sent and left out; 1 and 0 without any.
        """
        return self._store.totals()

    def decision(self) -> Optional[Dict[str, Any]]:
        """Returns what is compressed, the same on all workers, or None.

        None means that "auto" has not decided yet, or that there is no compression. Otherwise a
        dict:
            codec, threshold_bytes            pushes of at least so many fp32 bytes use the codec;
                                              None: compression pays for no size
            pull_codec, pull_threshold_bytes  the same for pulls
            from_round                        the decision holds from this round on
            table                             the measured means behind it, a list of dicts; empty
                                              if the threshold was given

        A row of the table has `direction` ("push" or "pull"), the tensor's size in `bytes`, and the
        milliseconds t_c_ms (raw, on the wire), t_cq_ms (compressed, on the wire) and t_pq_ms
        (encoding and decoding). Compression pays where t_c > t_cq + t_pq.

        A policy that adapts decides for each key. The dict then also has
            policy, reason                    the policy, and why it has decided so, in words
            codecs, reasons                   for each key the codec of its pushes and why. Where
                                              each worker chooses among several codecs for each
                                              round, " > " stands between them
        """
        return self._store.decision()
