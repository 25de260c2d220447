// SPDX-License-Identifier: Apache-2.0
// What the codecs of format "sparse" share: how many elements they send, in which precision, and
// base classes. The codecs' own files include it.
//
//   SLIMPS_ASSIGN_OR_RETURN(const SentCount count, SentCountOption(spec));   // ratio=0.01 or k=100
//   const size_t k = count.Of(elements);
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SPARSE_OPTIONS_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SPARSE_OPTIONS_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/options.h"
#include "compress/codec/sparse/select/sparse_builder.h"
#include "compress/format/format.h"

namespace slimps {

// How many of n elements are sent: a count, or floor(ratio * n) in fp64. At least 1, at most n.
struct SentCount {
  double ratio = 0;  // 0: `count` holds
  size_t count = 0;

  size_t Of(size_t elements) const {
    const size_t wanted =
        ratio > 0 ? static_cast<size_t>(ratio * static_cast<double>(elements)) : count;
    return std::min(std::max<size_t>(wanted, 1), elements);
  }
};

// Reads the options ratio=R (over 0 and at most 1) and k=K (a ratio if below 1, else a count, as in
// BytePS). Default: ratio 0.01.
// InvalidArgument: both are given, or a value is out of its range.
[[nodiscard]] absl::StatusOr<SentCount> SentCountOption(const CodecSpec& spec);

// Reads the option value=fp32|fp16. Default: fp32.
// InvalidArgument: another value.
[[nodiscard]] absl::StatusOr<SparseValues> ValueOption(const CodecSpec& spec);

// Returns the largest |x| that a value coding carries.
constexpr float LargestSparseValue(SparseValues values) {
  return LargestRawValue(values == SparseValues::kF16 ? PayloadFormat::kRawF16
                                                      : PayloadFormat::kRawF32);
}

// The limit for codecs that sum |x| over a block in fp32: 4096 * 2^115 is 2^127.
inline constexpr float kMaxSparseSummand = 0x1p115f;

// Base of the codecs of format "sparse". Thread-safe: constant after construction.
class SparseCodec : public Codec {
 public:
  PayloadFormat format() const final { return PayloadFormat::kSparse; }
  bool wants_residual() const final { return feedback_ == ErrorFeedback::kOn; }

 protected:
  // `limit`: the largest |x| that the codec takes for reasons other than the value coding.
  SparseCodec(CodecSpec spec, const Kernels& kernels, SparseValues values, ErrorFeedback feedback,
              float limit = std::numeric_limits<float>::max())
      : Codec(std::move(spec), kernels, std::min(limit, LargestSparseValue(values))),
        values_(values),
        feedback_(feedback) {}

  SparseValues values() const { return values_; }

 private:
  const SparseValues values_;
  const ErrorFeedback feedback_;
};

// Base of the codecs that send at most k of n elements. Thread-safe: constant after construction.
class CountedSparseCodec : public SparseCodec {
 public:
  size_t MaxPayloadBytes(size_t elements) const final {
    return SparseBuilder::MaxPayloadBytes({.values = values(), .elements = elements}, k(elements));
  }

 protected:
  CountedSparseCodec(CodecSpec spec, const Kernels& kernels, SparseValues values,
                     ErrorFeedback feedback, SentCount count,
                     float limit = std::numeric_limits<float>::max())
      : SparseCodec(std::move(spec), kernels, values, feedback, limit), count_(count) {}

  size_t k(size_t elements) const { return count_.Of(elements); }

 private:
  const SentCount count_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SPARSE_OPTIONS_H_
