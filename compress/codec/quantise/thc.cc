// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/thc.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/options.h"
#include "compress/codec/phases.h"
#include "compress/codec/quantise/rotated_block.h"
#include "compress/codec/quantise/stochastic.h"
#include "compress/format/lanes.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// tests/reference/rotated_test.py derives these from p = 1/32.
constexpr double kSupport = 2.153874694061454;  // t
constexpr uint32_t kGranularity = kCodeTable[15];
constexpr auto kStep = static_cast<float>(kSupport / kGranularity);

// The largest norm of a block: sqrt(4096) times the largest |x|.
constexpr float kMaxNorm = 64 * kMaxRotated;

// Whose norms give a round's scales: the round's own, or those of the round before.
enum class ScaleFrom { kCurrent, kPrevious };
constexpr std::array<std::string_view, 2> kScaleNames = {"current", "previous"};

// True if the sum of squares is neither too small to be precise nor too large for fp32.
bool IsPrecise(float input2) { return input2 >= 0x1p-100f && std::isfinite(input2); }

// Thread-safe: constant after construction.
class ThcCodec final : public Codec, public PhasedCodec {
 public:
  ThcCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback, ScaleFrom from,
           uint64_t seed)
      : Codec(spec, kernels, kMaxRotated), feedback_(feedback), from_(from), seed_(seed) {}

  PayloadFormat format() const override { return PayloadFormat::kRotated; }
  bool wants_residual() const override { return feedback_ == ErrorFeedback::kOn; }
  size_t MaxPayloadBytes(size_t elements) const override { return Layout(elements).PayloadBytes(); }
  const PhasedCodec* phases() const override { return this; }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override;

  std::vector<AuxiliaryShape> AuxiliaryKeys(std::span<const int64_t> shape) const override {
    size_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
    return {{.name = "norms", .combine = Combine::kMaximum, .columns = Blocks(elements)}};
  }
  // The norms of the newest round.
  bool wants_memory() const override { return from_ == ScaleFrom::kPrevious; }
  bool encodes_alone() const override { return true; }
  size_t PartitionElements(std::span<const int64_t> /*shape*/,
                           const PartitionWishes& wishes) const override {
    return std::max(wishes.usual_elements / kBlockElements, size_t{1}) * kBlockElements;
  }
  std::unique_ptr<PhasedRun> BeginExchange(const PhasedInput& input) const override;

  InputNorms Measure(const EncodeInput& input, size_t block) const {
    const BlockInput in(input, block);
    return kernels().quantize.measure(in.gradient, in.residual, input.grad_scale, in.elements);
  }

  static float NormOf(const InputNorms& norms) {
    return IsPrecise(norms.input2) ? std::sqrt(norms.input2) : norms.largest;
  }

  // Writes one block's scale and codes, and updates its residual. Without a norm that the workers
  // share, it takes the block's own. `own` (null: not wanted) is set to that one.
  BlockSums EncodeBlock(const EncodeInput& input, size_t block, std::optional<float> shared,
                        float* own, std::span<std::byte> payload) const {
    const LanesLayout layout = Layout(input.gradient.size());
    auto* const codes = reinterpret_cast<uint8_t*>(payload.data()) + layout.BlockOffset(block);
    const auto encode = [&](float input2, std::span<float> y) {
      float norm = shared.value_or(0);
      if (own != nullptr) *own = OwnNorm(input, block, input2);
      if (!shared.has_value()) norm = OwnNorm(input, block, input2);
      const float scale = norm < kSmallestNorm ? 0.0f : norm * kStep / static_cast<float>(y.size());
      std::memcpy(payload.data() + layout.ScaleOffset(block), &scale, sizeof scale);
      RandomLanes random;
      kernels().quantize.start_random(RandomStreamOf(seed_, input.context),
                                      static_cast<uint32_t>(block), &random);
      const CodeRounding rounding = {
          .inverse = scale == 0 ? 0.0f : 0x1p14f / scale, .scale = scale, .random = &random};
      const BlockSums sums = kernels().wire_lanes.round_codes(y.data(), rounding, y.size(), codes);
      const auto m = static_cast<double>(y.size());
      const auto decoded2 = static_cast<double>(sums.decoded2);
      return RotatedSums{.decoded2 = m * decoded2,
                         .difference = m * (static_cast<double>(sums.error2) - decoded2)};
    };
    const auto decode = [](std::span<float>) {};  // round_codes has done it
    return EncodeRotatedBlock(kernels(), Rotation(input.context), input, block, encode, decode);
  }

  static LanesLayout Layout(size_t elements) {
    return {.bits = 4,
            .largest = kGranularity,
            .elements = elements,
            .table = std::to_array(kCodeTable)};
  }
  PhiloxStream Rotation(const EncodeContext& context) const {
    return PhiloxStream::Of(seed_, context.key, context.round, kAnyWorker, context.partition);
  }

 private:
  // The same as NormOf(Measure), once rotating has left x in the residual, if there is one.
  float OwnNorm(const EncodeInput& input, size_t block, float input2) const {
    if (IsPrecise(input2)) return std::sqrt(input2);
    const EncodeInput x = {.gradient = input.residual, .residual = {}};
    return Measure(input.residual.empty() ? input : x, block).largest;
  }

  const ErrorFeedback feedback_;
  const ScaleFrom from_;
  const uint64_t seed_;
};

