// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/encoding.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr int kRoundsBefore = 4;
// A round in which every codec's schedule over rounds has ended.
constexpr uint64_t kFirstRound = 1 << 20;
constexpr double kMaxGrowth = 100;  // of the error's squared norm

}  // namespace

std::vector<Partition> CutTensor(size_t elements, int threads, const RowGrid& grid) {
  const size_t most = threads == 1 ? elements : kPartitionElements;
  std::vector<Partition> partitions;
  for (size_t offset = 0; offset < elements; offset += most) {
    const size_t its = std::min(most, elements - offset);
    EncodeContext context = {.key = 1, .partition = static_cast<uint32_t>(partitions.size())};
    if (grid.elements > 0) context.grid = RowGrid::At(offset, its, grid.row_elements);
    partitions.push_back(
        {.offset = offset, .elements = its, .numbers = offset, .context = context});
  }
  return partitions;
}

Encoding::Encoding(const CodecSetting& setting, std::unique_ptr<Codec> codec, Feedback feedback,
                   std::vector<Partition> partitions, const Team& team, BenchData& data)
    : setting_(setting),
      codec_(std::move(codec)),
      partitions_(std::move(partitions)),
      team_(team),
      data_(data),
      workspaces_(static_cast<size_t>(team.threads())),
      parts_(partitions_.size()),
      round_(kFirstRound) {
  EncodeStats before = {.momentum_bound = 0};
  if (feedback == Feedback::kOn || (feedback == Feedback::kOfCodec && codec_->wants_residual())) {
    residual_ = data.Floats(BenchData::kResidual, elements());
    residual_start_ = data.Floats(BenchData::kResidualStart, elements());
    std::ranges::fill(residual_, 0.0f);
    if (setting.residual == ResidualStart::kAged) {
      data.FillAged(residual_);
      before.error_norm2 = BenchData::kAgedBound * BenchData::kAgedBound;
    }
  }
  if (codec_->wants_momentum()) {
    momentum_ = data.Floats(BenchData::kMomentum, elements());
    momentum_start_ = data.Floats(BenchData::kMomentumStart, elements());
    std::ranges::fill(momentum_, 0.0f);
  }
  std::vector<size_t> offsets = {0};  // of payloads
  for (const Partition& partition : partitions_) {
    const size_t bytes = codec_->MaxPayloadBytes(partition.elements);
    offsets.push_back(offsets.back() +
                      (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment);
  }
  const std::span<std::byte> payload = data.Bytes(BenchData::kPayload, offsets.back());
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto part = [&](std::span<float> state) {
      return state.empty() ? state : state.subspan(partitions_[i].offset, partitions_[i].elements);
    };
    parts_[i] = {.residual = part(residual_),
                 .momentum = part(momentum_),
                 .payload = payload.subspan(offsets[i], offsets[i + 1] - offsets[i]),
                 .stats = before,
                 .start = before};
  }
}

absl::StatusOr<std::unique_ptr<Encoding>> Encoding::Create(const CodecSetting& setting,
                                                           const Kernels& kernels,
                                                           Feedback feedback,
                                                           std::vector<Partition> partitions,
                                                           const Team& team, BenchData& data) {
  SLIMPS_ASSIGN_OR_RETURN(auto codec, MakeCodec(setting, kernels));
  std::unique_ptr<Encoding> encoding(
      new Encoding(setting, std::move(codec), feedback, std::move(partitions), team, data));
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
  std::vector<absl::Status> encoded(parts_.size());
  team_.ForEach(parts_.size(), [&](size_t i, size_t thread) {
    encoded[i] = Encode(i, round, worker, workspaces_[thread]);
  });
  for (const absl::Status& status : encoded) SLIMPS_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status Encoding::Encode(size_t partition, uint64_t round, uint32_t worker,
                              EncodeWorkspace& workspace) {
  const Partition& its = partitions_[partition];
  Part& part = parts_[partition];
  const BenchData::Gradient gradient = data_.OfRound(its.elements, round, its.numbers);
  EncodeInput input = {.gradient = gradient.values,
                       .residual = part.residual,
                       .momentum = part.momentum,
                       .grad_scale = gradient.sign,
                       .context = its.context};
  input.context.round = round;
  input.context.worker = worker;
  if (setting_.bounds == Bounds::kKnown) {
    input.gradient_bound = data_.gradient_bound();
    input.residual_bound = part.stats.ResidualBound();
    input.momentum_bound = part.stats.momentum_bound;
  }
  SLIMPS_ASSIGN_OR_RETURN(part.stats, codec_->Encode(input, part.payload, workspace));
  return absl::OkStatus();
}

EncodeStats Encoding::stats() const {
  EncodeStats sum;
  for (const Part& part : parts_) {
    sum.payload_bytes += part.stats.payload_bytes;
    sum.elements_sent += part.stats.elements_sent;
    sum.error_norm2 += part.stats.error_norm2;
  }
  return sum;
}

void Encoding::SaveStart() {
  std::ranges::copy(residual_, residual_start_.begin());
  std::ranges::copy(momentum_, momentum_start_.begin());
  start_error2_ = stats().error_norm2;
  for (Part& part : parts_) part.start = part.stats;
}

void Encoding::Settle() {
  // `<=` is false for NaN and infinity, so these count as too much too.
  if (!(stats().error_norm2 <= kMaxGrowth * start_error2_)) Restore();
}

void Encoding::Restore() {
  std::ranges::copy(residual_start_, residual_.begin());
  std::ranges::copy(momentum_start_, momentum_.begin());
  for (Part& part : parts_) part.stats = part.start;
}

}  // namespace slimps
