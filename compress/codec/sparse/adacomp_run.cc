// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/adacomp_run.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::StatusOr<uint32_t> BinLengthOption(const CodecSpec& spec, const std::string& option,
                                         uint32_t fallback) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t length,
                          UintOption(spec, option, 1, kMaxBinLength, fallback));
  return static_cast<uint32_t>(length);
}

// Owned by one encoding. Several threads may call Blocks at the same time, see EncodeRun.
class BinRun final : public EncodeRun {
 public:
  BinRun(const Kernels& kernels, BinCodec::Select select, float extra, const BinsLayout& layout,
         const EncodeInput& input, std::span<std::byte> payload, EncodeWorkspace& workspace)
      : kernels_(kernels),
        select_(select),
        extra_(extra),
        layout_(layout),
        input_(input),
        payload_(payload),
        groups_(workspace.Take<BinSums>(layout.blocks())),
        carried_(workspace.Take<uint32_t>(layout.blocks())),
        errors_(workspace.Take<float>(layout.blocks())) {}

  size_t passes() const override { return input_.residual.empty() ? 1 : 2; }

  void Blocks(size_t pass, size_t first, size_t last) override {
    if (pass == 0) {
      for (size_t block = first; block < last; ++block) SelectGroup(block);
      return;
    }
    if (first == last) return;
    const BinsReader reader(payload_);
    BinBlock next = reader.Block(first);
    for (size_t block = first; block < last; ++block) {
      const BinBlock present = next;
      float* const residual = input_.residual.data() + block * kBlockElements;
      if (block + 1 < last) {
        next = reader.Block(block + 1);
        PrefetchBins(kernels_, next, residual + kBlockElements);
      }
      errors_[block] = kernels_.bins.subtract(present, residual);
    }
  }

  void EndPass(size_t pass) override {
    if (pass != 0) return;
    // Groups in their order: the scale must not depend on threads.
    double maxima = 0;
    for (const BinSums& group : groups_) maxima += group.maxima;
    if (layout_.bins() > 0)
      scale_ = static_cast<float>(maxima / static_cast<double>(layout_.bins()));
    BuildBinsHeader(layout_, scale_, payload_);
    MoveTogether();
  }

  EncodeStats Finish() override {
    EncodeStats stats;
    double unsent2 = 0, magnitude = 0, error2 = 0;
    for (const BinSums& group : groups_) {
      stats.elements_sent += group.entries;
      stats.input_norm2 += static_cast<double>(group.input2);
      unsent2 += static_cast<double>(group.unsent2);
      magnitude += static_cast<double>(group.sent_magnitude);
    }
    const auto scale = static_cast<double>(scale_);
    stats.decoded_norm2 = static_cast<double>(stats.elements_sent) * scale * scale;
    if (input_.residual.empty()) {
      const double implied = stats.input_norm2 - 2 * scale * magnitude + stats.decoded_norm2;
      // Rounding may make `implied` too small, or NaN, which max passes over.
      stats.error_norm2 = std::max(unsent2, implied);
    } else {
      for (const float error : errors_) error2 += static_cast<double>(error);
      stats.error_norm2 = unsent2 + error2;
    }
    stats.payload_bytes = layout_.PayloadBytes(stats.elements_sent);
    return stats;
  }

 private:
  // Returns where a group's entries lie before they move together: behind all that the groups
  // before it could send.
  std::byte* Place(size_t element) const { return payload_.data() + layout_.PayloadBytes(element); }
  uint8_t* Bitmap(size_t block) const {
    return reinterpret_cast<uint8_t*>(payload_.data()) + layout_.BitmapOffset(block);
  }

  void SelectGroup(size_t block) {
    const bool cut = layout_.CutsBin(block);
    std::fill_n(Bitmap(block), (layout_.Pieces(block) + 7) / 8, uint8_t{0});
    if (block + 1 < layout_.blocks()) {
      std::fill(Bitmap(block), Bitmap(block + 1), uint8_t{0});
    }
    // If the block cuts a bin, the group that begins the bin writes carried_.
    if (!cut) carried_[block] = 0;
    groups_[block] = {};
    const size_t begin = layout_.GroupBegin(block), end = layout_.GroupBegin(block + 1);
    if (begin == end) return;
    const bool feedback = !input_.residual.empty();
    groups_[block] = select_({.gradient = input_.gradient.data() + begin,
                              .residual = feedback ? input_.residual.data() + begin : nullptr,
                              .grad_scale = input_.grad_scale,
                              .extra = extra_,
                              .bin_length = layout_.bin_length,
                              .elements = end - begin,
                              .until_cut = (block + 1) * kBlockElements - begin},
                             {.entries = Place(begin),
                              .bitmap = Bitmap(block),
                              .first_bit = cut ? size_t{1} : size_t{0},
                              .carried = carried_.data() + block + 1});
  }

  // Moves entries only towards the front, group by group, so none is overwritten before it moves.
  void MoveTogether() {
    size_t placed = 0, ended = 0;
    for (size_t block = 0; block < layout_.blocks(); ++block) {
      const BinSums& group = groups_[block];
      std::memmove(Place(placed), Place(layout_.GroupBegin(block)),
                   group.entries * layout_.entry_bytes());
      placed += group.entries;
      ended += group.own + carried_[block];
      BuildBinsEnd(block, ended, payload_);
      // Bit 0 of a cut block belongs to an earlier group, whose thread must not write this bitmap.
      if (carried_[block] > 0) *Bitmap(block) |= 1;
    }
  }

  const Kernels& kernels_;
  const BinCodec::Select select_;
  const float extra_;
  const BinsLayout layout_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BinSums> groups_;    // by the block where their bins begin
  const std::span<uint32_t> carried_;  // entries of a bin that an earlier block begins, by block
  const std::span<float> errors_;      // sum of squares that a block's sent elements leave
  float scale_ = 0;
};

}  // namespace

absl::StatusOr<BinLengths> BinLengthOptions(const CodecSpec& spec) {
  BinLengths lengths;
  if (spec.options.contains("lt")) {
    SLIMPS_ASSIGN_OR_RETURN(lengths.other, BinLengthOption(spec, "lt", 0));
    lengths.convolution = lengths.other;
  }
  SLIMPS_ASSIGN_OR_RETURN(lengths.convolution,
                          BinLengthOption(spec, "lt_conv", lengths.convolution));
  SLIMPS_ASSIGN_OR_RETURN(lengths.other, BinLengthOption(spec, "lt_fc", lengths.other));
  return lengths;
}

BinCodec::BinCodec(const CodecSpec& spec, const Kernels& kernels, ErrorFeedback feedback,
                   const BinLengths& lengths, Select select, float extra)
    : Codec(spec, kernels, std::numeric_limits<float>::max()),
      feedback_(feedback),
      lengths_(lengths),
      select_(select),
      extra_(extra) {}

size_t BinCodec::MaxPayloadBytes(size_t elements) const {
  const auto all_sent = [elements](uint32_t length) {
    return BinsLayout{.bin_length = length, .elements = elements}.PayloadBytes(elements);
  };
  return std::max(all_sent(lengths_.convolution), all_sent(lengths_.other));
}

std::unique_ptr<EncodeRun> BinCodec::Begin(const EncodeInput& input, std::span<std::byte> payload,
                                           EncodeWorkspace& workspace) const {
  const BinsLayout layout = {.bin_length = lengths_.Of(input.context.layer),
                             .elements = input.gradient.size()};
  return std::make_unique<BinRun>(kernels(), select_, extra_, layout, input, payload, workspace);
}

}  // namespace slimps
