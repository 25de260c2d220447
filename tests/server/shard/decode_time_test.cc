// SPDX-License-Identifier: Apache-2.0
// The decode times that ShardState measures for pushes that ask for them.
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "server/shard/shard_state.h"
#include "tests/compress/test_data.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Moves on by a microsecond at each reading.
class TickingClock final : public Clock {
 public:
  SteadyTime Now() const override { return now_ += absl::Microseconds(1); }

  absl::Time WallNow() const override { return absl::UnixEpoch(); }

 private:
  mutable SteadyTime now_ = SteadyTime();
};

struct Pushed {
  wire::Format format = wire::ABSENT;
  Payload payload;
};

constexpr size_t kElements = 5;

// Returns the decode times in the answers to pushes of rounds 1, 2, ...
std::vector<uint64_t> DecodeTimes(const std::vector<Pushed>& pushes) {
  TickingClock clock;
  ShardState state(MakeOptimizer({}), &clock);
  ShardItems items{.origin = {.worker = 0}};
  InitWork init;
  init.id = MakeId("w", 0, 1);
  init.spec.key = Key("w").id();
  init.spec.name = "s:w";
  init.spec.elements = kElements;
  items.inits.push_back(std::move(init));
  for (size_t i = 0; i < pushes.size(); ++i) {
    // Each round is pushed three times: without asking for the time, asking for it, and repeated.
    for (const bool profile : {false, true, true}) {
      PushWork push;
      *push.item.mutable_id() = MakeId("w", 0, 1);
      push.item.set_round(i + 1);
      push.item.set_elements(kElements);
      push.item.set_format(pushes[i].format);
      push.item.set_profile(profile);
      push.payload = pushes[i].payload;
      items.pushes.push_back(std::move(push));
    }
  }
  state.HandleItems(std::move(items));
  std::vector<uint64_t> times;
  for (const Reply& reply : state.TakeReplies()) {
    for (const auto& item : reply.message.header.push_reply().items()) {
      EXPECT_EQ(item.status().code(), 0) << item.status().message();
      times.push_back(item.decode_ns());
    }
  }
  return times;
}

// The payload of 0, 0.5, 0, 0, -2: the worked example of compress/format/sparse.h.
Payload SparsePayload() {
  const std::vector<std::byte> bytes = BytesFromHex(
      "B8000000 05000000 02000000 00000000 00000000 00000000 0000003F 000000C0 014000");
  return Payload::Copy(bytes);
}

TEST(DecodeTime, IsReportedForCompressedPushesThatAskForIt) {
  EXPECT_THAT(DecodeTimes({{wire::LEVELS, SignPayload(RandomValues(kElements, 1), 1)},
                           {wire::SPARSE, SparsePayload()}}),
              ElementsAre(0, 1000, 1000, 0, 1000, 1000));
}

TEST(DecodeTime, OfRawAndAbsentPushesIsNoneBeyondTheSum) {
  EXPECT_THAT(DecodeTimes({{wire::RAW_F32, RawPayload(RandomValues(kElements, 1))},
                           {wire::ABSENT, Payload()}}),
              Each(0));
}

}  // namespace
}  // namespace slimps
