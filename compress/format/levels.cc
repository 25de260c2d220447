// SPDX-License-Identifier: Apache-2.0
#include "compress/format/levels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Reads the header and checks nothing. REQUIRES: payload.size() >= kLevelsHeaderBytes.
LevelsLayout ReadHeader(std::span<const std::byte> payload) {
  return {.bits = Load<uint8_t>(payload, 1),
          .scales_per_block = Load<uint8_t>(payload, 2),
          .elements = Load<uint32_t>(payload, 4),
          .value = Load<float>(payload, 12),
          .bucket = Load<uint16_t>(payload, 8),
          .levels = Load<uint8_t>(payload, 10),
          .map = static_cast<LevelsMap>(Load<uint8_t>(payload, 3))};
}

absl::Status CheckRange(std::string_view field, size_t smallest, size_t largest, size_t got) {
  if (got >= smallest && got <= largest) return absl::OkStatus();
  return Malformed(
      "levels", field,
      smallest == largest ? absl::StrCat(smallest) : absl::StrCat(smallest, " to ", largest),
      absl::StrCat(got));
}

// Returns the largest number by which a scale is multiplied.
float LargestFactor(const LevelsLayout& layout) {
  return layout.packed() && layout.map == LevelsMap::kLinear ? static_cast<float>(layout.levels)
                                                             : 1.0f;
}

