// SPDX-License-Identifier: Apache-2.0
// Replays the fuzzer's seeds and kept finds in an ordinary build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "tests/proto/frame_fuzz_input.h"

namespace slimps {
namespace {

TEST(FrameFuzz, KeptInputsPass) {
  size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/proto/corpus")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    CheckFuzzInput(std::as_bytes(std::span<const char>(bytes)));
    ++inputs;
  }
  EXPECT_GE(inputs, 24u);
}

TEST(FrameFuzz, InputsSplitIntoParts) {
  const std::string input = {3, 2, 0, 1, 0, 'a', 'b', 'c', 'd', 'e'};
  const auto parts =
      PartsOfFuzzInput(std::as_bytes(std::span<const char>(input.data(), input.size())));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].size(), 2u);
  EXPECT_EQ(parts[1].size(), 1u);
  EXPECT_EQ(parts[2].size(), 2u);
}

}  // namespace
}  // namespace slimps
