// SPDX-License-Identifier: Apache-2.0
#include "worker/push/level_probe.h"

#include <algorithm>
#include <cmath>

#include "compress/format/format.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Returns how many of the partition's elements the sample has.
size_t SampleSize(size_t elements) {
  const size_t blocks = Codec::Blocks(elements);
  if (blocks <= LevelProbe::kSampleBlocks) return elements;
  // Whole blocks only: the sample leaves out the partition's last block, which may be short.
  return LevelProbe::kSampleBlocks * kBlockElements;
}

// Calls `take(first, count)` for each run of elements in the sample, in order.
template <typename Take>
void ForSample(size_t elements, Take take) {
  const size_t blocks = Codec::Blocks(elements);
  if (blocks <= LevelProbe::kSampleBlocks) return take(size_t{0}, elements);
  for (size_t i = 0; i < LevelProbe::kSampleBlocks; ++i) {
    const size_t block = i * (blocks - 1) / LevelProbe::kSampleBlocks;
    take(block * kBlockElements, kBlockElements);
  }
}

double Norm2(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return sum;
}

double ScaleOf(size_t elements) {
  return static_cast<double>(elements) / static_cast<double>(SampleSize(elements));
}

}  // namespace

void LevelProbe::BeginRound(uint64_t round, CompressionPlan* plan) {
  if (!plan->adapts() || round <= round_) return;
  const SteadyTime now = clock_->Now();
  std::optional<CompressionPlan::EndedRound> ended;
  if (round_ > 0) {
    ended.emplace();
    ended->iteration = now - began_;
    for (const double norm2 : decoded_norm2_) {
      ended->gains.push_back(input_norm2_ > 0 ? norm2 / input_norm2_ : 1);
    }
  }
  input_norm2_ = 0;
  decoded_norm2_.clear();
  round_ = round;
  began_ = now;
  plan->BeginRound(round, ended);
}

absl::StatusOr<LevelProbe::Tensor*> LevelProbe::Find(const TensorPlan& tensor,
                                                     CompressionPlan* plan) {
  const auto [found, is_new] = tensors_.try_emplace(tensor.key.id());
  if (!is_new) return &found->second;
  found->second.plan = &tensor;
  found->second.partitions.resize(tensor.partitions.size());
  SLIMPS_ASSIGN_OR_RETURN(found->second.levels, plan->LevelsOf(tensor));
  return &found->second;
}

absl::Status LevelProbe::See(const GradientPart& part, std::span<const float> residual,
                             CompressionPlan* plan) {
  if (plan->report_plan().every_rounds == 0) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const tensor, Find(*part.tensor, plan));
  if (part.partition == 0) {
    tensor->ready += clock_->Now() - began_;
    ++tensor->rounds;
  }
  const bool accumulates = plan->report_plan().basis == Basis::kAccumulated;
  std::vector<const Codec*> steps;
  if (plan->report_plan().ladders) {
    SLIMPS_ASSIGN_OR_RETURN(steps, plan->StepsFor(*part.tensor, part.round));
  }
  const bool measures = !accumulates && plan->MeasuresLevels(part.round);
  if (!accumulates && !measures && steps.empty()) return absl::OkStatus();

  const std::span<const float> gradient = part.grad_buf->floats();
  Partition& seen = tensor->partitions[part.partition];
  sample_.clear();
  ForSample(gradient.size(), [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      sample_.push_back(gradient[i] * payloads_.grad_scale);
    }
  });
  if (accumulates) {
    seen.sum.resize(sample_.size());
    for (size_t i = 0; i < sample_.size(); ++i) seen.sum[i] += sample_[i];
  }
  if (!residual.empty()) {
    size_t at = 0;
    ForSample(gradient.size(), [&](size_t first, size_t count) {
      for (size_t i = first; i < first + count; ++i) sample_[at++] += residual[i];
    });
  }
  if (measures) Measure(*tensor, part.partition, part.round, sample_, &seen);
  if (!steps.empty()) {
    TrySteps(steps,
             {.gradient = sample_,
              .residual = {},
              .context = {.key = part.tensor->key.id(),
                          .partition = static_cast<uint32_t>(part.partition),
                          .round = part.round,
                          .worker = payloads_.worker}},
             ScaleOf(gradient.size()));
  }
  return absl::OkStatus();
}

void LevelProbe::TrySteps(const std::vector<const Codec*>& steps, const EncodeInput& input,
                          double scale) {
  const double input_norm2 = scale * Norm2(input.gradient);
  decoded_norm2_.resize(std::max(decoded_norm2_.size(), steps.size()));
  input_norm2_ += input_norm2;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i]->format() == PayloadFormat::kRawF32) {
      decoded_norm2_[i] += input_norm2;
      continue;
    }
    payload_.resize(steps[i]->MaxPayloadBytes(input.gradient.size()));
    workspace_.Reset();
    const auto stats = steps[i]->Encode(input, payload_, workspace_);
    if (stats.ok()) decoded_norm2_[i] += scale * stats->decoded_norm2;
  }
}

void LevelProbe::Measure(const Tensor& tensor, size_t partition, uint64_t round,
                         std::span<const float> x, Partition* seen) {
  const size_t elements = tensor.plan->partitions[partition].elements;
  seen->figures.resize(tensor.levels.size());
  seen->input_norm2 += ScaleOf(elements) * Norm2(x);
  ++seen->rounds;
  const EncodeInput input{.gradient = x,
                          .residual = {},
                          .context = {.key = tensor.plan->key.id(),
                                      .partition = static_cast<uint32_t>(partition),
                                      .round = round,
                                      .worker = payloads_.worker,
                                      .layer = static_cast<LayerKind>(tensor.plan->info.layer())}};
  for (size_t i = 0; i < tensor.levels.size(); ++i) {
    Try(*tensor.levels[i].codec, input, elements, &seen->figures[i]);
  }
}