// Checks the fields whose range depends on the width.
absl::Status CheckShape(const LevelsLayout& layout) {
  const bool packed = layout.packed();
  const size_t largest = packed ? (size_t{1} << (layout.bits - 1)) - 1 : 0;
  SLIMPS_RETURN_IF_ERROR(
      CheckRange("scales per block", 0, packed ? 1 : 2, layout.scales_per_block));
  SLIMPS_RETURN_IF_ERROR(
      CheckRange("flags (map)", 0, packed ? 1 : 0, static_cast<uint8_t>(layout.map)));
  if (const size_t smallest = packed ? 1 : 0; layout.levels < smallest || layout.levels > largest) {
    return CheckRange(absl::StrCat("largest level of ", layout.bits, " bits per element"), smallest,
                      largest, layout.levels);
  }
  SLIMPS_RETURN_IF_ERROR(CheckRange("elements per block",
                                    packed ? LevelsLayout::kSmallestBucket : kBlockElements,
                                    kBlockElements, layout.bucket));
  if (!std::has_single_bit(layout.bucket)) {
    return Malformed("levels", "elements per block", "a power of two", absl::StrCat(layout.bucket));
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  SLIMPS_RETURN_IF_ERROR(
      CheckRange("magic byte", kLevelsMagic, kLevelsMagic, Load<uint8_t>(payload, 0)));
  const LevelsLayout layout = ReadHeader(payload);
  if (!std::has_single_bit(layout.bits) || layout.bits > 8) {
    return Malformed("levels", "bits per element", "1, 2, 4 or 8", absl::StrCat(layout.bits));
  }
  SLIMPS_RETURN_IF_ERROR(CheckShape(layout));
  SLIMPS_RETURN_IF_ERROR(CheckRange("byte 11", 0, 0, Load<uint8_t>(payload, 11)));
  SLIMPS_RETURN_IF_ERROR(CheckRange("elements", elements, elements, layout.elements));
  if (!std::isfinite(layout.value * LargestFactor(layout))) {
    return Malformed("levels", "value times largest level", "a finite number",
                     absl::StrCat(layout.value, " * ", LargestFactor(layout)));
  }
  if (layout.scales_per_block > 0 && Load<uint32_t>(payload, 12) != 0) {
    return Malformed("levels", "value beside scales", "0", absl::StrCat(layout.value));
  }
  return absl::OkStatus();
}

absl::Status CheckScales(std::span<const std::byte> payload, const LevelsLayout& layout) {
  const size_t count = layout.buckets() * layout.scales_per_block;
  const float factor = LargestFactor(layout);
  for (size_t i = 0; i < count; ++i) {
    const auto scale = Load<float>(payload, kLevelsHeaderBytes + i * sizeof(float));
    if (!std::isfinite(scale * factor)) {
      return Malformed("levels", absl::StrCat("scale ", i, " of ", count, " times largest level"),
                       "a finite number", absl::StrCat(scale, " * ", factor));
    }
  }
  return absl::OkStatus();
}

// Checks the codes of 4 and 8 bits.
absl::Status CheckCodes(std::span<const std::byte> payload, const LevelsLayout& layout) {
  const QuantizeKernels& kernels = BestKernels().quantize;
  const auto* codes = reinterpret_cast<const uint8_t*>(payload.data()) + layout.PlanesOffset(0);
  const bool within = (layout.bits == 4 ? kernels.levels_within_4bit : kernels.levels_within_8bit)(
      codes, layout.levels, layout.elements);
  if (!within) {
    return Malformed("levels", "levels", absl::StrCat("at most ", layout.levels), "one over it");
  }
  if (layout.bits == 8 || layout.elements % 2 == 0) return absl::OkStatus();
  return CheckRange("bits past the last element", 0, 0, codes[layout.elements / 2] >> 4);
}

// Checks that the bits past the last element are 0 in each plane.
absl::Status CheckPadding(std::span<const std::byte> payload, const LevelsLayout& layout) {
  if (layout.elements % 8 == 0) return absl::OkStatus();
  const size_t last = layout.blocks() - 1;
  for (size_t plane = 0; plane < layout.bits; ++plane) {
    const size_t end = layout.PlanesOffset(last) + (plane + 1) * layout.PlaneBytes(last);
    const auto byte = Load<uint8_t>(payload, end - 1);
    if ((byte >> (layout.elements % 8)) != 0) {
      return Malformed("levels", absl::StrCat("bits past the last element in plane ", plane), "0",
                       absl::StrCat(byte));
    }
  }
  return absl::OkStatus();
}

// The numbers P and N of levels.h.
struct Levels {
  float positive = 0;
  float negative = 0;
};

Levels LevelsOf(const LevelsLayout& layout, std::span<const std::byte> payload, size_t block) {
  if (layout.scales_per_block == 0) return {layout.value, -layout.value};
  const size_t offset = layout.ScaleOffset(block);
  const auto scale = Load<float>(payload, offset);
  if (layout.scales_per_block == 1) return {scale, -scale};
  return {scale, Load<float>(payload, offset + sizeof(float))};
}

// Calls one_bit or two_bit for each block that dst covers.
void ForBlocks(std::span<const std::byte> payload, const LevelsLayout& layout, size_t first,
               std::span<float> dst, decltype(LevelsKernels::add_1bit) one_bit,
               decltype(LevelsKernels::add_2bit) two_bit) {
  for (size_t done = 0; done < dst.size(); done += kBlockElements) {
    const size_t block = (first + done) / kBlockElements;
    const size_t n = std::min(kBlockElements, dst.size() - done);
    const auto* plane =
        reinterpret_cast<const uint8_t*>(payload.data()) + layout.PlanesOffset(block);
    const Levels levels = LevelsOf(layout, payload, block);
    if (layout.bits == 1) {
      one_bit(plane, levels.positive, levels.negative, n, dst.data() + done);
    } else {
      two_bit(plane, plane + layout.PlaneBytes(block), levels.positive, levels.negative, n,
              dst.data() + done);
    }
  }
}

// Calls `decode` for each bucket that dst covers, or once if all have one scale.
void ForBuckets(std::span<const std::byte> payload, const LevelsLayout& layout, size_t first,
                std::span<float> dst, LevelsToFloats decode) {
  const auto* codes = reinterpret_cast<const uint8_t*>(payload.data()) +
                      layout.PlanesOffset(first / kBlockElements);
  const size_t step = layout.scales_per_block == 0 ? dst.size() : layout.bucket;
  for (size_t done = 0; done < dst.size(); done += step) {
    const float scale = layout.scales_per_block == 0
                            ? layout.value
                            : Load<float>(payload, layout.ScaleOffset((first + done) / step));
    decode(codes + done * layout.bits / 8, scale, layout.levels, std::min(step, dst.size() - done),
           dst.data() + done);
  }
}

LevelsToFloats DecoderOf(const QuantizeKernels& kernels, const LevelsLayout& layout) {
  if (layout.map == LevelsMap::kLinear) {
    return layout.bits == 4 ? kernels.decode_linear_4bit : kernels.decode_linear_8bit;
  }
  return layout.bits == 4 ? kernels.decode_natural_4bit : kernels.decode_natural_8bit;
}

LevelsToFloats AdderOf(const QuantizeKernels& kernels, const LevelsLayout& layout) {
  if (layout.map == LevelsMap::kLinear) {
    return layout.bits == 4 ? kernels.add_linear_4bit : kernels.add_linear_8bit;
  }
  return layout.bits == 4 ? kernels.add_natural_4bit : kernels.add_natural_8bit;
}

}  // namespace

