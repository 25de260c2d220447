// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/codec_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "compress/format/format.h"
#include "compress/format/philox.h"
#include "compress/policy/measured_rounds.h"

namespace slimps {
namespace {

std::string RawSpecFor(const ReferenceTensor& tensor) {
  return tensor.dtype == wire::FLOAT16 ? "fp16" : "none";
}

std::string SpecFor(const ReferenceTensor& tensor, const ReferenceOptions& options) {
  const bool raw = options.compression == "none" ||
                   tensor.value.size() * sizeof(float) < options.threshold_bytes ||
                   !MakeCodecOrDie(options.compression)->Takes(tensor.shape());
  return raw ? RawSpecFor(tensor) : options.compression;
}

std::vector<float> EncodeAndDecode(const Codec& codec, const EncodeInput& input) {
  const size_t elements = input.gradient.size();
  std::vector<std::byte> payload(codec.MaxPayloadBytes(elements));
  const auto stats = codec.Encode(input, payload);
  EXPECT_TRUE(stats.ok()) << stats.status();
  payload.resize(stats->payload_bytes);
  EXPECT_TRUE(ValidatePayload(codec.format(), payload, elements).ok());
  std::vector<float> decoded(elements);
  Decode(codec.format(), payload, elements, 0, decoded);
  return decoded;
}

float SignOf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }

}  // namespace

std::unique_ptr<Codec> MakeCodecOrDie(const std::string& spec) {
  auto codec = MakeCodec(*ParseCodecSpec(spec));
  if (!codec.ok()) std::abort();
  return *std::move(codec);
}

bool IsProfiled(const ReferenceTensor& tensor, const std::vector<ReferenceTensor>& tensors) {
  std::map<uint64_t, uint64_t> counts;
  for (const ReferenceTensor& one : tensors) ++counts[one.value.size() * sizeof(float)];
  return ChooseSizes(counts, /*threshold=*/std::nullopt, /*pair=*/0)
      .contains(tensor.value.size() * sizeof(float));
}

ReferenceTensorJob::ReferenceTensorJob(ReferenceTensor tensor, const ReferenceOptions& options)
    : tensor_(std::move(tensor)),
      options_(options),
      compressor_(MakeCodecOrDie(options.compression)),
      codec_(MakeCodecOrDie(SpecFor(tensor_, options))),
      raw_(MakeCodecOrDie(RawSpecFor(tensor_))),
      weights_(tensor_.value),
      velocity_(weights_.size()) {
  seen_ = Pulled();
}

const Codec& ReferenceTensorJob::CodecOfRound() const {
  const bool raw = round_ > 2 && round_ <= options_.measured_rounds && round_ % 2 == 1;
  return raw ? *raw_ : *codec_;
}

std::vector<float> ReferenceTensorJob::SentPartition(uint32_t worker, size_t partition,
                                                     std::span<const float> gradient) {
  State& state = states_[{worker, partition}];
  const Codec& codec = CodecOfRound();
  const bool momentum_alone = compressor_->wants_momentum() && !codec.wants_momentum();
  if (codec.wants_residual() || momentum_alone) state.residual.resize(gradient.size());
  if (compressor_->wants_momentum()) state.momentum.resize(gradient.size());
  EncodeInput input{
      .gradient = gradient,
      .residual = state.residual,
      .momentum = state.momentum,
      .grad_scale = options_.grad_scale,
      .context = {.key = tensor_.key.id(),
                  .partition = static_cast<uint32_t>(partition),
                  .round = round_,
                  .worker = worker,
                  .layer = static_cast<LayerKind>(tensor_.layer),
                  .grid = RowGrid::At(partition * options_.partition_elements, gradient.size(),
                                      static_cast<size_t>(tensor_.row_elements))}};
  std::vector<float> advanced(gradient.size());
  if (momentum_alone) {
    EXPECT_TRUE(compressor_->AdvanceMomentum(input, advanced).ok());
    input.gradient = advanced;
    input.momentum = {};
    input.grad_scale = 1;
  }
  return EncodeAndDecode(codec, input);
}

