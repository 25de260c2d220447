// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/randomk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "compress/format/sparse.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// It stays finite times any n / k, which is under 2^32.
constexpr float kMaxScaled = 0x1p95f;

enum class Scaled { kOff, kOn };

struct RandomKOptions {
  SentCount k;
  uint64_t seed = 0;
  Scaled scaled = Scaled::kOff;
};

// Returns the sum of squares of what is not sent. Rounding may leave a difference below 0. If
// squares overflow, returns infinity: infinity less infinity would be NaN.
float Unsent2(float input2, float sent2) {
  return std::isinf(sent2) ? sent2 : std::max(input2 - sent2, 0.0f);
}

// Owned by one encoding.
class RandomKRun final {
 public:
  RandomKRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
             EncodeWorkspace& workspace, const SparseLayout& layout, float factor)
      : kernels_(kernels),
        input_(input),
        payload_(payload),
        sums_(workspace.Take<BlockSums>(Codec::Blocks(input.gradient.size()))),
        layout_(layout),
        indices_(kernels, layout_),
        factor_(factor) {
    BuildSparseHeader(layout_, payload_);
  }

  EncodeStats Run() {
    for (size_t block = 0; block < sums_.size(); ++block) sums_[block] = EncodeBlock(block);
    EncodeStats stats = SumOf(sums_);
    stats.payload_bytes = layout_.PayloadBytes(0);
    return stats;
  }

 private:
  BlockSums EncodeBlock(size_t block) const {
    const SparseKernels& kernels = kernels_.sparse;
    const BlockInput in(input_, block);
    uint32_t index[kBlockRoom];
    float x[kBlockElements], decoded[kBlockElements];
    const size_t first = indices_.Before(block), count = indices_.Before(block + 1) - first;
    indices_.Draw(block, 1, index);
    const float input2 =
        kernels.store_input(in.gradient, in.residual, input_.grad_scale, in.elements);
    const bool feedback = in.residual != nullptr;
    kernels.gather(index, feedback ? in.residual : in.gradient, count, x);
    for (size_t i = 0; i < count && !feedback; ++i) x[i] *= input_.grad_scale;
    Send(first, {x, count}, decoded);
    const SentSums sums = kernels.put_error(index, x, decoded, count, in.residual);
    return {.input2 = input2,
            .decoded2 = sums.decoded2,
            .error2 = feedback ? kernels.store_input(in.residual, nullptr, 1.0f, in.elements)
                               : Unsent2(input2, sums.sent2) + sums.error2,
            .sent = static_cast<uint32_t>(count)};
  }

  // Writes the values of the entries from `first` on, and to `decoded` what they decode to.
  void Send(size_t first, std::span<const float> x, float* decoded) const {
    if (x.empty()) return;
    if (layout_.values == SparseValues::kF16) {
      std::byte* const out = payload_.data() + layout_.ValuesOffset() + 2 * first;
      kernels_.raw.encode_f16(x.data(), nullptr, factor_, x.size(), out);
      kernels_.raw.decode_f16(out, x.size(), decoded);
      return;
    }
    for (size_t i = 0; i < x.size(); ++i) decoded[i] = x[i] * factor_;
    std::memcpy(payload_.data() + layout_.ValuesOffset() + 4 * first, decoded, x.size_bytes());
  }

  const Kernels& kernels_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  const SparseLayout layout_;
  const SeededIndices indices_;
  const float factor_;
};

// Thread-safe: constant after construction.
class RandomKCodec final : public SparseCodec {
 public:
  RandomKCodec(const CodecSpec& spec, const Kernels& kernels, SparseValues values,
               ErrorFeedback feedback, const RandomKOptions& options)
      : SparseCodec(spec, kernels, values, feedback,
                    options.scaled == Scaled::kOn ? kMaxScaled : std::numeric_limits<float>::max()),
        options_(options) {}

  std::string Warning() const override {
    if (options_.scaled == Scaled::kOff || !wants_residual()) return "";
    return "randomk:scaled=on with error feedback: what is sent exceeds x, so the residual grows "
           "without bound";
  }
  size_t MaxPayloadBytes(size_t elements) const override {
    return Layout(elements, {}).PayloadBytes(0);
  }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    const SparseLayout layout = Layout(input.gradient.size(), input.context);
    const bool scaled = options_.scaled == Scaled::kOn && layout.count > 0;
    const float factor = scaled ? static_cast<float>(static_cast<double>(layout.elements) /
                                                     static_cast<double>(layout.count))
                                : 1.0f;
    return RandomKRun(kernels(), input, payload, workspace, layout, factor).Run();
  }

 private:
  SparseLayout Layout(size_t elements, const EncodeContext& context) const {
    return {.indices = SparseIndices::kSeeded,
            .values = values(),
            .elements = elements,
            .count = options_.k.Of(elements),
            .stream = PhiloxStream::Of(options_.seed, context.key, context.round, kAnyWorker,
                                       context.partition)};
  }

  const RandomKOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeRandomKCodec(const CodecSpec& spec,
                                                        const Kernels& kernels) {
  static constexpr std::string_view kOffOn[] = {"off", "on"};
  RandomKOptions options;
  SLIMPS_ASSIGN_OR_RETURN(options.k, SentCountOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(options.seed,
                          UintOption(spec, "seed", 0, std::numeric_limits<uint64_t>::max(), 0));
  SLIMPS_ASSIGN_OR_RETURN(const size_t scaled, ChoiceOption(spec, "scaled", kOffOn, 0));
  SLIMPS_ASSIGN_OR_RETURN(const SparseValues values, ValueOption(spec));
  options.scaled = scaled == 1 ? Scaled::kOn : Scaled::kOff;
  if (options.scaled == Scaled::kOn && values == SparseValues::kF16) {
    return absl::InvalidArgumentError(
        "codec randomk: scaled=on sends n / k times x, which fp16 may not carry: expected "
        "value=fp32, got value=fp16");
  }
  SLIMPS_ASSIGN_OR_RETURN(
      const ErrorFeedback feedback,
      ErrorFeedbackOption(
          spec, options.scaled == Scaled::kOn ? ErrorFeedback::kOff : ErrorFeedback::kOn));
  return std::make_unique<RandomKCodec>(spec, kernels, values, feedback, options);
}

}  // namespace slimps
