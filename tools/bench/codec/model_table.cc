// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/model_table.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "compress/codec/parallel_encode.h"
#include "compress/format/decode.h"
#include "compress/format/format.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"
#include "tools/bench/stopwatch.h"

namespace slimps {
namespace {

constexpr size_t kPartitionElements = 1 << 20;  // 4 MiB
constexpr int kRoundsBefore = 2;
constexpr uint64_t kFirstRound = 1 << 20;  // every codec's schedule over rounds has ended

struct Partition {
  size_t offset = 0;  // in the model's gradient, in elements
  size_t elements = 0;
  EncodeContext context;
};

std::vector<Partition> Cut(std::span<const ModelTensor> tensors) {
  std::vector<Partition> partitions;
  size_t offset = 0;
  for (size_t key = 0; key < tensors.size(); ++key) {
    size_t rest = tensors[key].elements();
    for (uint32_t index = 0; rest > 0; ++index) {
      const size_t elements = std::min(rest, kPartitionElements);
      partitions.push_back(
          {offset, elements, {.key = key, .partition = index, .layer = tensors[key].layer}});
      offset += elements;
      rest -= elements;
    }
  }
  return partitions;
}

class Model final {
 public:
  Model(std::span<const ModelTensor> tensors, const CodecSetting& setting,
        std::unique_ptr<Codec> codec, const Kernels& kernels, const Team& team, BenchData& data)
      : partitions_(Cut(tensors)),
        elements_(SizeOf(tensors).elements),
        codec_(std::move(codec)),
        kernels_(kernels),
        team_(team),
        encoder_(team.threads()),
        data_(data),
        sum_(data.Floats(BenchData::kSum, elements_)),
        jobs_(partitions_.size()),
        stats_(partitions_.size()),
        bounds_(partitions_.size(), 0.0f),
        momentum_bounds_(partitions_.size(), 0.0f) {
    if (codec_->wants_residual()) {
      residual_ = data.Floats(BenchData::kResidual, elements_);
      std::fill(residual_.begin(), residual_.end(), 0.0f);
      if (setting.residual == ResidualStart::kAged) {
        data.FillAged(residual_);
        std::fill(bounds_.begin(), bounds_.end(), BenchData::kAgedBound);
      }
    }
    if (codec_->wants_momentum()) {
      momentum_ = data.Floats(BenchData::kMomentum, elements_);
      std::fill(momentum_.begin(), momentum_.end(), 0.0f);
    }
    size_t payload_bytes = 0;
    for (const Partition& partition : partitions_) {
      payload_offsets_.push_back(payload_bytes);
      payload_bytes += Aligned(codec_->MaxPayloadBytes(partition.elements));
    }
    payload_ = data.Bytes(BenchData::kPayload, payload_bytes);
  }

  absl::Status Encode(uint64_t round) {
    const BenchData::Gradient gradient = data_.OfRound(elements_, round);
    for (size_t i = 0; i < partitions_.size(); ++i) jobs_[i] = Job(i, gradient, round);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      SLIMPS_ASSIGN_OR_RETURN(stats_[i], encoder_.Encode(jobs_[i]));
    }
    for (size_t i = 0; i < stats_.size(); ++i) {
      bounds_[i] = stats_[i].ResidualBound();
      momentum_bounds_[i] = stats_[i].momentum_bound;
    }
    return absl::OkStatus();
  }

  absl::Status Decode() {
    std::vector<absl::Status> checked(partitions_.size());
    team_.ForEach(partitions_.size(), [&](size_t i) {
      const Partition& partition = partitions_[i];
      const std::span<const std::byte> payload = jobs_[i].payload.first(stats_[i].payload_bytes);
      checked[i] = ValidatePayload(codec_->format(), payload, partition.elements);
      if (!checked[i].ok()) return;
      DecodeAddWith(kernels_, codec_->format(), payload, partition.elements, 0,
                    sum_.subspan(partition.offset, partition.elements));
    });
    for (const absl::Status& status : checked) SLIMPS_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  size_t payload_bytes() const {
    size_t bytes = 0;
    for (const EncodeStats& stats : stats_) bytes += stats.payload_bytes;
    return bytes;
  }

 private:
  static size_t Aligned(size_t bytes) {
    return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  }

  EncodeJob Job(size_t i, const BenchData::Gradient& gradient, uint64_t round) {
    const Partition& partition = partitions_[i];
    const auto part = [&](std::span<float> state) {
      return state.empty() ? state : state.subspan(partition.offset, partition.elements);
    };
    EncodeContext context = partition.context;
    context.round = round;
    return {.codec = codec_.get(),
            .input = {.gradient = gradient.values.subspan(partition.offset, partition.elements),
                      .residual = part(residual_),
                      .momentum = part(momentum_),
                      .grad_scale = gradient.sign,
                      .gradient_bound = data_.gradient_bound(),
                      .residual_bound = bounds_[i],
                      .momentum_bound = momentum_bounds_[i],
                      .context = context},
            .payload =
                payload_.subspan(payload_offsets_[i], codec_->MaxPayloadBytes(partition.elements))};
  }

  const std::vector<Partition> partitions_;
  const size_t elements_;
  const std::unique_ptr<Codec> codec_;
  const Kernels& kernels_;
  const Team& team_;
  const ParallelEncoder encoder_;
  BenchData& data_;
  const std::span<float> sum_;
  std::span<float> residual_, momentum_;
  std::span<std::byte> payload_;
  std::vector<size_t> payload_offsets_;
  std::vector<EncodeJob> jobs_;
  std::vector<EncodeStats> stats_;
  std::vector<float> bounds_;  // each partition's residual bound
  std::vector<float> momentum_bounds_;
};

}  // namespace

ModelSize SizeOf(std::span<const ModelTensor> tensors) {
  ModelSize size;
  for (const ModelTensor& tensor : tensors) size.elements += tensor.elements();
  size.partitions = Cut(tensors).size();
  return size;
}

absl::StatusOr<ModelTimes> TimeModel(std::span<const ModelTensor> tensors,
                                     const CodecSetting& setting, const Kernels& kernels,
                                     const Team& team, int rounds, BenchData& data) {
  SLIMPS_ASSIGN_OR_RETURN(auto codec, MakeCodec(setting, kernels));
  Model model(tensors, setting, std::move(codec), kernels, team, data);
  std::vector<double> encode, decode;
  for (int i = -kRoundsBefore; i < rounds; ++i) {
    const auto round = kFirstRound + static_cast<uint64_t>(i + kRoundsBefore);
    absl::Status status;
    const double encoding =
        TimeRuns(team.threads(), 1, [&] { status.Update(model.Encode(round)); });
    const double decoding = TimeRuns(team.threads(), 1, [&] {
      if (status.ok()) status.Update(model.Decode());
    });
    SLIMPS_RETURN_IF_ERROR(status);
    if (i < 0) continue;
    encode.push_back(encoding);
    decode.push_back(decoding);
  }
  return ModelTimes{Median(encode), Median(decode), model.payload_bytes()};
}

}  // namespace slimps
