// SPDX-License-Identifier: Apache-2.0
#include "proto/message_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/frame.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

// Returns a declaration of so many keys.
wire::Header Declaration(int keys) {
  wire::Header header;
  header.set_job_id("job");
  header.mutable_sender()->set_role(wire::WORKER);
  header.mutable_sender()->set_rank(3);
  header.set_incarnation(5);
  header.set_incarnation_high(6);
  header.set_membership_epoch(7);
  header.set_request_id(8);
  header.mutable_declare_keys()->set_partition_elements(1024);
  for (int i = 0; i < keys; ++i) {
    wire::KeyInfo& info = *header.mutable_declare_keys()->add_keys();
    info.set_key(static_cast<uint64_t>(i));
    info.set_name(absl::StrCat("s:model.layers.31.block_sparse_moe.experts.7.w1.weight.", i));
    info.add_shape(4);
  }
  return header;
}

std::vector<wire::Header> PartsOf(const wire::Header& header) {
  absl::StatusOr<std::vector<wire::Header>> parts = CutIntoParts(header);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts.ok() ? *std::move(parts) : std::vector<wire::Header>();
}

// Adds the parts, of which only the last may complete the whole.
absl::StatusOr<std::optional<wire::Header>> AddAll(PartJoiner& received,
                                                   const std::vector<wire::Header>& parts) {
  absl::StatusOr<std::optional<wire::Header>> whole = std::nullopt;
  for (const wire::Header& part : parts) {
    EXPECT_TRUE(whole.ok() && !whole->has_value());
    whole = received.Add(part);
  }
  return whole;
}

TEST(MessageParts, AMessageThatFitsIsNotCut) {
  for (const int keys : {1, 5000}) {
    wire::Header header = Declaration(keys);
    header.set_protocol_version(kProtocolVersion);
    const std::vector<wire::Header> parts = PartsOf(header);
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].SerializeAsString(), header.SerializeAsString());
  }
}

TEST(MessageParts, PartsInAnyOrderAndTwiceMakeTheWhole) {
  wire::Header header = Declaration(20000);
  std::vector<wire::Header> parts = PartsOf(header);
  ASSERT_GT(parts.size(), 2u);
  for (const wire::Header& part : parts) {
    EXPECT_TRUE(BuildFrame({.header = part, .payloads = {}}, kDefaultLimits).ok());
    EXPECT_EQ(part.request_id(), 8u);
    EXPECT_EQ(part.sender().rank(), 3u);
    EXPECT_EQ(part.incarnation_high(), 6u);
  }
  std::reverse(parts.begin(), parts.end());
  parts.insert(parts.begin(), parts[1]);
  PartJoiner received;
  const auto whole = AddAll(received, parts);
  ASSERT_TRUE(whole.ok() && whole->has_value()) << whole.status();
  header.set_protocol_version(kProtocolVersion);
  EXPECT_EQ((*whole)->SerializeAsString(), header.SerializeAsString());
}

TEST(MessageParts, AListOfTooManyEntriesIsCutHoweverSmallTheyAre) {
  wire::Header header;
  header.mutable_barrier()->mutable_values()->Resize(20000, 0.5);
  PartJoiner received;
  const auto whole = AddAll(received, PartsOf(header));
  ASSERT_TRUE(whole.ok() && whole->has_value()) << whole.status();
  EXPECT_EQ((*whole)->barrier().values_size(), 20000);
}

TEST(MessageParts, AMessageOverTheLimitsOfWholesIsNotCut) {
  wire::Header header;
  header.mutable_barrier()->mutable_values()->Resize((1 << 18) + 1, 0.5);
  EXPECT_THAT(std::string(CutIntoParts(header).status().message()),
              HasSubstr("262145 entries, at most 262144 are allowed"));
}

TEST(MessageParts, DamageIsSeenAndTheWholeCanComeAgain) {
  const std::vector<wire::Header> parts = PartsOf(Declaration(20000));
  std::vector<wire::Header> damaged = parts;
  damaged[1].mutable_part()->mutable_piece()->back() ^= 1;
  PartJoiner received;
  EXPECT_EQ(AddAll(received, damaged).status().code(), absl::StatusCode::kDataLoss);
  wire::Header other = parts[0];
  EXPECT_TRUE(received.Add(other).ok());
  other.mutable_part()->set_parts(400);
  EXPECT_EQ(received.Add(other).status().code(), absl::StatusCode::kInvalidArgument);
  const auto whole = AddAll(received, parts);
  EXPECT_TRUE(whole.ok() && whole->has_value()) << whole.status();
}

TEST(MessageParts, TheOldestOfTooManyWholesIsDropped) {
  PartJoiner received;
  const std::vector<wire::Header> first = PartsOf(Declaration(20000));
  EXPECT_TRUE(received.Add(first[0]).ok());
  for (int i = 1; i <= static_cast<int>(PartJoiner::kMostAtOnce); ++i) {
    EXPECT_TRUE(received.Add(PartsOf(Declaration(20000 + i))[0]).ok());
  }
  for (size_t i = 1; i < first.size(); ++i) {
    const auto whole = received.Add(first[i]);
    ASSERT_TRUE(whole.ok());
    EXPECT_FALSE(whole->has_value()) << "its first part is forgotten";
  }
}

TEST(MessageParts, APartOfAPartIsRefused) {
  wire::Header inner = PartsOf(Declaration(20000))[0];
  const auto frame = BuildFrame({.header = inner, .payloads = {}}, kDefaultLimits);
  ASSERT_TRUE(frame.ok());
  const std::span<const std::byte> bytes = (*frame)[0].bytes();
  inner.mutable_part()->set_hash(HashBytes(bytes));
  inner.mutable_part()->set_number(0);
  inner.mutable_part()->set_parts(1);
  inner.mutable_part()->set_piece(bytes.data(), bytes.size());
  EXPECT_THAT(std::string(PartJoiner().Add(inner).status().message()),
              HasSubstr("is a part itself"));
}

}  // namespace
}  // namespace slimps
