// libFuzzer: whatever bytes arrive as a payload of any format, ValidatePayload refuses them or Decode and DecodeAdd stay
// in bounds, and every kernel set decodes them alike.
//
//   bazel build --config=fuzz //tests/compress:levels_fuzz && bazel-bin/tests/compress/levels_fuzz -max_total_time=600
//
// Input: one byte format, one byte that says how the element count relates to the payload, then the payload.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "compress/format/decode.h"
#include "compress/format/format.h"
#include "compress/format/kernels.h"

namespace slimps {
namespace {

constexpr size_t kMaxElements = 4 * kBlockElements;

// What the receiver believes the element count to be: often what the header says, else near what the length says.
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
    if (a[i] != a[i] && b[i] != b[i]) continue;  // NaNs of a raw payload
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) std::abort();
  }
}

// Exact allocations, so that the address sanitizer sees one byte too many.
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

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto format = static_cast<slimps::PayloadFormat>(data[0] % 6);
  // The payload alone in its own allocation.
  const size_t payload_bytes = size - 2;
  const std::unique_ptr<std::byte[]> copy(new std::byte[payload_bytes]);
  std::memcpy(copy.get(), data + 2, payload_bytes);
  const std::span<const std::byte> payload(copy.get(), payload_bytes);
  const size_t elements = slimps::ClaimedElements(data[1], payload);
  if (!slimps::ValidatePayload(format, payload, elements).ok()) return 0;
  // A valid count is bounded by the payload's size, but for "absent", which carries nothing.
  if (elements > slimps::kMaxElements) return 0;
  slimps::DecodeEverywhere(format, payload, elements);
  return 0;
}
