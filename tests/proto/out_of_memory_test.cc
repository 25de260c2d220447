// SPDX-License-Identifier: Apache-2.0
// Memory runs out while a header gets its body or is parsed. The header can still be destroyed, and
// the next one can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "proto/frame.h"
#include "proto/header_body.h"
#include "tests/proto/base/failing_allocations.h"
#include "tests/proto/golden_messages.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Spans = std::vector<std::span<const std::byte>>;

TEST(OutOfMemory, AHeaderKeepsTheBodyItHasUntilThereIsAnother) {
  const google::protobuf::Descriptor* const header_type = wire::Header::descriptor();
  const google::protobuf::OneofDescriptor* const bodies = header_type->FindOneofByName("body");
  for (int i = 0; i < header_type->field_count(); ++i) {
    const int field = header_type->field(i)->number();
    const bool is_body = header_type->field(i)->containing_oneof() == bodies;
    EXPECT_EQ(IsBody(field), is_body) << header_type->field(i)->name();
    if (!is_body) continue;
    const auto body = static_cast<wire::Header::BodyCase>(field);
    wire::Header header;
    header.mutable_leave()->set_from_round(7);
    EXPECT_TRUE(RunsOut(0, [&] { GiveBody(body, &header); }));
    EXPECT_EQ(header.leave().from_round(), 7u);
    GiveBody(body, &header);
    EXPECT_EQ(header.body_case(), body);
    EXPECT_EQ(header.leave().from_round(), 0u);
  }
  wire::Header header;
  header.mutable_leave();
  GiveBody(wire::Header::BODY_NOT_SET, &header);
  EXPECT_EQ(header.body_case(), wire::Header::BODY_NOT_SET);
}

TEST(OutOfMemory, AnyAllocationOfAParsedFrameMayFail) {
  for (const GoldenMessage& golden : GoldenMessages()) {
    const Frame frame = BuildFrame(golden.message, kDefaultLimits).value();
    Spans parts;
    for (const Payload& part : frame) parts.push_back(part.bytes());
    bool parsed = false;
    for (int n = 0; !parsed; ++n) {
      const bool ran_out = RunsOut(n, [&] { parsed = ParseFrame(parts, kDefaultLimits).ok(); });
      EXPECT_NE(ran_out, parsed) << golden.name << " allocation " << n;
      ASSERT_LT(n, 1000);
    }
  }
}

TEST(OutOfMemory, OfTwoBodiesNoneIsParsed) {
  wire::Header one, other;
  one.mutable_push()->add_items()->set_round(3);
  other.mutable_pull()->add_items()->set_min_version(3);
  Message message;
  message.header = one;
  const Frame frame = BuildFrame(std::move(message), kDefaultLimits).value();
  const std::span<const std::byte> head = frame[0].bytes();
  const auto parse = [&](const std::string& more) {
    std::string bytes(reinterpret_cast<const char*>(head.data()), head.size());
    bytes += more;
    const Spans parts = {std::as_bytes(std::span<const char>(bytes))};
    return ParseFrame(parts, kDefaultLimits);
  };
  EXPECT_THAT(std::string(parse(other.SerializeAsString()).status().message()),
              HasSubstr("the header holds two bodies, 23 and 25"));
  // When the same body comes again, protobuf merges it into the first.
  const auto longer = parse(one.SerializeAsString());
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->push().items_size(), 2);
  // Field 25 as a number is not a body. It is an unknown field.
  EXPECT_TRUE(parse("\xc8\x01\x05").ok());
  EXPECT_FALSE(parse("\xc8\x01").ok());
}

}  // namespace
}  // namespace slimps
