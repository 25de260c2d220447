// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for payloads of any format. ValidatePayload must refuse the bytes, or Decode and
// DecodeAdd must stay in bounds. Every kernel set must decode alike.
//
//   bazel build --config=fuzz //tests/compress/format:levels_fuzz
//   bazel-bin/tests/compress/format/levels_fuzz -max_total_time=600
//
// Input: one byte format, one byte that relates the element count to the payload, then the payload.
// Formats 6 and 9 are levels and rotated levels with correct headers and lengths, so that the
// fuzzer often reaches scales, padding and planes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/decode.h"
#include "compress/format/format.h"
#include "compress/format/levels.h"
#include "compress/format/rotated.h"
#include "compress/kernels/kernels.h"
#include "tests/compress/format/fuzz_input.h"

namespace slimps {
namespace {

// Returns the element count that the receiver expects: from the payload's length, small, or often
// the header's.
size_t ClaimedElements(uint8_t choice, std::span<const std::byte> payload) {
  uint32_t declared = 0;
  if (payload.size() >= 8) std::memcpy(&declared, payload.data() + 4, sizeof declared);
  switch (choice % 4) {
    case 0:
      return payload.size() / 4;
    case 1:
      return payload.size() / 2;
    case 2:
      return choice / 4;
    default:
      return declared;
  }
}

void CheckAlike(std::span<const float> a, std::span<const float> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != a[i] && b[i] != b[i]) continue;  // NaNs in a raw payload
    Require(std::memcmp(&a[i], &b[i], sizeof(float)) == 0);
  }
}

// Decodes into exact allocations, so that the address sanitizer sees one byte too many.
void DecodeEverywhere(PayloadFormat format, std::span<const std::byte> payload, size_t elements) {
  using Floats = std::unique_ptr<float[]>;
  const auto decode = [&](const Kernels& kernels, size_t first, std::span<float> out,
                          std::span<float> sum) {
    DecodeWith(kernels, format, payload, elements, first, out);
    DecodeAddWith(kernels, format, payload, elements, first, sum);
  };
  for (size_t first = 0; first < elements || first == 0; first += kBlockElements) {
    for (size_t n : {std::min(kBlockElements, elements - first), elements - first}) {
      const Floats out(new float[n]()), sum(new float[n]()), wanted(new float[n]()),
          wanted_sum(new float[n]());
      decode(*FindKernels("scalar"), first, {wanted.get(), n}, {wanted_sum.get(), n});
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        std::fill_n(sum.get(), n, 0.0f);
        decode(*kernels, first, {out.get(), n}, {sum.get(), n});
        CheckAlike({out.get(), n}, {wanted.get(), n});
        CheckAlike({sum.get(), n}, {wanted_sum.get(), n});
      }
    }
  }
}

// Forces codes of four or eight bits into the declared range, except one in 256 bytes. Sets codes
// past the end to 0.
void LimitLevels(const LevelsLayout& layout, std::span<std::byte> payload) {
  const uint32_t zero = 1u << (layout.bits - 1), codes = 2u * layout.levels + 1;
  const auto limit = [&](uint32_t code) { return zero - layout.levels + code % codes; };
  const std::span<std::byte> body = payload.subspan(layout.PlanesOffset(0));
  for (std::byte& byte : body) {
    const auto code = std::to_integer<uint32_t>(byte);
    if (code == 0xff) continue;
    byte = layout.bits == 8 ? static_cast<std::byte>(limit(code))
                            : static_cast<std::byte>(limit(code & 15) | limit(code >> 4) << 4);
  }
  if (layout.bits == 4 && layout.elements % 2 == 1) body.back() &= std::byte{15};
}

// Returns a levels payload with a correct header and length, and sets `elements`. Its scales and
// levels repeat the input. With `rotated` it stands in a payload of that format.
enum class Rotation { kNone, kRotated };
std::vector<std::byte> WithTrueHeader(uint8_t choice, std::span<const std::byte> body,
                                      Rotation rotation, size_t& elements) {
  const auto input = [&](size_t i) {
    return body.empty() ? 0 : std::to_integer<uint32_t>(body[i % body.size()]);
  };
  const bool rotated = rotation == Rotation::kRotated;
  LevelsLayout layout;
  layout.bits = static_cast<uint8_t>(1 << choice % 4);
  layout.scales_per_block = static_cast<uint8_t>(choice / 4 % (layout.packed() ? 2 : 3));
  elements = (input(0) * 256 + input(1)) % (kMaxFuzzElements + 1);
  layout.elements = rotated ? RotatedLength(elements) : elements;
  layout.value = 0.5f;
  if (layout.packed()) {
    layout.map = static_cast<LevelsMap>(choice / 8 % 2);
    layout.bucket = LevelsLayout::kSmallestBucket << choice / 16 % 6;
    layout.levels = static_cast<uint8_t>(1 + input(2) % ((1u << (layout.bits - 1)) - 1));
  }
  const size_t before = rotated ? kRotatedHeaderBytes : 0;
  std::vector<std::byte> payload(before + layout.PayloadBytes());
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(input(i));
  const std::span<std::byte> levels = std::span(payload).subspan(before);
  if (layout.packed()) LimitLevels(layout, levels);
  BuildLevelsHeader(layout, levels);
  if (rotated) BuildRotatedHeader(elements, {.key0 = input(3), .round = input(4)}, payload);
  return payload;
}

// Checks that every kernel set finds the same levels in range.
void CheckWithin(std::span<const std::byte> payload, uint8_t choice) {
  const std::unique_ptr<uint8_t[]> codes(new uint8_t[payload.size()]);
  std::transform(payload.begin(), payload.end(), codes.get(), std::to_integer<uint8_t>);
  const QuantizeKernels& scalar = FindKernels("scalar")->quantize;
  const size_t n = payload.size();
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    const QuantizeKernels& mine = kernels->quantize;
    const uint32_t four = 1 + choice % 7, eight = 1 + choice % 127;
    const size_t nibbles = 2 * n - (n > 0 ? choice % 2 : 0);
    Require(mine.levels_within_4bit(codes.get(), four, nibbles) ==
            scalar.levels_within_4bit(codes.get(), four, nibbles));
    Require(mine.levels_within_8bit(codes.get(), eight, n) ==
            scalar.levels_within_8bit(codes.get(), eight, n));
  }
}

void CheckPayload(PayloadFormat format, std::span<const std::byte> payload, size_t elements) {
  if (!ValidatePayload(format, payload, elements).ok()) return;
  // A valid count is bounded by the payload's size, except for "absent", which has no bytes.
  if (elements <= kMaxFuzzElements) DecodeEverywhere(format, payload, elements);
}

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  // The payload gets an allocation of its own.
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> payload(begin + 2, begin + size);
  const int format = data[0] % 10;
  size_t elements = 0;
  if (format == 6) {
    const auto levels = slimps::WithTrueHeader(data[1], payload, slimps::Rotation::kNone, elements);
    slimps::CheckPayload(slimps::PayloadFormat::kLevels, levels, elements);
    slimps::CheckWithin(payload, data[1]);
    return 0;
  }
  if (format == 9) {
    const auto rotated =
        slimps::WithTrueHeader(data[1], payload, slimps::Rotation::kRotated, elements);
    slimps::CheckPayload(slimps::PayloadFormat::kRotated, rotated, elements);
    return 0;
  }
  slimps::CheckPayload(static_cast<slimps::PayloadFormat>(format), payload,
                       slimps::ClaimedElements(data[1], payload));
  return 0;
}
