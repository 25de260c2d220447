#include "server/change_encoder.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/format/decode.h"
#include "proto/base/buffer.h"

namespace slimps {

ChangeEncoder::ChangeEncoder(const BlockCodec& codec, const EncodeContext& context,
                             std::span<float> seen, std::span<std::byte> payload,
                             EncodeWorkspace& workspace, const Kernels& kernels)
    : codec_(codec),
      kernels_(kernels),
      input_{.gradient = seen, .residual = {}, .context = context},
      seen_(seen),
      payload_(payload.first(codec.MaxPayloadBytes(seen.size()))),
      sums_(workspace.Take<BlockSums>(Codec::Blocks(seen.size()))) {
  codec_.BuildHeader(input_, payload_);
}

void ChangeEncoder::EncodeBlock(size_t first, std::span<const float> weights) {
  if (unencodable_.load(std::memory_order_relaxed)) return;  // Finish starts afresh
  const size_t block = first / kBlockElements;
  const std::span<float> seen = seen_.subspan(first, weights.size());
  alignas(kBufferAlignment) std::array<float, kBlockElements> before;
  kernels_.update.difference(weights.data(), weights.size(), seen.data(), before.data());
  if (codec_.FindUnencodable(input_, block, block + 1) != Codec::kEncodable) {
    unencodable_.store(true, std::memory_order_relaxed);
    return;
  }
  sums_[block] = codec_.EncodeBlock(input_, block, payload_);
  std::copy_n(before.begin(), seen.size(), seen.begin());
  DecodeAddWith(kernels_, codec_.format(), payload_, seen_.size(), first, seen);
}

absl::StatusOr<EncodeStats> ChangeEncoder::Finish(std::span<const float> weights) {
  if (unencodable_.load(std::memory_order_relaxed)) {
    std::copy(weights.begin(), weights.end(), seen_.begin());
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", codec_.spec().ToString(),
                     ": some change of the weights is NaN, infinite or too large to encode"));
  }
  EncodeStats stats = SumOf(sums_);
  stats.payload_bytes = payload_.size();
  return stats;
}

}  // namespace slimps