void BuildLevelsHeader(const LevelsLayout& layout, std::span<std::byte> payload) {
  Store(kLevelsMagic, payload, 0);
  Store(layout.bits, payload, 1);
  Store(layout.scales_per_block, payload, 2);
  Store(static_cast<uint8_t>(layout.map), payload, 3);
  Store(static_cast<uint32_t>(layout.elements), payload, 4);
  Store(static_cast<uint16_t>(layout.bucket), payload, 8);
  Store(layout.levels, payload, 10);
  Store(uint8_t{0}, payload, 11);
  Store(layout.scales_per_block == 0 ? layout.value : 0.0f, payload, 12);
}

absl::Status ValidateLevels(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kLevelsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("levels payload: expected at least ",
                                            kLevelsHeaderBytes, " bytes, got ", payload.size()));
  }
  SLIMPS_RETURN_IF_ERROR(CheckHeader(payload, elements));
  const LevelsLayout layout = ReadHeader(payload);
  if (payload.size() != layout.PayloadBytes()) {
    return absl::DataLossError(absl::StrCat("levels payload of ", elements, " elements: expected ",
                                            layout.PayloadBytes(), " bytes, got ", payload.size()));
  }
  SLIMPS_RETURN_IF_ERROR(CheckScales(payload, layout));
  return layout.packed() ? CheckCodes(payload, layout) : CheckPadding(payload, layout);
}

float LargestLevel(std::span<const std::byte> payload) {
  const LevelsLayout layout = ReadHeader(payload);
  float largest = std::fabs(layout.value);
  for (size_t i = 0; i < layout.buckets() * layout.scales_per_block; ++i) {
    const auto scale = Load<float>(payload, kLevelsHeaderBytes + i * sizeof(float));
    largest = std::max(largest, std::fabs(scale));
  }
  return largest * LargestFactor(layout);
}

void DecodeLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                  std::span<float> dst) {
  const LevelsLayout layout = ReadHeader(payload);
  if (layout.packed()) {
    ForBuckets(payload, layout, first, dst, DecoderOf(kernels.quantize, layout));
  } else {
    ForBlocks(payload, layout, first, dst, kernels.levels.decode_1bit, kernels.levels.decode_2bit);
  }
}

void DecodeAddLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                     std::span<float> dst) {
  const LevelsLayout layout = ReadHeader(payload);
  if (layout.packed()) {
    ForBuckets(payload, layout, first, dst, AdderOf(kernels.quantize, layout));
  } else {
    ForBlocks(payload, layout, first, dst, kernels.levels.add_1bit, kernels.levels.add_2bit);
  }
}

}  // namespace slimps