// Writes one payload.
class ThcPayload final {
 public:
  ThcPayload(const ThcCodec& codec, const EncodeInput& input, std::span<std::byte> payload,
             EncodeWorkspace& workspace)
      : codec_(codec),
        input_(input),
        payload_(payload),
        sums_(workspace.Take<BlockSums>(Codec::Blocks(input.gradient.size()))),
        layout_(ThcCodec::Layout(input.gradient.size())) {
    layout_.stream = codec.Rotation(input.context);
  }

  size_t blocks() const { return sums_.size(); }

  const BlockSums& EncodeBlock(size_t block, std::optional<float> shared,
                               float* own = nullptr) const {
    return sums_[block] = codec_.EncodeBlock(input_, block, shared, own, payload_);
  }

  // REQUIRES: all blocks are encoded.
  EncodeStats Finish() const {
    BuildLanesHeader(layout_, payload_);
    EncodeStats stats = SumOf(sums_);
    stats.payload_bytes = layout_.PayloadBytes();
    return stats;
  }

 private:
  const ThcCodec& codec_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  LanesLayout layout_;
};

// One worker's exchange of one tensor: the workers agree on the norms of all blocks, then each
// sends its payloads. With the norms of the round before it sends them first, and takes its own
// norms on the way. Each part but the last has whole blocks.
class ThcExchange final : public PhasedRun {
 public:
  ThcExchange(const ThcCodec& codec, const PhasedInput& input)
      : codec_(codec), input_(input), stats_(input.parts.size()) {
    size_t blocks = 0;
    for (const PhasedPart& part : input.parts) {
      first_block_.push_back(blocks);
      blocks += Codec::Blocks(part.elements);
    }
    const auto is_known = [](float norm) { return norm > 0; };
    if (codec.wants_memory() && std::ranges::any_of(input.memory, is_known)) {
      norms_.assign(input.memory.begin(), input.memory.end());
      own_.resize(blocks);
    }
  }

  absl::Status Contribute(size_t /*phase*/, std::span<float> out) override {
    if (!own_.empty()) {
      std::ranges::copy(own_, out.begin());
      return absl::OkStatus();
    }
    size_t at = 0;
    for (size_t part = 0; part < input_.parts.size(); ++part) {
      const EncodeInput in = InputOf(part);
      for (size_t block = 0; block < Codec::Blocks(in.gradient.size()); ++block) {
        const InputNorms norms = codec_.Measure(in, block);
        // The squares of all that can be encoded may overflow, but no finite sum hides NaN.
        if (!std::isfinite(norms.input2)) SLIMPS_RETURN_IF_ERROR(CheckEncodable(part, in, block));
        out[at++] = ThcCodec::NormOf(norms);
      }
    }
    return absl::OkStatus();
  }

  bool has_read_gradients() const override { return false; }
  bool may_write() const override { return !norms_.empty(); }

