// SPDX-License-Identifier: Apache-2.0
// PartitionQuantizer: base of the codecs that round all elements of a partition by one scale. The
// scale depends on all elements, so an encoding takes two passes.
//
// The first pass reads gradient and residual and writes nothing; the second reads them again. That
// moves 8 + 12 bytes per element, as many as leaving x in the residual would (12 + 8). But the
// random numbers are then drawn while the most bytes are under way, and an encoding without a
// residual needs no memory for x.
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_PARTITION_QUANTIZER_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_PARTITION_QUANTIZER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/options.h"
#include "compress/codec/quantise/stochastic.h"
#include "compress/format/levels.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Norms of all x of a partition.
struct PartitionNorms {
  double input2 = 0;  // sum of the blocks' x * x, added in their order; may be infinite
  float largest = 0;  // largest |x|
  size_t elements = 0;
};

// Thread-safe: constant after construction.
class PartitionQuantizer : public Codec {
 public:
  PayloadFormat format() const final { return PayloadFormat::kLevels; }
  bool wants_residual() const final { return feedback_ == ErrorFeedback::kOn; }
  size_t MaxPayloadBytes(size_t elements) const final { return Layout(elements).PayloadBytes(); }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const final;

 protected:
  virtual Scaling ChooseScaling(const PartitionNorms& norms) const = 0;

  // Rounds one block's elements and writes them to `out`, the block's part of the payload.
  virtual BlockSums EncodeBlock(const BlockInput& in, const Rounding& rounding,
                                const LevelsLayout& layout, uint8_t* out) const = 0;

  // `shape`: the payload's layout without its elements and value. `measure`: a kernel that returns
  // what ChooseScaling needs.
  PartitionQuantizer(CodecSpec spec, const Kernels& kernels, const LevelsLayout& shape,
                     MeasureInput measure, ErrorFeedback feedback, uint64_t seed)
      : Codec(std::move(spec), kernels, kMaxQuantized),
        measure_(measure),
        shape_(shape),
        feedback_(feedback),
        seed_(seed) {}

 private:
  LevelsLayout Layout(size_t elements) const {
    LevelsLayout layout = shape_;
    layout.elements = elements;
    return layout;
  }

  const MeasureInput measure_;
  const LevelsLayout shape_;
  const ErrorFeedback feedback_;
  const uint64_t seed_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_PARTITION_QUANTIZER_H_
