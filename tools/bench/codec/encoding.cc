// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/encoding.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr int kRoundsBefore = 4;
// A round in which every codec's schedule over rounds has ended.
constexpr uint64_t kFirstRound = 1 << 20;
constexpr double kMaxGrowth = 100;  // of the error's squared norm

}  // namespace

Encoding::Encoding(const CodecSetting& setting, std::unique_ptr<Codec> codec, Feedback feedback,
                   size_t elements, int threads, BenchData& data, const RowGrid& grid)
    : setting_(setting),
      codec_(std::move(codec)),
      elements_(elements),
      grid_(grid),
      data_(data),
      encoder_(threads > 1 ? std::make_unique<ParallelEncoder>(threads) : nullptr),
      payload_(data.Bytes(BenchData::kPayload, codec_->MaxPayloadBytes(elements))),
      round_(kFirstRound) {
  if (feedback == Feedback::kOn) {
    residual_ = data.Floats(BenchData::kResidual, elements);
    residual_start_ = data.Floats(BenchData::kResidualStart, elements);
    if (setting.residual == ResidualStart::kAged) {
      data.FillAged(residual_);
      bounds_.residual = BenchData::kAgedBound;
    } else {
      std::fill(residual_.begin(), residual_.end(), 0.0f);
    }
  }
  if (codec_->wants_momentum()) {
    momentum_ = data.Floats(BenchData::kMomentum, elements);
    momentum_start_ = data.Floats(BenchData::kMomentumStart, elements);
    std::fill(momentum_.begin(), momentum_.end(), 0.0f);
  }
}

absl::StatusOr<std::unique_ptr<Encoding>> Encoding::Create(const CodecSetting& setting,
                                                           const Kernels& kernels,
                                                           Feedback feedback, size_t elements,
                                                           int threads, BenchData& data,
                                                           const RowGrid& grid) {
  SLIMPS_ASSIGN_OR_RETURN(auto codec, MakeCodec(setting, kernels));
  std::unique_ptr<Encoding> encoding(
      new Encoding(setting, std::move(codec), feedback, elements, threads, data, grid));
  for (int i = 0; i < kRoundsBefore; ++i) SLIMPS_RETURN_IF_ERROR(encoding->Run());
  encoding->SaveStart();
  return encoding;
}

absl::Status Encoding::Run() { return RunRound(round_++, /*worker=*/0); }

absl::Status Encoding::RunFirstAs(uint32_t worker) {
  Restore();
  return RunRound(kFirstRound + kRoundsBefore, worker);
}

absl::Status Encoding::RunRound(uint64_t round, uint32_t worker) {
  const BenchData::Gradient gradient = data_.OfRound(elements_, round);
  EncodeInput input = {.gradient = gradient.values,
                       .residual = residual_,
                       .momentum = momentum_,
                       .grad_scale = gradient.sign,
                       .context = {.key = 1, .round = round, .worker = worker, .grid = grid_}};
  if (setting_.bounds == Bounds::kKnown) {
    input.gradient_bound = data_.gradient_bound();
    input.residual_bound = bounds_.residual;
    input.momentum_bound = bounds_.momentum;
  }
  if (encoder_ == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(stats_, codec_->Encode(input, payload_, workspace_));
  } else {
    const EncodeJob job = {.codec = codec_.get(), .input = input, .payload = payload_};
    SLIMPS_ASSIGN_OR_RETURN(stats_, encoder_->Encode(job));
  }
  bounds_ = {.residual = stats_.ResidualBound(), .momentum = stats_.momentum_bound};
  return absl::OkStatus();
}

void Encoding::SaveStart() {
  std::copy(residual_.begin(), residual_.end(), residual_start_.begin());
  std::copy(momentum_.begin(), momentum_.end(), momentum_start_.begin());
  start_error2_ = stats_.error_norm2;
  start_bounds_ = bounds_;
}

void Encoding::Settle() {
  // `<=` is false for NaN and infinity, so these count as too much too.
  if (!(stats_.error_norm2 <= kMaxGrowth * start_error2_)) Restore();
}

void Encoding::Restore() {
  std::copy(residual_start_.begin(), residual_start_.end(), residual_.begin());
  std::copy(momentum_start_.begin(), momentum_start_.end(), momentum_.begin());
  bounds_ = start_bounds_;
}

}  // namespace slimps
