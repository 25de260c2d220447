// SPDX-License-Identifier: Apache-2.0
// The wire as other builds and languages see it: BuildFrame must make the bytes of the golden
// files.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "proto/frame.h"
#include "tests/proto/golden_files.h"
#include "tests/proto/golden_messages.h"

namespace slimps {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

TEST(Golden, EveryVerbHasAMessage) {
  std::set<std::string> have;
  for (const GoldenMessage& golden : GoldenMessages()) {
    have.insert(golden.name.substr(golden.name.rfind('/') + 1));  // some are in folders
  }
  const auto* body = wire::Header::descriptor()->FindOneofByName("body");
  for (int i = 0; i < body->field_count(); ++i) {
    EXPECT_EQ(have.count(body->field(i)->name()), 1u) << body->field(i)->name();
  }
}

TEST(Golden, BuiltFramesEqualTheFiles) {
  for (const GoldenMessage& golden : GoldenMessages()) {
    const absl::StatusOr<Frame> frame = BuildFrame(golden.message, kDefaultLimits);
    ASSERT_TRUE(frame.ok()) << golden.name << ": " << frame.status();
    EXPECT_EQ(ToFileBytes(*frame), ReadFile("tests/proto/golden/" + golden.name + ".bin"))
        << golden.name;
  }
}

TEST(Golden, FilesParseToTheMessages) {
  for (const GoldenMessage& golden : GoldenMessages()) {
    const Frame frame = FromFileBytes(ReadFile("tests/proto/golden/" + golden.name + ".bin"));
    const absl::StatusOr<wire::Header> header = ParseFrame(Spans(frame), kDefaultLimits);
    ASSERT_TRUE(header.ok()) << golden.name << ": " << header.status();
    wire::Header expected = golden.message.header;
    expected.set_protocol_version(kProtocolVersion);
    EXPECT_EQ(header->DebugString(), expected.DebugString());
  }
}

TEST(Golden, ListingShowsTheFiles) {
  EXPECT_EQ(GoldenListing(), ReadFile("tests/proto/golden_listing.txt"));
}

TEST(Golden, ReadmeExampleIsTrue) {
  const absl::StatusOr<Frame> frame = BuildFrame(ReadmeExample(), kDefaultLimits);
  ASSERT_TRUE(frame.ok());
  ASSERT_EQ(frame->size(), 2u);
  const std::string readme = ReadFile("proto/README.md");
  EXPECT_NE(readme.find(HexListing((*frame)[0].bytes())), std::string::npos)
      << "the README should show:\n"
      << HexListing((*frame)[0].bytes());
  EXPECT_NE(readme.find(HexListing((*frame)[1].bytes())), std::string::npos);
}

}  // namespace
}  // namespace slimps
