// SPDX-License-Identifier: Apache-2.0
#include "proto/frame.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "proto/header_check.h"
#include "proto/status_proto.h"
#include "tests/proto/golden_files.h"
#include "tests/proto/golden_messages.h"

namespace slimps {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Bytes> Copies(const Frame& frame) {
  std::vector<Bytes> parts;
  for (const Payload& part : frame) parts.emplace_back(part.bytes().begin(), part.bytes().end());
  return parts;
}

absl::StatusOr<wire::Header> Parse(const std::vector<Bytes>& parts,
                                   const Limits& limits = kDefaultLimits) {
  std::vector<std::span<const std::byte>> spans(parts.begin(), parts.end());
  return ParseFrame(spans, limits);
}

std::vector<Bytes> ExampleParts() { return Copies(*BuildFrame(ReadmeExample(), kDefaultLimits)); }

// Returns the frame with its header replaced by `header`, which is serialised without any check.
std::vector<Bytes> WithHeader(std::vector<Bytes> parts, const wire::Header& header) {
  const std::string body = header.SerializeAsString();
  parts[0].resize(kPreludeBytes);
  for (const char c : body) parts[0].push_back(static_cast<std::byte>(c));
  return parts;
}

wire::Header ExampleHeader() { return *Parse(ExampleParts()); }

void ExpectError(const absl::StatusOr<wire::Header>& parsed, absl::StatusCode code,
                 const std::string& part_of_message) {
  EXPECT_EQ(parsed.status().code(), code) << parsed.status();
  EXPECT_TRUE(absl::StrContains(std::string(parsed.status().message()), part_of_message))
      << parsed.status();
}

TEST(Frame, RoundTripsWithPayloadsShared) {
  Message message = ReadmeExample();
  const std::byte* payload = message.payloads[0].bytes().data();
  const absl::StatusOr<Frame> frame = BuildFrame(message, kDefaultLimits);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ((*frame)[1].bytes().data(), payload);
  const absl::StatusOr<wire::Header> header = ParseFrame(Spans(*frame), kDefaultLimits);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->push().items(0).round(), 5u);
  EXPECT_EQ(header->protocol_version(), kProtocolVersion);
}

TEST(Frame, AnItemWithoutPayloadTakesNoPart) {
  Message message;
  wire::PushItem* item = message.header.mutable_push()->add_items();
  AttachPayload(item, Payload(), PayloadHashing::kXxh3, &message);
  EXPECT_TRUE(message.payloads.empty());
  const absl::StatusOr<Frame> frame = BuildFrame(message, kDefaultLimits);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->size(), 1u);
  EXPECT_TRUE(ParseFrame(Spans(*frame), kDefaultLimits).ok());
}

TEST(Frame, EveryTruncationOfEveryPartOfEveryVerbIsRefusedOrHarmless) {
  for (const GoldenMessage& golden : GoldenMessages()) {
    const std::vector<Bytes> whole = Copies(*BuildFrame(golden.message, kDefaultLimits));
    for (size_t part = 0; part < whole.size(); ++part) {
      for (size_t length = 0; length < whole[part].size(); ++length) {
        std::vector<Bytes> cut = whole;
        cut[part].resize(length);
        const absl::StatusOr<wire::Header> header = Parse(cut);
        // A protobuf cut between two fields is still a protobuf. Without its body it is not a
        // frame.
        if (part > 0 || length <= kPreludeBytes) {
          EXPECT_FALSE(header.ok()) << golden.name << " part " << part << " cut to " << length;
        } else if (header.ok()) {
          EXPECT_TRUE(CheckHeader(*header, kDefaultLimits).ok());
        }
      }
    }
  }
}

TEST(Frame, EveryFlippedByteIsRefusedOrStillAValidHeader) {
  for (const GoldenMessage& golden : GoldenMessages()) {
    const std::vector<Bytes> whole = Copies(*BuildFrame(golden.message, kDefaultLimits));
    for (size_t part = 0; part < whole.size(); ++part) {
      for (size_t at = 0; at < whole[part].size(); ++at) {
        for (const unsigned flip : {0x01u, 0x80u, 0xffu}) {
          std::vector<Bytes> bad = whole;
          bad[part][at] ^= static_cast<std::byte>(flip);
          const absl::StatusOr<wire::Header> header = Parse(bad);
          const bool hashed = golden.name != "pull_reply";  // it has its hash off
          if ((part == 0 && at < kPreludeBytes) || (part > 0 && hashed)) {
            EXPECT_FALSE(header.ok()) << golden.name << " part " << part << " byte " << at;
          } else if (header.ok()) {
            EXPECT_TRUE(CheckHeader(*header, kDefaultLimits).ok());
            EXPECT_EQ(PayloadClaims(*header).size(), whole.size() - 1);
          }
        }
      }
    }
  }
}

