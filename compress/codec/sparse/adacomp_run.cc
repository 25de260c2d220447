// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/adacomp_run.h"

#include <algorithm>
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

// Owned by one encoding.
class BinRun final {
 public:
  BinRun(const Kernels& kernels, BinCodec::Select select, float extra, const BinsLayout& layout,
         const EncodeInput& input, std::span<std::byte> payload, EncodeWorkspace& workspace)
      : kernels_(kernels),
        select_(select),
        extra_(extra),
        layout_(layout),
        input_(input),
        payload_(payload),
        carried_(workspace.Take<uint32_t>(layout.blocks())) {}

  EncodeStats Run() {
    Select();
    if (layout_.bins() > 0) {
      scale_ = static_cast<float>(maxima_ / static_cast<double>(layout_.bins()));
    }
    BuildBinsHeader(layout_, scale_, payload_);
    const auto scale = static_cast<double>(scale_);
    stats_.decoded_norm2 = static_cast<double>(stats_.elements_sent) * scale * scale;
    if (input_.residual.empty()) {
      const double implied = stats_.input_norm2 - 2 * scale * magnitude_ + stats_.decoded_norm2;
      // Rounding may make `implied` too small, or NaN, which max passes over.
      stats_.error_norm2 = std::max(unsent2_, implied);
    } else {
      stats_.error_norm2 = unsent2_ + SubtractSent();
    }
    stats_.payload_bytes = layout_.PayloadBytes(stats_.elements_sent);
    return stats_;
  }

 private:
  uint8_t* Bitmap(size_t block) const {
    return reinterpret_cast<uint8_t*>(payload_.data()) + layout_.BitmapOffset(block);
  }

  // Writes bitmaps, directory and entries, and sums up what the groups report.
  void Select() {
    size_t ended = 0;
    for (size_t block = 0; block < layout_.blocks(); ++block) {
      const BinSums group = SelectGroup(block);
      ended += group.own + carried_[block];
      BuildBinsEnd(block, ended, payload_);
      if (carried_[block] > 0) *Bitmap(block) |= 1;
      stats_.elements_sent += group.entries;
      stats_.input_norm2 += static_cast<double>(group.input2);
      maxima_ += group.maxima;
      unsent2_ += static_cast<double>(group.unsent2);
      magnitude_ += static_cast<double>(group.sent_magnitude);
    }
  }

  BinSums SelectGroup(size_t block) {
    const bool cut = layout_.CutsBin(block);
    std::fill_n(Bitmap(block), (layout_.Pieces(block) + 7) / 8, uint8_t{0});
    if (block + 1 < layout_.blocks()) {
      std::fill(Bitmap(block), Bitmap(block + 1), uint8_t{0});
    }
    // If the block cuts a bin, the group that begins the bin has written carried_.
    if (!cut) carried_[block] = 0;
    const size_t begin = layout_.GroupBegin(block), end = layout_.GroupBegin(block + 1);
    if (begin == end) return {};
    const bool feedback = !input_.residual.empty();
    return select_({.gradient = input_.gradient.data() + begin,
                    .residual = feedback ? input_.residual.data() + begin : nullptr,
                    .grad_scale = input_.grad_scale,
                    .extra = extra_,
                    .bin_length = layout_.bin_length,
                    .elements = end - begin,
                    .until_cut = (block + 1) * kBlockElements - begin},
                   {.entries = payload_.data() + layout_.PayloadBytes(stats_.elements_sent),
                    .bitmap = Bitmap(block),
                    .first_bit = cut ? size_t{1} : size_t{0},
                    .carried = carried_.data() + block + 1});
  }

  // Returns the sum of squares that the sent elements leave.
  double SubtractSent() {
    double error2 = 0;
    if (layout_.blocks() == 0) return error2;
    const BinsReader reader(payload_);
    BinBlock next = reader.Block(0);
    for (size_t block = 0; block < layout_.blocks(); ++block) {
      const BinBlock present = next;
      float* const residual = input_.residual.data() + block * kBlockElements;
      if (block + 1 < layout_.blocks()) {
        next = reader.Block(block + 1);
        PrefetchBins(kernels_, next, residual + kBlockElements);
      }
      error2 += static_cast<double>(kernels_.bins.subtract(present, residual));
    }
    return error2;
  }

  const Kernels& kernels_;
  const BinCodec::Select select_;
  const float extra_;
  const BinsLayout layout_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<uint32_t> carried_;  // entries of a bin that an earlier block begins, by block
  EncodeStats stats_;
  double maxima_ = 0, unsent2_ = 0, magnitude_ = 0;  // sums of BinSums
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

EncodeStats BinCodec::EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                                  EncodeWorkspace& workspace) const {
  const BinsLayout layout = {.bin_length = lengths_.Of(input.context.layer),
                             .elements = input.gradient.size()};
  return BinRun(kernels(), select_, extra_, layout, input, payload, workspace).Run();
}

}  // namespace slimps
