#include "compress/format/levels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are copied as they lie");

template <typename T>
T Load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void Store(T value, std::span<std::byte> bytes, size_t offset) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// REQUIRES: payload.size() >= kLevelsHeaderBytes. Checks nothing.
LevelsLayout ReadHeader(std::span<const std::byte> payload) {
  return {.bits = Load<uint8_t>(payload, 1),
          .scales_per_block = Load<uint8_t>(payload, 2),
          .elements = Load<uint32_t>(payload, 4),
          .value = Load<float>(payload, 12)};
}

absl::Status Malformed(std::string_view field, const std::string& expected,
                       const std::string& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("levels payload: ", std::string(field), ": expected ", expected, ", got ", got));
}

absl::Status CheckHeader(std::span<const std::byte> payload, size_t elements) {
  const auto magic = Load<uint8_t>(payload, 0);
  if (magic != kLevelsMagic) {
    return Malformed("magic byte", absl::StrCat(kLevelsMagic), absl::StrCat(magic));
  }
  const LevelsLayout layout = ReadHeader(payload);
  if (layout.bits != 1 && layout.bits != 2) {
    return Malformed("bits per element", "1 or 2", absl::StrCat(layout.bits));
  }
  if (layout.scales_per_block > 2) {
    return Malformed("scales per block", "0, 1 or 2", absl::StrCat(layout.scales_per_block));
  }
  if (const auto flags = Load<uint8_t>(payload, 3); flags != 0) {
    return Malformed("flags", "0", absl::StrCat(flags));
  }
  if (layout.elements != elements) {
    return Malformed("elements", absl::StrCat(elements), absl::StrCat(layout.elements));
  }
  if (const auto block = Load<uint32_t>(payload, 8); block != kBlockElements) {
    return Malformed("elements per block", absl::StrCat(kBlockElements), absl::StrCat(block));
  }
  if (!std::isfinite(layout.value)) {
    return Malformed("value", "a finite number", absl::StrCat(layout.value));
  }
  if (layout.scales_per_block > 0 && Load<uint32_t>(payload, 12) != 0) {
    return Malformed("value beside scales", "0", absl::StrCat(layout.value));
  }
  return absl::OkStatus();
}

absl::Status CheckScales(std::span<const std::byte> payload, const LevelsLayout& layout) {
  const size_t count = layout.blocks() * layout.scales_per_block;
  for (size_t i = 0; i < count; ++i) {
    const auto scale = Load<float>(payload, kLevelsHeaderBytes + i * sizeof(float));
    if (!std::isfinite(scale)) {
      return Malformed(absl::StrCat("scale ", i, " of ", count), "a finite number",
                       absl::StrCat(scale));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPadding(std::span<const std::byte> payload, const LevelsLayout& layout) {
  if (layout.elements % 8 == 0) return absl::OkStatus();
  const size_t last = layout.blocks() - 1;
  for (size_t plane = 0; plane < layout.bits; ++plane) {
    const size_t end = layout.PlanesOffset(last) + (plane + 1) * layout.PlaneBytes(last);
    const auto byte = Load<uint8_t>(payload, end - 1);
    if ((byte >> (layout.elements % 8)) != 0) {
      return Malformed(absl::StrCat("bits past the last element in plane ", plane), "0",
                       absl::StrCat(byte));
    }
  }
  return absl::OkStatus();
}

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
void ForBlocks(std::span<const std::byte> payload, size_t first, std::span<float> dst,
               decltype(LevelsKernels::add_1bit) one_bit, decltype(LevelsKernels::add_2bit) two_bit) {
  const LevelsLayout layout = ReadHeader(payload);
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

}  // namespace

void BuildLevelsHeader(const LevelsLayout& layout, std::span<std::byte> payload) {
  Store(kLevelsMagic, payload, 0);
  Store(layout.bits, payload, 1);
  Store(layout.scales_per_block, payload, 2);
  Store(uint8_t{0}, payload, 3);
  Store(static_cast<uint32_t>(layout.elements), payload, 4);
  Store(static_cast<uint32_t>(kBlockElements), payload, 8);
  Store(layout.scales_per_block == 0 ? layout.value : 0.0f, payload, 12);
}

absl::Status ValidateLevels(std::span<const std::byte> payload, size_t elements) {
  if (payload.size() < kLevelsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("levels payload: expected at least ",
                                            kLevelsHeaderBytes, " bytes, got ", payload.size()));
  }
  if (absl::Status status = CheckHeader(payload, elements); !status.ok()) return status;
  const LevelsLayout layout = ReadHeader(payload);
  if (payload.size() != layout.PayloadBytes()) {
    return absl::DataLossError(absl::StrCat("levels payload of ", elements, " elements: expected ",
                                            layout.PayloadBytes(), " bytes, got ", payload.size()));
  }
  if (absl::Status status = CheckScales(payload, layout); !status.ok()) return status;
  return CheckPadding(payload, layout);
}

void DecodeLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                  std::span<float> dst) {
  ForBlocks(payload, first, dst, kernels.levels.decode_1bit, kernels.levels.decode_2bit);
}

void DecodeAddLevels(const Kernels& kernels, std::span<const std::byte> payload, size_t first,
                     std::span<float> dst) {
  ForBlocks(payload, first, dst, kernels.levels.add_1bit, kernels.levels.add_2bit);
}

}  // namespace slimps
