// SPDX-License-Identifier: Apache-2.0
// Sharing parts: what the builder made is parsed, and malformed parts are refused.
#include "proto/net/shared/sharing_wire.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "proto/frame.h"
#include "tests/proto/net/net_messages.h"

namespace slimps {
namespace {

std::string Text(const Payload& payload) {
  return {reinterpret_cast<const char*>(payload.bytes().data()), payload.size()};
}

absl::StatusOr<SharingPart> Parse(const std::string& text) {
  return ParseSharingPart(std::as_bytes(std::span<const char>(text.data(), text.size())),
                          kDefaultLimits);
}

SharingPart References(size_t count) {
  SharingPart part{.kind = SharingKind::kReferences, .pid = 77};
  for (size_t i = 0; i < count; ++i) {
    part.references.push_back({.payload = static_cast<uint32_t>(2 * i),
                               .segment = {.pid = 77, .fd = 9, .id = 0x1122334455667788},
                               .offset = 4096 + 64 * i,
                               .bytes = 1000 + i,
                               .lease = 31 + i});
  }
  return part;
}

TEST(SharingWire, AnOfferIsTheBytesOfTheSpecification) {
  const Payload built = BuildSharingPart(
      {.kind = SharingKind::kOffer, .pid = 0x0102, .segment = {.fd = 5, .id = 0x1122334455667788}});
  const std::string expected(
      "SLSM\x01\x00\x01\x00\x02\x01\0\0\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\x05\0\0\0\0\0\0\0",
      32);
  EXPECT_EQ(Text(built), expected);
  const auto parsed = Parse(expected);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->kind, SharingKind::kOffer);
  EXPECT_EQ(parsed->segment.pid, 0x0102u);
  EXPECT_EQ(parsed->segment.fd, 5u);
  EXPECT_EQ(parsed->segment.id, 0x1122334455667788u);
}

TEST(SharingWire, AnswersAndReturnsComeBackAsTheyWere) {
  EXPECT_EQ(Parse(Text(BuildSharingPart({.kind = SharingKind::kAccept, .pid = 8})))->pid, 8u);
  const auto refused =
      Parse(Text(BuildSharingPart({.kind = SharingKind::kRefuse, .pid = 8, .reason = "no such"})));
  EXPECT_EQ(refused->reason, "no such");
  const std::vector<uint64_t> leases = {1, ~uint64_t{0}, 3};
  const auto returned =
      Parse(Text(BuildSharingPart({.kind = SharingKind::kReturn, .pid = 8, .leases = leases})));
  EXPECT_EQ(returned->leases, leases);
}

TEST(SharingWire, ReferencesComeBackAsTheyWere) {
  const SharingPart part = References(3);
  const auto parsed = Parse(Text(BuildSharingPart(part)));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->references.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parsed->references[i].payload, part.references[i].payload);
    EXPECT_EQ(parsed->references[i].segment.pid, 77u);
    EXPECT_EQ(parsed->references[i].segment.fd, 9u);
    EXPECT_EQ(parsed->references[i].segment.id, part.references[i].segment.id);
    EXPECT_EQ(parsed->references[i].offset, part.references[i].offset);
    EXPECT_EQ(parsed->references[i].bytes, part.references[i].bytes);
    EXPECT_EQ(parsed->references[i].lease, part.references[i].lease);
  }
}

TEST(SharingWire, NoFrameBeginsAsASharingPartDoes) {
  const absl::StatusOr<Frame> frame = BuildFrame(Numbered(1), kDefaultLimits);
  EXPECT_FALSE(IsSharingPart((*frame)[0].bytes()));
  EXPECT_TRUE(IsSharingPart(BuildSharingPart(References(1)).bytes()));
  EXPECT_FALSE(IsSharingPart({}));
}

TEST(SharingWire, MalformedPartsAreRefused) {
  const std::string offer = Text(BuildSharingPart({.kind = SharingKind::kOffer, .pid = 1}));
  const std::string accept = Text(BuildSharingPart({.kind = SharingKind::kAccept, .pid = 1}));
  const std::string references = Text(BuildSharingPart(References(2)));
  const auto with = [](std::string text, size_t at, char byte) {
    text[at] = byte;
    return text;
  };
  SharingPart falling = References(2);
  std::swap(falling.references[0], falling.references[1]);
  SharingPart repeated = References(2);
  repeated.references[1].payload = repeated.references[0].payload;
  SharingPart far = References(1);
  far.references[0].payload = static_cast<uint32_t>(kDefaultLimits.max_payload_frames);
  const std::vector<std::string> malformed = {
      "",
      "SLSM",
      accept.substr(0, 15),
      with(accept, 0, 'X'),
      with(accept, 4, 2),  // version
      with(accept, 6, 0),  // kind
      with(accept, 6, 6),
      with(accept, 8, 0),   // process 0
      with(accept, 15, 1),  // process beyond any
      accept + "x",
      offer.substr(0, 31),
      offer + "x",
      with(accept, 6, 4),  // RETURN of nothing
      with(accept, 6, 4) + "1234567",
      with(accept, 6, 4) + std::string(8 * (kMaxLeasesPerReturn + 1), 'x'),
      with(accept, 6, 3) + std::string(1025, 'x'),
      with(accept, 6, 5),  // REFERENCES to nothing
      references.substr(0, references.size() - 1),
      Text(BuildSharingPart(falling)),
      Text(BuildSharingPart(repeated)),
      Text(BuildSharingPart(far)),
  };
  for (size_t i = 0; i < malformed.size(); ++i) {
    EXPECT_EQ(Parse(malformed[i]).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(SharingWire, AReasonOverItsLimitIsRefusedBeforeItIsLookedAt) {
  constexpr size_t kPage = 4096;
  void* const pages =
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const Payload refuse = BuildSharingPart({.kind = SharingKind::kRefuse, .pid = 8});
  std::memcpy(pages, refuse.bytes().data(), refuse.size());
  // Reading past the end would kill the process.
  ASSERT_EQ(mprotect(static_cast<std::byte*>(pages) + kPage, kPage, PROT_NONE), 0);
  const absl::Status status =
      ParseSharingPart({static_cast<const std::byte*>(pages), 2 * kPage}, kDefaultLimits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("8176 bytes of body, expected at most 1024"),
            absl::string_view::npos)
      << status;
  munmap(pages, 2 * kPage);
}

TEST(SharingWire, AnyBytesAtAllAreParsedOrRefused) {
  std::mt19937 random(3);
  size_t parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = Text(BuildSharingPart(References(random() % 3 + 1)));
    for (int change = 0; change < 3; ++change) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    text.resize(random() % (text.size() + 1));
    parsed += Parse(text).ok();
  }
  EXPECT_LT(parsed, 20000u);
}

}  // namespace
}  // namespace slimps
