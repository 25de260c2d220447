// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/mstopk.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/codec/sparse/select/selection_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr uint64_t kDefaultPasses = 30, kMaxPasses = 64;

// Counts the keys that are at least a threshold, for thresholds that close in from both sides. It
// drops keys that can no longer make a difference. Thread-compatible.
class ClosingCounter final {
 public:
  ClosingCounter(const SelectKernels& kernels, std::span<float> keys)
      : kernels_(kernels), keys_(keys) {}

  // Returns how many keys are at least `threshold`.
  size_t AtLeast(float threshold) const { return over_ + Count(threshold); }

  // The caller asks for no threshold under this any more. Drops the keys below it if they are at
  // least half of all: else a pass to drop them costs more than it saves.
  void RaiseTo(float threshold) {
    if (2 * Count(threshold) > keys_.size()) return;
    Keep([threshold](float key) { return key >= threshold; });
  }

  // The caller asks for no threshold over this any more. Drops the keys from it on if they are at
  // least half of all, but goes on counting them.
  void LowerTo(float threshold) {
    const size_t over = Count(threshold);
    if (2 * over < keys_.size()) return;
    over_ += over;
    Keep([threshold](float key) { return key < threshold; });
  }

 private:
  size_t Count(float threshold) const {
    const Choice choice = {.sure = threshold, .filler = threshold};
    return kernels_.count(keys_.data(), 1.0f, SelectBy::kMagnitude, choice, keys_.size()).sure;
  }
  template <typename Wanted>
  void Keep(const Wanted& wanted) {
    size_t kept = 0;
    for (const float key : keys_) {  // `kept` never passes the key that is read
      keys_[kept] = key;
      kept += wanted(key) ? 1 : 0;
    }
    keys_ = keys_.first(kept);
  }

  const SelectKernels& kernels_;
  std::span<float> keys_;
  size_t over_ = 0;  // dropped keys that are at least every threshold to come
};

// Owned by one encoding.
class MsTopKRun final : public SelectionRun {
 public:
  MsTopKRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
            EncodeWorkspace& workspace, size_t k, uint64_t passes, SparseValues values)
      // The k + 1 largest are enough to tell whether more than k are over a threshold.
      : SelectionRun(kernels, input, payload, workspace,
                     {.rank = std::min(k + 1, input.gradient.size())}, values),
        k_(k),
        steps_(passes) {}

 protected:
  Selection Choose(const Listed& listed) override {
    const size_t n = listed.elements;
    if (k_ >= n) return {.sure = listed.floor, .filler = 0, .total = k_};
    const float mean = static_cast<float>(listed.magnitude_sum / static_cast<double>(n));
    const float span = listed.magnitude_max - mean;
    ClosingCounter counter(kernels().select, listed.keys);
    // The bisected thresholds close in, so the last one on either side is the best one.
    float low = 0, high = 1, many = 0, few = std::numeric_limits<float>::infinity();
    for (uint64_t step = 0; step < steps_; ++step) {
      const float ratio = low + (high - low) / 2;
      const float threshold = mean + ratio * span;
      // More than k keys reach a threshold under the floor; how many does not matter.
      const bool countable = threshold >= listed.floor;
      if (countable && counter.AtLeast(threshold) <= k_) {
        high = ratio;
        few = threshold;
        counter.LowerTo(threshold);
      } else {
        low = ratio;
        many = threshold;
        if (countable) counter.RaiseTo(threshold);
      }
    }
    return {.sure = few, .filler = many, .total = k_};
  }

 private:
  const size_t k_;
  const uint64_t steps_;
};

// Thread-safe: constant after construction.
class MsTopKCodec final : public CountedSparseCodec {
 public:
  MsTopKCodec(const CodecSpec& spec, const Kernels& kernels, SparseValues values,
              ErrorFeedback feedback, SentCount k, uint64_t passes)
      : CountedSparseCodec(spec, kernels, values, feedback, k, kMaxSparseSummand), steps_(passes) {}

  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    return MsTopKRun(kernels(), input, payload, workspace, k(input.gradient.size()), steps_,
                     values())
        .Run();
  }

 private:
  const uint64_t steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeMsTopKCodec(const CodecSpec& spec,
                                                       const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const SentCount k, SentCountOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t passes,
                          UintOption(spec, "passes", 0, kMaxPasses, kDefaultPasses));
  SLIMPS_ASSIGN_OR_RETURN(const SparseValues values, ValueOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<MsTopKCodec>(spec, kernels, values, feedback, k, passes);
}

}  // namespace slimps
