// What a worker's pushes carried, of one tensor or of all.
#ifndef SLIMPS_WORKER_PUSH_COUNTS_H_
#define SLIMPS_WORKER_PUSH_COUNTS_H_

#include <cstdint>

#include "compress/codec/codec.h"

namespace slimps {

struct PushCounts {
  uint64_t elements = 0;       // of the gradients
  uint64_t elements_sent = 0;  // that payloads carried; the others decode to 0
  uint64_t payload_bytes = 0;
  // Over the pushes that a codec other than none and half precision made smaller, in the units that codecs see
  // (gradient * grad_scale): |x|^2, |decode(x)|^2 and |x - decode(x)|^2, x being the gradient plus the residual.
  double input_norm2 = 0, decoded_norm2 = 0, error_norm2 = 0;

  // One push of `elements` elements.
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

  // What is left of the compressed pushes' |x|^2 (Source: GraVAC, section 3), and how much of it the difference to what
  // was sent has (as in L-GreCo). 1 and 0 where nothing was compressed; NaN where a sum exceeded its range.
  double CompressionGain() const { return input_norm2 == 0 ? 1 : decoded_norm2 / input_norm2; }
  double CompressionError() const { return input_norm2 == 0 ? 0 : error_norm2 / input_norm2; }
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_COUNTS_H_
