// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/quantise/thc.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
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
constexpr uint32_t kGranularity = 30;
constexpr LevelTable kTable = {0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30};

constexpr auto kStep = static_cast<float>(kSupport / kGranularity);

// Returns where u lies among the levels: z for T[z], a straight line between two.
constexpr double PlaceOf(double u, const LevelTable& table) {
  size_t z = 0;
  while (z + 2 < table.size() && table[z + 1] <= u) ++z;
  return static_cast<double>(z) + (u - table[z]) / (table[z + 1] - table[z]);
}

// `base` and `slope` of CodeRounding.
struct Straightened {
  alignas(64) std::array<float, kCodeLevels> base, slope;
  bool bends = false;  // within an entry: the table does not suit the kernel
};
constexpr Straightened Straighten(const LevelTable& table) {
  Straightened straight = {};
  for (size_t k = 0; k < kCodeLevels; ++k) {
    const double least = k == 0 ? 0 : 2.0 * static_cast<double>(k) - 1;
    const double most = least + (k == 0 ? 1 : 2) < table.back() ? least + (k == 0 ? 1 : 2)
                                                                : static_cast<double>(table.back());
    const double low = PlaceOf(least, table), high = PlaceOf(most, table);
    const double slope = (high - low) / (most - least);
    straight.slope[k] = static_cast<float>(2 * 65536 * slope);
    straight.base[k] = static_cast<float>(65536 * (low - slope * least));
    const double off = PlaceOf((least + most) / 2, table) - (low + high) / 2;
    straight.bends |= off > 1e-9 || off < -1e-9;
  }
  return straight;
}

constexpr Straightened kStraight = Straighten(kTable);
static_assert(!kStraight.bends);

// True if the sum of squares is neither too small to be precise nor too large for fp32.
bool IsPrecise(float input2) { return input2 >= 0x1p-100f && std::isfinite(input2); }

// Thread-safe: constant after construction.
class ThcCodec final : public Codec, public PhasedCodec {
 public:
  ThcCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback, uint64_t seed)
      : Codec(spec, kernels, kMaxRotated), feedback_(feedback), seed_(seed) {}

  PayloadFormat format() const override { return PayloadFormat::kRotated; }
  bool wants_residual() const override { return feedback_ == ErrorFeedback::kOn; }
  size_t MaxPayloadBytes(size_t elements) const override { return Layout(elements).PayloadBytes(); }
  const PhasedCodec* phases() const override { return this; }
  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override;

  std::vector<AuxiliaryShape> AuxiliaryKeys(std::span<const int64_t> shape) const override {
    size_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
    return {{.name = "norms", .combine = Combine::kMaximum, .columns = Blocks(elements)}};
  }
  bool wants_memory() const override { return false; }
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
  // share, it takes the block's own.
  BlockSums EncodeBlock(const EncodeInput& input, size_t block, std::optional<float> shared,
                        std::span<std::byte> payload) const {
    const LanesLayout layout = Layout(input.gradient.size());
    auto* const codes = reinterpret_cast<uint8_t*>(payload.data()) + layout.BlockOffset(block);
    const auto encode = [&](float input2, std::span<float> y) {
      const float norm = shared.has_value() ? *shared : OwnNorm(input, block, input2);
      const float scale = norm < kSmallestNorm ? 0.0f : norm * kStep / static_cast<float>(y.size());
      std::memcpy(payload.data() + layout.ScaleOffset(block), &scale, sizeof scale);
      RandomLanes random;
      kernels().quantize.start_random(RandomStreamOf(seed_, input.context),
                                      static_cast<uint32_t>(block), &random);
      const CodeRounding rounding = {.inverse = scale == 0 ? 0.0f : 0.25f / scale,
                                     .scale = scale,
                                     .table = kTable.data(),
                                     .base = kStraight.base.data(),
                                     .slope = kStraight.slope.data(),
                                     .random = &random};
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
    return {.bits = 4, .largest = kGranularity, .elements = elements, .table = kTable};
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
  const uint64_t seed_;
};

// Writes one payload. Threads may call EncodeBlock for different blocks at the same time.
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

  void EncodeBlock(size_t block, std::optional<float> shared) const {
    sums_[block] = codec_.EncodeBlock(input_, block, shared, payload_);
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

// Codec::Encode: the exchange of one worker alone.
class AloneRun final : public EncodeRun {
 public:
  AloneRun(const ThcCodec& codec, const EncodeInput& input, std::span<std::byte> payload,
           EncodeWorkspace& workspace)
      : out_(codec, input, payload, workspace) {}

  size_t passes() const override { return 1; }
  void Blocks(size_t /*pass*/, size_t first, size_t last) override {
    for (size_t block = first; block < last; ++block) out_.EncodeBlock(block, std::nullopt);
  }
  EncodeStats Finish() override { return out_.Finish(); }

 private:
  const ThcPayload out_;
};

// One worker's exchange of one tensor: the workers agree on the norms of all blocks, then each
// sends its payloads. Each part but the last has whole blocks.
class ThcExchange final : public PhasedRun {
 public:
  ThcExchange(const ThcCodec& codec, const PhasedInput& input)
      : codec_(codec), input_(input), stats_(input.parts.size()) {
    size_t blocks = 0;
    for (const PhasedPart& part : input.parts) {
      first_block_.push_back(blocks);
      blocks += Codec::Blocks(part.elements);
    }
  }

  absl::Status Contribute(size_t /*phase*/, std::span<float> out) override {
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

  absl::Status Take(size_t /*phase*/, std::span<const float> combined,
                    std::span<const uint32_t> /*contributors*/) override {
    for (size_t block = 0; block < combined.size(); ++block) {
      if (combined[block] >= 0 && std::isfinite(combined[block])) continue;
      return absl::InvalidArgumentError(absl::StrCat("norm of all workers: block ", block, " is ",
                                                     combined[block],
                                                     ", expected a finite number from 0 on"));
    }
    norms_.assign(combined.begin(), combined.end());
    return absl::OkStatus();
  }

  bool Sends(size_t /*part*/) const override { return true; }
  size_t MaxPayloadBytes(size_t part) const override {
    return codec_.MaxPayloadBytes(input_.parts[part].elements);
  }

  absl::StatusOr<size_t> Write(size_t part, std::span<std::byte> payload) override {
    workspace_.Reset();
    const ThcPayload out(codec_, InputOf(part), payload, workspace_);
    for (size_t block = 0; block < out.blocks(); ++block) {
      out.EncodeBlock(block, norms_[first_block_[part] + block]);
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
  std::vector<float> norms_;         // of all blocks, once taken
  std::vector<EncodeStats> stats_;   // by part, once written
  EncodeWorkspace workspace_;
};

std::unique_ptr<EncodeRun> ThcCodec::Begin(const EncodeInput& input, std::span<std::byte> payload,
                                           EncodeWorkspace& workspace) const {
  return std::make_unique<AloneRun>(*this, input, payload, workspace);
}

std::unique_ptr<PhasedRun> ThcCodec::BeginExchange(const PhasedInput& input) const {
  return std::make_unique<ThcExchange>(*this, input);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeThcCodec(const CodecSpec& spec, const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t seed, SeedOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<ThcCodec>(spec, kernels, feedback, seed);
}

}  // namespace slimps
