// SPDX-License-Identifier: Apache-2.0
// What adacomp and local_selection share: bins, one scale for the partition, payloads of
// format/bins.h.
//
// The first pass handles the bins that begin in a block. It makes G in the residual, finds each
// bin's maximum, selects, and writes the entries. When it ends, the scale is known. The second
// pass, which needs a residual, touches only the sent elements: residual = G - sign * scale. Bytes
// per element: 12, then 8 for each cache line that holds a sent element.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_ADACOMP_RUN_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_ADACOMP_RUN_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/options.h"
#include "compress/format/bins.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// The bin length L_T by layer. Source: Chen et al., section "Experiment Results".
struct BinLengths {
  uint32_t convolution = 50;
  uint32_t other = 500;

  uint32_t Of(LayerKind layer) const {
    return layer == LayerKind::kConvolution ? convolution : other;
  }
};

// Reads the options lt_conv and lt_fc; lt stands for whichever of them is not given.
// InvalidArgument: a length is not in 1 .. kMaxBinLength.
[[nodiscard]] absl::StatusOr<BinLengths> BinLengthOptions(const CodecSpec& spec);

// Thread-safe: constant after construction.
class BinCodec final : public Codec {
 public:
  using Select = decltype(BinKernels::select_soft);

  // `select`: which elements of a bin are sent. `extra`: H = G + extra * dW.
  BinCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
           const BinLengths& lengths, Select select, float extra);

  PayloadFormat format() const override { return PayloadFormat::kSparse; }
  bool wants_residual() const override { return feedback_ == ErrorFeedback::kOn; }

  // Returns the bytes of a payload that sends every element, with the bin length that takes more.
  size_t MaxPayloadBytes(size_t elements) const override;
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override;

 private:
  const ErrorFeedback feedback_;
  const BinLengths lengths_;
  const Select select_;
  const float extra_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_ADACOMP_RUN_H_
