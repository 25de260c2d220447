// SPDX-License-Identifier: Apache-2.0
// Limits on what a stranger can make a daemon do, keep or say. They hold whatever the stranger
// sends and however little it reads.
#include "proto/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/strangers/job_fixture.h"

namespace slimps {
namespace {

constexpr absl::Duration kPatience = absl::Milliseconds(300);
constexpr size_t kMiB = size_t{1} << 20;

using LimitsTest = JobFixture;

// Returns a pull with as many empty items as fit in `bytes`.
wire::Header PullOfBytes(size_t bytes) {
  wire::Header header;
  header.set_job_id("job4711");
  header.mutable_sender()->set_role(wire::WORKER);
  header.set_incarnation(1);
  header.mutable_pull();
  const size_t items = std::min<size_t>(bytes / 4, 16384);
  for (size_t i = 0; i < items; ++i) {
    header.mutable_pull()->add_items()->set_min_version(1 + bytes % 2);
  }
  return header;
}

TEST_F(LimitsTest, AMessageOfManyItemsGetsOneShortErrorOrNone) {
  for (const size_t bytes : {size_t{80'000}, size_t{30'000}, size_t{3'000}}) {
    Stranger stranger;
    ASSERT_TRUE(stranger.Connect(server_address_));
    ASSERT_TRUE(stranger.Tell(PullOfBytes(bytes)));
    const std::vector<wire::Header> heard = stranger.HearAll(kPatience);
    EXPECT_LE(heard.size(), 1u);
    EXPECT_LE(stranger.client().bytes_received(), size_t{100});
    EXPECT_EQ(heard.size(), bytes < 32'768 ? 1u : 0u);
  }
  ExpectTheJobLives();
}

TEST_F(LimitsTest, WhoNeverReadsPinsNoMemory) {
  const size_t before = server_->resident_bytes();
  Stranger stranger;
  ASSERT_TRUE(stranger.Connect(server_address_));
  bool open = true;
  for (int i = 0; i < 300 && open; ++i) open = stranger.Tell(PullOfBytes(30'000));
  for (int i = 0; i < 100'000 && open; ++i) open = stranger.Tell(PullOfBytes(0));
  // The answer to another client shows that the server has read all of this.
  Stranger other;
  ASSERT_TRUE(other.Connect(server_address_));
  ASSERT_TRUE(other.Tell(PullOfBytes(4)));
  EXPECT_TRUE(other.Hear(kLong).has_value());
  EXPECT_LT(server_->resident_bytes(), before + 48 * kMiB);
  ExpectTheJobLives();
}

TEST_F(LimitsTest, AMessageWithoutEndIsCutOff) {
  for (const std::string& address : {scheduler_address_, server_address_}) {
    Stranger stranger;
    ASSERT_TRUE(stranger.Connect(address));
    const std::string part(8192, 'x');
    size_t sent = 0;
    while (sent < 512 * kMiB && stranger.client().SendUnfinished(part)) sent += part.size();
    EXPECT_LT(sent, 512 * kMiB) << address;
  }
  ExpectTheJobLives();
}

TEST_F(LimitsTest, SilentConnectionsAreNoMoreThanThereIsRoomFor) {
  for (const std::string& address : {scheduler_address_, server_address_}) {
    Stranger oldest;
    ASSERT_TRUE(oldest.Connect(address));
    std::vector<std::unique_ptr<Stranger>> strangers;
    for (int i = 0; i < 260; ++i) {
      strangers.push_back(std::make_unique<Stranger>());
      ASSERT_TRUE(strangers.back()->Connect(address)) << i;
    }
    EXPECT_TRUE(oldest.client().IsClosedWithin(kLong));
    ASSERT_TRUE(strangers.back()->Tell(PullOfBytes(4)));
    EXPECT_TRUE(strangers.back()->Hear(kLong).has_value());
    ExpectTheJobLives();
  }
}

TEST_F(LimitsTest, LogsAreWrittenByRate) {
  Stranger stranger;
  ASSERT_TRUE(stranger.Connect(scheduler_address_));
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(stranger.client().Send({"rubbish"}));
  ASSERT_TRUE(stranger.Tell(PullOfBytes(4)));
  EXPECT_TRUE(stranger.Hear(kLong).has_value());
  const std::string log = scheduler_->Log();
  EXPECT_LT(std::ranges::count(log, '\n'), 100) << log.substr(0, 2000);
  EXPECT_NE(log.find("bad frame"), std::string::npos) << log;
  ExpectTheJobLives();
}

}  // namespace
}  // namespace slimps
