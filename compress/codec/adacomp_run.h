// What adacomp and local_selection share: bins, one scale for the partition, payloads of format/bins.h.
//
// Pass 0 goes by the bins that begin in a block: makes G in the residual, finds each bin's maximum, selects, and leaves
// the entries where the worst case would put them. Then the scale is known, and the entries move together. Pass 1, with
// a residual, touches the sent elements alone: residual = G - sign * scale. Bytes per element: 12, then 8 for each cache
// line that holds a sent element.
#ifndef SLIMPS_COMPRESS_CODEC_ADACOMP_RUN_H_
#define SLIMPS_COMPRESS_CODEC_ADACOMP_RUN_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/options.h"
#include "compress/format/bins.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// L_T by layer. Source: Chen et al., section "Experiment Results".
struct BinLengths {
  uint32_t convolution = 50;
  uint32_t other = 500;

  uint32_t Of(LayerKind layer) const {
    return layer == LayerKind::kConvolution ? convolution : other;
  }
};

// The options lt_conv and lt_fc; lt stands for whichever of them is not given.
[[nodiscard]] absl::StatusOr<BinLengths> BinLengthOptions(const CodecSpec& spec);

// Thread-safe: constant after construction.
class BinCodec final : public Codec {
 public:
  using Select = decltype(BinKernels::select_soft);

  // `extra`: H = G + extra * dW.
  BinCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
           const BinLengths& lengths, Select select, float extra);

  PayloadFormat format() const override { return PayloadFormat::kSparse; }
  bool wants_residual() const override { return feedback_ == ErrorFeedback::kOn; }
  // With every element sent, whatever the layer.
  size_t MaxPayloadBytes(size_t elements) const override;
  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override;

 private:
  const ErrorFeedback feedback_;
  const BinLengths lengths_;
  const Select select_;
  const float extra_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_ADACOMP_RUN_H_
