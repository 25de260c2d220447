// SPDX-License-Identifier: Apache-2.0
#include "worker/push/level_probe.h"

#include <algorithm>
#include <cmath>

#include "compress/codec/phases.h"
#include "compress/format/format.h"
#include "compress/format/row_grid.h"
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

// Calls `take(first, count)` for each run of elements in the sample, in order. Its blocks move on
// with `turn`, so that all but the last get theirs.
template <typename Take>
void ForSample(size_t elements, uint64_t turn, Take take) {
  const size_t blocks = Codec::Blocks(elements);
  if (blocks <= LevelProbe::kSampleBlocks) return take(size_t{0}, elements);
  for (size_t i = 0; i < LevelProbe::kSampleBlocks; ++i) {
    const size_t first = i * (blocks - 1) / LevelProbe::kSampleBlocks;
    const size_t next = (i + 1) * (blocks - 1) / LevelProbe::kSampleBlocks;
    take((first + turn % (next - first)) * kBlockElements, kBlockElements);
  }
}

double Norm2(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return sum;
}

double ScaleOf(size_t elements, size_t seen) {
  return static_cast<double>(elements) / static_cast<double>(seen);
}

// True if the codec's errors are those of whole tensors: factors of a sample tell nothing.
bool NeedsWhole(const Codec& codec) {
  return codec.phases() != nullptr && !codec.phases()->encodes_alone();
}

// Returns how many vectors a factor has.
size_t RowsOf(const Codec& codec, const TensorPlan& tensor) {
  return codec.phases()->AuxiliaryKeys(tensor.shape())[0].rows;
}

// Returns the bytes of one push: all phases, and this worker's share of the payloads, which one of
// the workers sends for each partition.
double PhasedBytes(const Codec& codec, const TensorPlan& tensor, uint32_t workers) {
  double bytes = 0;
  std::vector<float> memory;
  for (const AuxiliaryShape& key : codec.phases()->AuxiliaryKeys(tensor.shape())) {
    bytes += static_cast<double>(key.elements() * sizeof(float));
    memory.resize(key.elements());
  }
  std::vector<PhasedPart> parts;
  for (const PartitionPlan& part : tensor.partitions) parts.push_back({.elements = part.elements});
  const auto run = codec.phases()->BeginExchange(
      {.shape = tensor.shape(), .parts = parts, .memory = memory, .context = {}});
  for (size_t i = 0; i < parts.size(); ++i) {
    bytes += static_cast<double>(run->MaxPayloadBytes(i)) / workers;
  }
  return bytes;
}

}  // namespace

void LevelProbe::BeginRound(uint64_t round, SteadyTime submitted, CompressionPlan* plan) {
  if (!plan->adapts() || round <= round_) return;
  std::optional<CompressionPlan::EndedRound> ended;
  if (round_ > 0) {
    ended.emplace();
    // Threads of a user may overtake each other.
    ended->iteration = std::max(absl::ZeroDuration(), submitted - began_);
    ended->gains = Gains();
  }
  input_norm2_ = 0;
  decoded_norm2_.clear();
  round_ = round;
  began_ = submitted;
  plan->BeginRound(round, ended);
}

absl::StatusOr<LevelProbe::Tensor*> LevelProbe::Find(const TensorPlan& tensor,
                                                     CompressionPlan* plan) {
  const auto [found, is_new] = tensors_.try_emplace(tensor.key.id());
  if (!is_new) return &found->second;
  found->second.plan = &tensor;
  found->second.partitions.resize(tensor.partitions.size());
  SLIMPS_ASSIGN_OR_RETURN(found->second.levels, plan->LevelsOf(tensor));
  found->second.whole = std::ranges::any_of(
      found->second.levels, NeedsWhole,
      [](const PolicySide::Level& level) -> const Codec& { return *level.codec; });
  return &found->second;
}