std::vector<float> ReferenceTensorJob::SentBy(uint32_t worker, std::span<const float> gradient) {
  std::vector<float> sent;
  for (size_t first = 0; first < gradient.size(); first += options_.partition_elements) {
    const size_t length = std::min(options_.partition_elements, gradient.size() - first);
    const std::vector<float> part =
        SentPartition(worker, first / options_.partition_elements, gradient.subspan(first, length));
    sent.insert(sent.end(), part.begin(), part.end());
  }
  return sent;
}

void ReferenceTensorJob::Forget(uint32_t worker) {
  std::erase_if(states_, [worker](const auto& state) { return state.first.first == worker; });
}

void ReferenceTensorJob::Round(std::span<const std::vector<float>> gradients,
                               const CountedWorkers& counted) {
  const auto counts = [&](uint32_t worker, size_t element) {
    const size_t partition = element / options_.partition_elements;
    return partition >= counted.size() || !counted[partition].has_value() ||
           counted[partition]->contains(worker);
  };
  ++round_;
  std::vector<float> sum(weights_.size());
  for (uint32_t worker = 0; worker < gradients.size(); ++worker) {
    const std::vector<float> sent = SentBy(worker, gradients[worker]);
    if (options_.mode != wire::DIST_SYNC) {
      Step(sent, 1);
    } else {
      for (size_t i = 0; i < sum.size(); ++i) {
        if (counts(worker, i)) sum[i] += sent[i];
      }
    }
  }
  if (options_.mode == wire::DIST_SYNC) Step(sum, static_cast<uint32_t>(gradients.size()));
}

void ReferenceTensorJob::Step(std::vector<float> sum, uint32_t contributors) {
  float scale = options_.rescale_grad;
  if (options_.average) scale /= static_cast<float>(contributors);
  if (compressor_->combine() == Combine::kMajority) {
    for (float& x : sum) x = SignOf(x);
    scale = options_.rescale_grad;
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    const float step = sum[i] * scale;
    velocity_[i] = options_.momentum == 0 ? step : options_.momentum * velocity_[i] + step;
    weights_[i] =
        options_.learning_rate == 0 ? sum[i] : weights_[i] - options_.learning_rate * velocity_[i];
  }
  if (IsPulledAsChange()) MoveSeen();
}

void ReferenceTensorJob::MoveSeen() {
  const std::unique_ptr<Codec> codec = MakeCodecOrDie(options_.pulls);
  for (size_t first = 0; first < weights_.size(); first += options_.partition_elements) {
    const size_t length = std::min(options_.partition_elements, weights_.size() - first);
    MoveSeenPartition(*codec, first / options_.partition_elements,
                      std::span<const float>(weights_).subspan(first, length),
                      std::span<float>(seen_).subspan(first, length));
  }
}

void ReferenceTensorJob::MoveSeenPartition(const Codec& codec, size_t partition,
                                           std::span<const float> weights, std::span<float> seen) {
  std::vector<float> change(weights.size());
  for (size_t i = 0; i < change.size(); ++i) change[i] = weights[i] - seen[i];
  std::vector<std::byte> payload(codec.MaxPayloadBytes(change.size()));
  const auto stats = codec.Encode(
      {.gradient = change,
       .context = {.key = tensor_.key.id(),
                   .partition = static_cast<uint32_t>(partition),
                   .round = round_,
                   .worker = kAnyWorker,
                   .layer = static_cast<LayerKind>(tensor_.layer),
                   .grid = RowGrid::At(partition * options_.partition_elements, change.size(),
                                       static_cast<size_t>(tensor_.row_elements))}},
      payload);
  // A change that is not worth it travels as the weights.
  if (!stats.ok() || stats->payload_bytes >= weights.size_bytes() ||
      stats->error_norm2 > stats->input_norm2 * 1.001) {
    std::ranges::copy(weights, seen.begin());
    return;
  }
  payload.resize(stats->payload_bytes);
  Decode(codec.format(), payload, change.size(), 0, change);
  for (size_t i = 0; i < change.size(); ++i) seen[i] += change[i];
}

std::vector<float> ReferenceTensorJob::Pulled() const {
  if (IsPulledAsChange() && round_ > 0) return seen_;
  if (tensor_.dtype == wire::FLOAT32) return weights_;
  return EncodeAndDecode(*MakeCodecOrDie("fp16"), {.gradient = weights_});
}

}  // namespace slimps