void LevelProbe::Try(const Codec& codec, const EncodeInput& input, size_t elements,
                     Figures* figures) {
  const size_t sampled = input.gradient.size();
  payload_.resize(codec.MaxPayloadBytes(sampled));
  decoded_.resize(sampled);
  const SteadyTime start = clock_->Now();
  workspace_.Reset();
  const absl::StatusOr<EncodeStats> stats = codec.Encode(input, payload_, workspace_);
  const SteadyTime encoded = clock_->Now();
  if (!stats.ok() || !std::isfinite(stats->error_norm2)) return;
  const std::span<const std::byte> made(payload_.data(), stats->payload_bytes);
  Decode(codec.format(), made, sampled, 0, decoded_);
  const double scale = ScaleOf(elements);
  figures->error_norm2 += scale * stats->error_norm2;
  // Scaled by the codec's own formula: a header does not grow with the tensor.
  figures->payload_bytes += static_cast<double>(stats->payload_bytes) *
                            static_cast<double>(codec.MaxPayloadBytes(elements)) /
                            static_cast<double>(codec.MaxPayloadBytes(sampled));
  figures->encode += scale * (encoded - start);
  figures->decode += scale * (clock_->Now() - encoded);
  ++figures->rounds;
}

void LevelProbe::Save(wire::SavedPolicy* saved) const {
  for (const auto& [key, tensor] : tensors_) {
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      const std::vector<float>& sum = tensor.partitions[i].sum;
      if (sum.empty()) continue;
      wire::SavedSample* const sample = saved->add_samples();
      sample->set_key(key);
      sample->set_partition(static_cast<uint32_t>(i));
      sample->mutable_sum()->Add(sum.begin(), sum.end());
    }
  }
}

absl::Status LevelProbe::Load(const wire::SavedPolicy& saved,
                              const std::vector<const TensorPlan*>& tensors,
                              CompressionPlan* plan) {
  std::map<KeyId, const TensorPlan*> known;
  for (const TensorPlan* tensor : tensors) known[tensor->key.id()] = tensor;
  for (const wire::SavedSample& sample : saved.samples()) {
    const auto found = known.find(sample.key());
    if (found == known.end() || sample.partition() >= found->second->partitions.size()) continue;
    const size_t elements = found->second->partitions[sample.partition()].elements;
    if (static_cast<size_t>(sample.sum_size()) != SampleSize(elements)) continue;
    SLIMPS_ASSIGN_OR_RETURN(Tensor* const tensor, Find(*found->second, plan));
    tensor->partitions[sample.partition()].sum.assign(sample.sum().begin(), sample.sum().end());
  }
  return absl::OkStatus();
}

void LevelProbe::AddTo(const Tensor& tensor, TensorReport* report) {
  for (const Partition& partition : tensor.partitions) {
    report->input_norm2 += partition.input_norm2 / static_cast<double>(partition.rounds);
  }
  for (size_t i = 0; i < tensor.levels.size(); ++i) {
    LevelReport level{.codec = tensor.levels[i].name};
    double bytes = 0;
    bool is_known = true;
    for (const Partition& partition : tensor.partitions) {
      const Figures& figures = partition.figures[i];
      is_known = is_known && figures.rounds > 0;
      if (!is_known) break;
      const auto rounds = static_cast<double>(figures.rounds);
      level.error_norm2 += figures.error_norm2 / rounds;
      bytes += figures.payload_bytes / rounds;
      level.encode_ns += absl::ToDoubleNanoseconds(figures.encode) / rounds;
      level.decode_ns += absl::ToDoubleNanoseconds(figures.decode) / rounds;
    }
    level.payload_bytes = static_cast<uint64_t>(std::ceil(bytes));
    if (is_known) report->levels.push_back(std::move(level));
  }
}

absl::StatusOr<Report> LevelProbe::Take(CompressionPlan* plan) {
  Report report;
  for (auto& [key, tensor] : tensors_) {
    if (plan->report_plan().basis == Basis::kAccumulated) {
      for (size_t i = 0; i < tensor.partitions.size(); ++i) {
        Partition& seen = tensor.partitions[i];
        if (!seen.sum.empty()) Measure(tensor, i, round_, seen.sum, &seen);
      }
    }
    const bool is_whole =
        std::ranges::all_of(tensor.partitions, [](const Partition& one) { return one.rounds > 0; });
    if (is_whole) {
      TensorReport& out = report.tensors.emplace_back();
      out.tensor = TensorInfoOf(*tensor.plan);
      if (tensor.rounds > 0) {
        out.ready_ns = absl::ToDoubleNanoseconds(tensor.ready) / static_cast<double>(tensor.rounds);
      }
      AddTo(tensor, &out);
      // Such a tensor's sums exceed fp32, and no report can carry them.
      if (!std::isfinite(out.input_norm2)) report.tensors.pop_back();
    }
    for (Partition& seen : tensor.partitions) seen = {};
    tensor.ready = absl::ZeroDuration();
    tensor.rounds = 0;
  }
  return report;
}

}  // namespace slimps