absl::Status LevelProbe::See(const GradientPart& part, std::span<const float> residual,
                             CompressionPlan* plan) {
  if (plan->report_plan().every_rounds == 0) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(Tensor* const tensor, Find(*part.tensor, plan));
  if (part.partition == 0) {
    tensor->ready += std::max(absl::ZeroDuration(), part.submitted - began_);
    ++tensor->rounds;
  }
  const std::span<const float> gradient = part.grad_buf->floats();
  const float scale = payloads_.grad_scale;
  if (std::isinf(part.gradient_bound * scale) && !std::isfinite(Norm2(gradient))) {
    return absl::OkStatus();  // one such gradient would spoil all sums of the window
  }
  if (!plan->report_plan().ladders) {
    Partition& seen = tensor->partitions[part.partition];
    std::vector<float>& sums = seen.sum;
    if (sums.empty()) seen.first_round = part.round;
    sums.resize(tensor->whole ? gradient.size() : SampleSize(gradient.size()));
    float* sum = sums.data();
    const auto add = [&](size_t first, size_t count) {
      for (const float x : gradient.subspan(first, count)) *sum++ += x * scale;
    };
    tensor->whole ? add(0, gradient.size()) : ForSample(gradient.size(), TurnOf(seen, *plan), add);
    return absl::OkStatus();
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<const Codec*> steps,
                          plan->StepsFor(*part.tensor, part.round));
  if (steps.empty()) return absl::OkStatus();
  sample_.clear();
  const auto take = [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      sample_.push_back(gradient[i] * scale + (residual.empty() ? 0 : residual[i]));
    }
  };
  ForSample(gradient.size(), part.round, take);
  TrySteps(steps,
           {.gradient = sample_,
            .residual = {},
            .context = {.key = part.tensor->key.id(),
                        .partition = static_cast<uint32_t>(part.partition),
                        .round = part.round,
                        .worker = payloads_.worker}},
           ScaleOf(gradient.size(), sample_.size()));
  return absl::OkStatus();
}

void LevelProbe::TrySteps(const std::vector<const Codec*>& steps, const EncodeInput& input,
                          double scale) {
  const double input_norm2 = scale * Norm2(input.gradient);
  decoded_norm2_.resize(std::max(decoded_norm2_.size(), steps.size()));
  input_norm2_ += input_norm2;
  // A ladder begins with its strongest codec. From its end on, each compresses what the one before
  // has compressed already, if it can.
  EncodeInput next = input;
  for (size_t i = steps.size(); i-- > 0;) {
    const Codec& codec = *steps[i];
    if (codec.format() == PayloadFormat::kRawF32) {
      decoded_norm2_[i] += input_norm2;
      continue;
    }
    payload_.resize(codec.MaxPayloadBytes(input.gradient.size()));
    const auto stats = codec.Encode(next, payload_, workspace_);
    if (!stats.ok()) continue;
    decoded_norm2_[i] += scale * stats->decoded_norm2;
    std::swap(payload_, finer_payload_);
    next.finer = {.codec = &codec,
                  .payload = std::span(finer_payload_).first(stats->payload_bytes),
                  .stats = *stats};
  }
}

uint64_t LevelProbe::TurnOf(const Partition& seen, const CompressionPlan& plan) {
  return seen.first_round / std::max<uint64_t>(1, plan.report_plan().every_rounds);
}

void LevelProbe::Measure(const CompressionPlan& plan, const Tensor& tensor, size_t partition,
                         Partition* seen) {
  const size_t elements = tensor.plan->partitions[partition].elements;
  std::span<const float> x = seen->sum;
  seen->figures.resize(tensor.levels.size());
  seen->input_norm2 = ScaleOf(elements, x.size()) * Norm2(x);
  std::vector<float> sample;
  if (tensor.whole) {
    ForSample(elements, TurnOf(*seen, plan), [&](size_t first, size_t count) {
      const std::span<const float> run = x.subspan(first, count);
      sample.insert(sample.end(), run.begin(), run.end());
    });
    x = sample;
  }
  const EncodeInput input{.gradient = x,
                          .residual = {},
                          .context = {.key = tensor.plan->key.id(),
                                      .partition = static_cast<uint32_t>(partition),
                                      .round = round_,
                                      .worker = payloads_.worker,
                                      .layer = static_cast<LayerKind>(tensor.plan->info.layer())}};
  for (size_t i = 0; i < tensor.levels.size(); ++i) {
    if (NeedsWhole(*tensor.levels[i].codec)) continue;
    Try(*tensor.levels[i].codec, input, elements, &seen->figures[i]);
  }
}

