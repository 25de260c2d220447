// SPDX-License-Identifier: Apache-2.0
// PushCounts: sums over a worker's pushes, of one tensor or of all. Thread-compatible.
#ifndef SLIMPS_WORKER_TENSOR_PUSH_COUNTS_H_
#define SLIMPS_WORKER_TENSOR_PUSH_COUNTS_H_

#include <cstdint>

#include "compress/codec/codec.h"

namespace slimps {

struct PushCounts {
  uint64_t elements = 0;  // of the gradients
  // Elements that payloads carried; the others decode to 0.
  uint64_t elements_sent = 0;
  uint64_t payload_bytes = 0;
  // Sums over the pushes that a codec other than none and half precision made smaller, in the units
  // that codecs see (gradient * grad_scale): |x|^2, |decode(x)|^2 and |x - decode(x)|^2, where x is
  // the gradient plus the residual.
  double input_norm2 = 0, decoded_norm2 = 0, error_norm2 = 0;

  // Adds one push of `pushed` elements.
  void Add(uint64_t pushed, const EncodeStats& stats, bool compressed) {
    elements += pushed;
    elements_sent += stats.elements_sent;
    payload_bytes += stats.payload_bytes;
    if (!compressed) return;
    input_norm2 += stats.input_norm2;
    decoded_norm2 += stats.decoded_norm2;
    error_norm2 += stats.error_norm2;
  }

  void Add(const PushCounts& other) {
    elements += other.elements;
    elements_sent += other.elements_sent;
    payload_bytes += other.payload_bytes;
    input_norm2 += other.input_norm2;
    decoded_norm2 += other.decoded_norm2;
    error_norm2 += other.error_norm2;
  }

  // The gain is the share of the compressed pushes' |x|^2 that was sent (source: GraVAC, section
  // 3); it is 1 if nothing was compressed. The error is the share of |x - decode(x)|^2 in it (as in
  // L-GreCo); it is 0 if nothing was compressed. Both are NaN if a sum exceeded its range.
  double CompressionGain() const { return input_norm2 == 0 ? 1 : decoded_norm2 / input_norm2; }
  double CompressionError() const { return input_norm2 == 0 ? 0 : error_norm2 / input_norm2; }
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_PUSH_COUNTS_H_
