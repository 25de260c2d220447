// SPDX-License-Identifier: Apache-2.0
// What the libFuzzer targets of payload formats share.
#ifndef SLIMPS_TESTS_COMPRESS_FORMAT_FUZZ_INPUT_H_
#define SLIMPS_TESTS_COMPRESS_FORMAT_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr size_t kMaxFuzzElements = 4 * kBlockElements;

// Ends the process, which libFuzzer reports, unless `holds`.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

// An input's first byte says what follows. If it is odd, `check_chosen(input)` makes a payload of
// the rest. If it is even, the rest is the payload: `check_payload(payload, elements)`, where
// `elements` is the `Count` at `count_offset`, and the payload has an allocation of its own.
template <typename Count, typename CheckChosen, typename CheckPayload>
void FuzzPayload(const uint8_t* data, size_t size, size_t count_offset, CheckChosen check_chosen,
                 CheckPayload check_payload) {
  if (size == 0) return;
  if (data[0] % 2 == 1) {
    check_chosen(std::span<const uint8_t>(data + 1, size - 1));
    return;
  }
  const auto* const begin = reinterpret_cast<const std::byte*>(data + 1);
  const std::vector<std::byte> payload(begin, begin + size - 1);
  Count elements = 0;
  if (payload.size() >= count_offset + sizeof elements)
    std::memcpy(&elements, payload.data() + count_offset, sizeof elements);
  check_payload(std::span<const std::byte>(payload), size_t{elements});
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_FORMAT_FUZZ_INPUT_H_