TEST(Frame, NoPartsAndForeignBytesAreRefused) {
  ExpectError(Parse({}), absl::StatusCode::kInvalidArgument, "without a header");
  ExpectError(Parse({Bytes(7)}), absl::StatusCode::kInvalidArgument, "7 bytes");
  ExpectError(Parse({Bytes(64)}), absl::StatusCode::kInvalidArgument, "SLPS");
}

TEST(Frame, AnotherVersionIsNamed) {
  std::vector<Bytes> parts = ExampleParts();
  parts[0][4] = std::byte{2};
  ExpectError(Parse(parts), absl::StatusCode::kInvalidArgument, "protocol version 2, expected 1");
  wire::Header header = ExampleHeader();
  header.set_protocol_version(9);
  ExpectError(Parse(WithHeader(ExampleParts(), header)), absl::StatusCode::kInvalidArgument,
              "protocol version 9 in the header");
}

TEST(Frame, PreludeVerbMustBeTheBody) {
  std::vector<Bytes> parts = ExampleParts();
  parts[0][6] = std::byte{25};
  ExpectError(Parse(parts), absl::StatusCode::kInvalidArgument, "verb 25, the header holds push");
  wire::Header none = ExampleHeader();
  none.clear_body();
  std::vector<Bytes> empty = WithHeader({ExampleParts()[0]}, none);
  empty[0][6] = std::byte{0};
  ExpectError(Parse(empty), absl::StatusCode::kInvalidArgument, "no body");
}

TEST(Frame, MissingAndSurplusPayloadPartsAreCounted) {
  std::vector<Bytes> parts = ExampleParts();
  parts.push_back(Bytes(8));
  ExpectError(Parse(parts), absl::StatusCode::kInvalidArgument,
              "push announces 1 payload frames, got 2");
  parts.resize(1);
  ExpectError(Parse(parts), absl::StatusCode::kInvalidArgument, "got 0");
}

TEST(Frame, ALyingPayloadLengthNamesKeyExpectedAndGot) {
  std::vector<Bytes> parts = ExampleParts();
  parts[1].push_back(std::byte{0});
  ExpectError(Parse(parts), absl::StatusCode::kDataLoss,
              "key 0123456789abcdef partition 1: expected 8 bytes, got 9");
}

TEST(Frame, AWrongHashIsDataLossUnlessHashingIsOff) {
  std::vector<Bytes> parts = ExampleParts();
  parts[1][0] ^= std::byte{1};
  ExpectError(Parse(parts), absl::StatusCode::kDataLoss, "expected hash");
  wire::Header header = ExampleHeader();
  header.mutable_push()->mutable_items(0)->set_payload_hash(0);
  EXPECT_TRUE(Parse(WithHeader(parts, header)).ok());
}

TEST(Frame, RawPayloadsMustMatchTheirElements) {
  wire::Header header = ExampleHeader();
  header.mutable_push()->mutable_items(0)->set_elements(3);
  ExpectError(Parse(WithHeader(ExampleParts(), header)), absl::StatusCode::kInvalidArgument,
              "RAW_F32 of 3 elements takes 12 payload bytes, the item declares 8");
  header.mutable_push()->mutable_items(0)->set_elements(uint64_t{1} << 62);  // times 4: wraps to 0
  ExpectError(Parse(WithHeader(ExampleParts(), header)), absl::StatusCode::kInvalidArgument,
              "elements, at most");
  header.mutable_push()->mutable_items(0)->set_elements(4);
  header.mutable_push()->mutable_items(0)->set_format(wire::RAW_BF16);
  EXPECT_TRUE(Parse(WithHeader(ExampleParts(), header)).ok());
  header.mutable_push()->mutable_items(0)->set_format(wire::ABSENT);
  ExpectError(Parse(WithHeader(ExampleParts(), header)), absl::StatusCode::kInvalidArgument,
              "ABSENT");
}

