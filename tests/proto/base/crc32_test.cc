// SPDX-License-Identifier: Apache-2.0
#include "proto/base/crc32.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace slimps {
namespace {

constexpr std::string_view kText = "123456789";

TEST(Crc32, IsThatOfZlib) {
  EXPECT_EQ(Crc32(0, std::string_view()), 0u);
  EXPECT_EQ(Crc32(0, kText), 0xCBF43926u);  // the check value of the CRC catalogues
  EXPECT_EQ(Crc32(0, "The quick brown fox jumps over the lazy dog"), 0x414FA339u);
}

TEST(Crc32, PartsMakeTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  const uint32_t whole = Crc32(0, text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view view = text;
    EXPECT_EQ(Crc32(Crc32(0, view.substr(0, cut)), view.substr(cut)), whole) << cut;
  }
}

TEST(Crc32, EveryChangedByteShows) {
  std::string text(100, 'x');
  const uint32_t whole = Crc32(0, text);
  for (char& byte : text) {
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<char>(byte ^ (1 << bit));
      EXPECT_NE(Crc32(0, text), whole);
      byte = static_cast<char>(byte ^ (1 << bit));
    }
  }
}

}  // namespace
}  // namespace slimps