  absl::Status Take(size_t /*phase*/, std::span<const float> combined,
                    std::span<const uint32_t> contributors) override {
    for (size_t block = 0; block < combined.size(); ++block) {
      if (combined[block] >= 0 && combined[block] <= kMaxNorm) continue;
      return absl::InvalidArgumentError(absl::StrCat("norm of all workers: block ", block, " is ",
                                                     combined[block], ", expected 0 to ",
                                                     kMaxNorm));
    }
    // A round to which nobody contributed tells nothing.
    if (codec_.wants_memory() && !contributors.empty()) {
      std::ranges::copy(combined, input_.memory.begin());
    }
    if (norms_.empty()) norms_.assign(combined.begin(), combined.end());
    return absl::OkStatus();
  }

  bool Sends(size_t /*part*/) const override { return true; }
  size_t MaxPayloadBytes(size_t part) const override {
    return codec_.MaxPayloadBytes(input_.parts[part].elements);
  }

  absl::StatusOr<size_t> Write(size_t part, std::span<std::byte> payload) override {
    workspace_.Reset();
    const EncodeInput in = InputOf(part);
    const ThcPayload out(codec_, in, payload, workspace_);
    for (size_t block = 0; block < out.blocks(); ++block) {
      const size_t at = first_block_[part] + block;
      if (own_.empty()) {
        out.EncodeBlock(block, norms_[at]);
      } else if (!std::isfinite(out.EncodeBlock(block, norms_[at], &own_[at]).input2)) {
        // What cannot be encoded is still in the residual, which was x.
        const EncodeInput x = {.gradient = in.residual, .residual = {}};
        SLIMPS_RETURN_IF_ERROR(CheckEncodable(part, x, block));
      }
    }
    stats_[part] = out.Finish();
    return stats_[part].payload_bytes;
  }

  EncodeStats StatsOf(size_t part) const override { return stats_[part]; }

 private:
  EncodeInput InputOf(size_t part) const {
    EncodeInput in = {.gradient = input_.parts[part].gradient,
                      .residual = input_.parts[part].residual,
                      .grad_scale = input_.grad_scale,
                      .context = input_.context};
    in.context.partition = static_cast<uint32_t>(part);
    return in;
  }

  absl::Status CheckEncodable(size_t part, const EncodeInput& in, size_t block) const {
    const size_t bad = codec_.FindUnencodable(in, block, block + 1);
    if (bad == Codec::kEncodable) return absl::OkStatus();
    return Prefixed(codec_.DescribeUnencodable(in, bad), absl::StrCat("partition ", part));
  }

  const ThcCodec& codec_;
  const PhasedInput input_;
  std::vector<size_t> first_block_;  // by part
  std::vector<float> norms_;         // of all blocks, for this round; empty: not known yet
  std::vector<float> own_;           // likewise this worker's; empty: not taken while encoding
  std::vector<EncodeStats> stats_;   // by part, once written
  EncodeWorkspace workspace_;
};

// The exchange of one worker alone.
EncodeStats ThcCodec::EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                                  EncodeWorkspace& workspace) const {
  const ThcPayload out(*this, input, payload, workspace);
  for (size_t block = 0; block < out.blocks(); ++block) out.EncodeBlock(block, std::nullopt);
  return out.Finish();
}

std::unique_ptr<PhasedRun> ThcCodec::BeginExchange(const PhasedInput& input) const {
  return std::make_unique<ThcExchange>(*this, input);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeThcCodec(const CodecSpec& spec, const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t seed, SeedOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  SLIMPS_ASSIGN_OR_RETURN(const size_t scale, ChoiceOption(spec, "scale", kScaleNames, 0));
  const auto from = static_cast<ScaleFrom>(scale);
  if (from == ScaleFrom::kPrevious && feedback == ErrorFeedback::kOff) {
    return absl::InvalidArgumentError(
        "codec thc: scale=previous with error_feedback=off: expected error_feedback=on, which "
        "keeps "
        "what lies outside the range of the round before");
  }
  return std::make_unique<ThcCodec>(spec, kernels, feedback, from, seed);
}

}  // namespace slimps