void LevelProbe::MeasureWhole(uint32_t workers, Tensor* tensor) {
  const TensorPlan& plan = *tensor->plan;
  std::vector<float> x;
  for (const Partition& partition : tensor->partitions) {
    x.insert(x.end(), partition.sum.begin(), partition.sum.end());
  }
  const double norm2 = Norm2(x);
  if (!std::isfinite(norm2)) return;
  std::vector<const Codec*> codecs;
  for (const PolicySide::Level& level : tensor->levels) {
    if (NeedsWhole(*level.codec)) codecs.push_back(level.codec);
  }
  const auto [least, most] =
      std::ranges::minmax(codecs, {}, [&](const Codec* codec) { return RowsOf(*codec, plan); });
  // Times rise with the rows, along a line: two codecs tell it.
  const EncodeInput input{
      .gradient = x,
      .residual = {},
      .context = {.key = plan.key.id(),
                  .round = round_,
                  .worker = payloads_.worker,
                  .layer = static_cast<LayerKind>(plan.info.layer()),
                  .grid = {.elements = x.size(), .row_elements = ElementsOfRow(plan.shape())}}};
  Figures low, high;
  Try(*least, input, x.size(), &low);
  Try(*most, input, x.size(), &high);
  if (!low.known || !high.known) return;
  const std::vector<double> kept = most->phases()->KeptNorm2(plan.shape(), plan.key.id(), x);
  const size_t fewest = RowsOf(*least, plan);
  const double span = std::max(1.0, static_cast<double>(RowsOf(*most, plan) - fewest));
  for (size_t i = 0; i < tensor->levels.size(); ++i) {
    const Codec& codec = *tensor->levels[i].codec;
    if (!NeedsWhole(codec)) continue;
    const size_t rows = RowsOf(codec, plan);
    const double at = static_cast<double>(rows - fewest) / span;
    Figures& figures = tensor->whole_figures[i];
    figures = {.error_norm2 = std::max(0.0, norm2 - kept[rows - 1]),
               .payload_bytes = PhasedBytes(codec, plan, workers),
               .encode = low.encode + at * (high.encode - low.encode),
               .decode = (low.decode + at * (high.decode - low.decode)) / workers,
               .known = std::isfinite(kept[rows - 1])};
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
  const double scale = ScaleOf(elements, sampled);
  figures->error_norm2 = scale * stats->error_norm2;
  // Scaled by the codec's own formula: a header does not grow with the tensor.
  figures->payload_bytes = static_cast<double>(stats->payload_bytes) *
                           static_cast<double>(codec.MaxPayloadBytes(elements)) /
                           static_cast<double>(codec.MaxPayloadBytes(sampled));
  figures->encode = scale * (encoded - start);
  figures->decode = scale * (clock_->Now() - encoded);
  figures->known = true;
}

std::vector<double> LevelProbe::Gains() const {
  std::vector<double> gains;
  for (const double norm2 : decoded_norm2_) {
    gains.push_back(input_norm2_ > 0 ? norm2 / input_norm2_ : 1);
  }
  return gains;
}

void LevelProbe::Save(wire::SavedPolicy* saved) const {
  const std::vector<double> gains = Gains();
  saved->mutable_gains()->Add(gains.begin(), gains.end());
  for (const auto& [key, tensor] : tensors_) {
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      const std::vector<float>& sum = tensor.partitions[i].sum;
      if (sum.empty()) continue;
      wire::SavedSample* const sample = saved->add_samples();
      sample->set_key(key);
      sample->set_partition(static_cast<uint32_t>(i));
      sample->set_first_round(tensor.partitions[i].first_round);
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
    SLIMPS_ASSIGN_OR_RETURN(Tensor* const tensor, Find(*found->second, plan));
    const size_t expected = tensor->whole ? elements : SampleSize(elements);
    if (static_cast<size_t>(sample.sum_size()) != expected) continue;
    Partition& seen = tensor->partitions[sample.partition()];
    seen.first_round = sample.first_round();
    seen.sum.assign(sample.sum().begin(), sample.sum().end());
  }
  return absl::OkStatus();
}

void LevelProbe::AddTo(const Tensor& tensor, TensorReport* report) {
  for (const Partition& partition : tensor.partitions) {
    report->input_norm2 += partition.input_norm2;
  }
  for (size_t i = 0; i < tensor.levels.size(); ++i) {
    LevelReport level{.codec = tensor.levels[i].name};
    double bytes = 0;
    bool is_known = true;
    const bool of_whole = NeedsWhole(*tensor.levels[i].codec);
    for (size_t part = 0; part < (of_whole ? 1 : tensor.partitions.size()); ++part) {
      const Figures& figures =
          of_whole ? tensor.whole_figures[i] : tensor.partitions[part].figures[i];
      is_known = is_known && figures.known;
      level.error_norm2 += figures.error_norm2;
      bytes += figures.payload_bytes;
      level.encode_ns += absl::ToDoubleNanoseconds(figures.encode);
      level.decode_ns += absl::ToDoubleNanoseconds(figures.decode);
    }
    level.payload_bytes = static_cast<uint64_t>(std::ceil(bytes));
    if (is_known) report->levels.push_back(std::move(level));
  }
}

absl::StatusOr<Report> LevelProbe::Take(CompressionPlan* plan) {
  Report report;
  for (auto& [key, tensor] : tensors_) {
    const bool was_seen = std::ranges::none_of(
        tensor.partitions, [](const Partition& one) { return one.sum.empty(); });
    if (was_seen) {
      for (size_t i = 0; i < tensor.partitions.size(); ++i) {
        Measure(*plan, tensor, i, &tensor.partitions[i]);
      }
      tensor.whole_figures.assign(tensor.levels.size(), Figures());
      if (tensor.whole) MeasureWhole(plan->options().workers, &tensor);
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
