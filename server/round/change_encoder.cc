// SPDX-License-Identifier: Apache-2.0
#include "server/round/change_encoder.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/format/decode.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

// One block in this many is timed. Reading the clock costs a few hundredths of encoding a block.
constexpr size_t kTimedEvery = 8;
// Leaves room for the rounding of the sums of squares.
constexpr double kRounding = 1.001;

absl::Status CheckWorth(const Codec& codec, const EncodeStats& stats) {
  if (stats.error_norm2 <= stats.input_norm2 * kRounding) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "codec ", codec.spec().ToString(), ": what it makes of the change is further off (",
      stats.error_norm2, ") than no change at all (", stats.input_norm2, ")"));
}

absl::StatusOr<EncodeStats> AsTheyAre(const absl::Status& why, std::span<const float> weights,
                                      const SeenWeights& seen) {
  std::copy(weights.begin(), weights.end(), seen.after.begin());
  return why;
}

}  // namespace

ChangeEncoder::ChangeEncoder(const BlockCodec& codec, const EncodeContext& context,
                             const SeenWeights& seen, std::span<std::byte> payload,
                             EncodeWorkspace& workspace, const Clock* clock, const Kernels& kernels)
    : codec_(codec),
      kernels_(kernels),
      clock_(clock),
      seen_(seen),
      input_{.gradient = seen.after, .residual = {}, .context = context},
      payload_(payload.first(codec.MaxPayloadBytes(seen.after.size()))),
      sums_(workspace.Take<BlockSums>(Codec::Blocks(seen.after.size()))) {
  codec_.BuildHeader(input_, payload_);
}

void ChangeEncoder::EncodeBlock(size_t first, std::span<const float> weights) {
  if (unencodable_.load(std::memory_order_relaxed)) return;  // Finish overwrites w_seen
  if (clock_ == nullptr || first / kBlockElements % kTimedEvery != 0) return Encode(first, weights);
  const SteadyTime start = clock_->Now();
  Encode(first, weights);
  timed_ns_.fetch_add(absl::ToInt64Nanoseconds(clock_->Now() - start), std::memory_order_relaxed);
  timed_blocks_.fetch_add(1, std::memory_order_relaxed);
}

void ChangeEncoder::Encode(size_t first, std::span<const float> weights) {
  const size_t block = first / kBlockElements;
  const std::span<const float> before = seen_.before.subspan(first, weights.size());
  const std::span<float> after = seen_.after.subspan(first, weights.size());
  alignas(kBufferAlignment) std::array<float, kBlockElements> kept;
  std::copy(before.begin(), before.end(), after.begin());
  // `after` then holds x, and `kept` holds w_seen until the decoded x is added to it below.
  kernels_.update.difference(weights.data(), weights.size(), after.data(), kept.data());
  if (codec_.FindUnencodable(input_, block, block + 1) != Codec::kEncodable) {
    unencodable_.store(true, std::memory_order_relaxed);
    return;
  }
  sums_[block] = codec_.EncodeBlock(input_, block, payload_);
  std::copy_n(kept.begin(), after.size(), after.begin());
  DecodeAddWith(kernels_, codec_.format(), payload_, seen_.after.size(), first, after);
}

absl::StatusOr<EncodeStats> ChangeEncoder::Finish(std::span<const float> weights) {
  if (unencodable_.load(std::memory_order_relaxed)) {
    return AsTheyAre(absl::InvalidArgumentError(absl::StrCat(
                         "codec ", codec_.spec().ToString(),
                         ": some change of the weights is NaN, infinite or too large to encode")),
                     weights, seen_);
  }
  EncodeStats stats = SumOf(sums_);
  stats.payload_bytes = payload_.size();
  const absl::Status worth = CheckWorth(codec_, stats);
  if (!worth.ok()) return AsTheyAre(worth, weights, seen_);
  return stats;
}

absl::Duration ChangeEncoder::encode_time() const {
  const int64_t blocks = timed_blocks_.load(std::memory_order_relaxed);
  if (blocks == 0) return absl::ZeroDuration();
  const auto all = static_cast<double>(sums_.size());
  return absl::Nanoseconds(timed_ns_.load(std::memory_order_relaxed)) *
         (all / static_cast<double>(blocks));
}

absl::StatusOr<EncodeStats> EncodeWholeChange(const Codec& codec, const EncodeContext& context,
                                              std::span<const float> weights,
                                              const SeenWeights& seen, std::span<std::byte> payload,
                                              EncodeWorkspace& workspace) {
  for (size_t i = 0; i < weights.size(); ++i) seen.after[i] = weights[i] - seen.before[i];
  workspace.Reset();
  const absl::StatusOr<EncodeStats> stats = codec.Encode(
      {.gradient = seen.after, .residual = {}, .context = context}, payload, workspace);
  if (!stats.ok()) return AsTheyAre(stats.status(), weights, seen);
  const absl::Status worth = CheckWorth(codec, *stats);
  if (!worth.ok()) return AsTheyAre(worth, weights, seen);
  std::copy(seen.before.begin(), seen.before.end(), seen.after.begin());
  const std::span<const std::byte> used = payload.first(stats->payload_bytes);
  for (size_t first = 0; first < weights.size(); first += kBlockElements) {
    const size_t length = std::min(kBlockElements, weights.size() - first);
    DecodeAdd(codec.format(), used, weights.size(), first, seen.after.subspan(first, length));
  }
  return stats;
}

}  // namespace slimps