TEST(Frame, UnknownEnumValuesAreRefused) {
  wire::Header header = ExampleHeader();
  header.mutable_push()->mutable_items(0)->set_format(static_cast<wire::Format>(77));
  ExpectError(Parse(WithHeader(ExampleParts(), header)), absl::StatusCode::kInvalidArgument,
              "push.items[0].format: 77 is no value of Format");
}

TEST(Frame, PartitionsAndShapesAreBounded) {
  wire::Header header = ExampleHeader();
  header.mutable_push()->mutable_items(0)->mutable_id()->set_partition(
      kDefaultLimits.max_partitions);
  ExpectError(Parse(WithHeader(ExampleParts(), header)), absl::StatusCode::kInvalidArgument,
              "partitions");
  Message message;
  wire::KeyInfo* info = message.header.mutable_declare_keys()->add_keys();
  info->add_shape(int64_t{1} << 40);
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
  info->set_shape(0, -1);
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
  info->set_shape(0, int64_t{1} << 31);
  info->add_shape(int64_t{1} << 33);  // the product wraps to 0
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
  info->clear_shape();
  for (int i = 0; i < 17; ++i) info->add_shape(1);
  const absl::Status deep = BuildFrame(message, kDefaultLimits).status();
  EXPECT_TRUE(absl::StrContains(std::string(deep.message()), "shape: has 17 entries, at most 16"))
      << deep;
}

TEST(Frame, StringsListsAndNumbersAreBounded) {
  Message message;
  message.header.mutable_heartbeat();
  message.header.set_job_id(std::string(kDefaultLimits.max_text_bytes + 1, 'x'));
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
  message.header.set_job_id("");
  message.header.mutable_declare_keys()->add_keys()->set_name(
      std::string(kDefaultLimits.max_key_name_bytes + 1, 'x'));
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
  message.header.mutable_threshold_report()->add_rows()->set_t_c_ms(std::nan(""));
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
  Limits few;
  few.max_items = 2;
  message.header.mutable_threshold_report()->clear_rows();
  for (int i = 0; i < 3; ++i) message.header.mutable_threshold_report()->add_rows();
  EXPECT_FALSE(BuildFrame(message, few).ok());
  EXPECT_TRUE(BuildFrame(message, kDefaultLimits).ok());
}

TEST(Frame, SizesMeetTheirLimitsOnBothEnds) {
  Limits small;
  small.max_message_bytes = 64;
  EXPECT_EQ(BuildFrame(ReadmeExample(), small).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse(ExampleParts(), small).status().code(), absl::StatusCode::kInvalidArgument);
  Limits short_header;
  short_header.max_header_bytes = 32;
  EXPECT_FALSE(BuildFrame(ReadmeExample(), short_header).ok());
  EXPECT_FALSE(Parse(ExampleParts(), short_header).ok());
  Limits no_payloads;
  no_payloads.max_payload_frames = 0;
  EXPECT_FALSE(Parse(ExampleParts(), no_payloads).ok());
}

TEST(Frame, BuildRefusesAPayloadThatItsItemDoesNotDeclare) {
  Message message = ReadmeExample();
  message.header.mutable_push()->mutable_items(0)->set_payload_bytes(4);
  message.header.mutable_push()->mutable_items(0)->set_elements(1);
  EXPECT_EQ(BuildFrame(message, kDefaultLimits).status().code(), absl::StatusCode::kDataLoss);
  message = ReadmeExample();
  message.payloads.clear();
  EXPECT_FALSE(BuildFrame(message, kDefaultLimits).ok());
}

TEST(StatusProto, RoundTripsAndSurvivesAnyText) {
  const absl::Status status = absl::DataLossError("expected 8, got 9");
  EXPECT_EQ(FromStatusProto(ToStatusProto(status)), status);
  EXPECT_TRUE(FromStatusProto(ToStatusProto(absl::OkStatus())).ok());
  Message message;
  *message.header.mutable_ack()->mutable_status() =
      ToStatusProto(absl::InternalError(std::string(100000, '\xff')));
  const absl::StatusOr<Frame> frame = BuildFrame(message, kDefaultLimits);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_TRUE(ParseFrame(Spans(*frame), kDefaultLimits).ok());
}

TEST(StatusProto, AnUnknownCodeIsUnknown) {
  wire::StatusProto proto;
  proto.set_code(12345);
  EXPECT_EQ(FromStatusProto(proto).code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace slimps
