// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/checked_content.h"

#include <gtest/gtest.h>

#include <string>

namespace slimps {
namespace {

constexpr std::string_view kMagic = "SLPSTEST";

std::string Content() {
  ContentBuilder content(kMagic);
  content.Add(uint32_t{7});
  content.AddText("a name");
  content.AddBytes("rest");
  return std::move(content).Seal();
}

absl::Status Open(std::string_view content) {
  return ContentReader::Open(content, kMagic, "things").status();
}

TEST(CheckedContent, WhatWasAddedIsTakenInItsOrder) {
  const std::string content = Content();
  auto reader = ContentReader::Open(content, kMagic, "things");
  ASSERT_TRUE(reader.ok()) << reader.status();
  uint32_t number = 0;
  ASSERT_TRUE(reader->Read(&number, "number").ok());
  EXPECT_EQ(number, 7u);
  EXPECT_EQ(reader->TakeText("name").value(), "a name");
  EXPECT_EQ(reader->rest(), "rest") << "without the checksum";
  EXPECT_EQ(reader->Take(4, "all").value(), "rest");
  EXPECT_TRUE(reader->rest().empty());
  EXPECT_EQ(reader->Wrong("because").message(), "things: because");
}

TEST(CheckedContent, WhatIsNotThereIsDataLossAndNothingIsTaken) {
  const std::string content = Content();
  auto reader = ContentReader::Open(content, kMagic, "things");
  ASSERT_TRUE(reader.ok());
  const absl::Status refused = reader->Take(uint64_t{1} << 63, "floats").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused.message(), "things: floats: expected 9223372036854775808 more bytes, got 18");
  uint64_t number = 0;
  ASSERT_TRUE(reader->Read(&number, "the wrong size").ok());
  EXPECT_FALSE(reader->TakeText("name").ok()) << "it says that it is longer than what is left";
}

TEST(CheckedContent, EveryChangedByteAndEveryCutIsRefusedBeforeAnythingIsRead) {
  const std::string content = Content();
  for (size_t i = 0; i < content.size(); ++i) {
    std::string bad = content;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_EQ(Open(bad).code(),
              i < kMagic.size() ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss)
        << i;
    EXPECT_EQ(Open(content.substr(0, i)).code(),
              i < kMagic.size() ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss)
        << i;
  }
  EXPECT_EQ(Open(content + "x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Open("something").message(),
            "things: expected content that begins with SLPSTEST, got 9 bytes of something else");
}

}  // namespace
}  // namespace slimps
