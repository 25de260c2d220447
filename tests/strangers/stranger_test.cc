// SPDX-License-Identifier: Apache-2.0
// A stranger that knows the protocol can do nothing to a job. Each test ends with the job's own
// end, in order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/incarnation.h"
#include "proto/limits.h"
#include "tests/strangers/job_fixture.h"

namespace slimps {
namespace {

// The time that an answer may take. A test that expects no answer waits this long too.
constexpr absl::Duration kPatience = absl::Milliseconds(300);

using StrangerTest = JobFixture;

// Returns every message there is, as worker 0 would send it, but without worker 0's secret
// incarnation.
std::vector<wire::Header> EveryVerb(const wire::Header& own) {
  std::vector<wire::Header> said;
  const google::protobuf::Descriptor* header = wire::Header::descriptor();
  for (int i = 0; i < header->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = header->field(i);
    if (field->containing_oneof() == nullptr) continue;
    wire::Header guess = own;
    SetIncarnation({.high = 1, .low = 2}, &guess);
    guess.GetReflection()->MutableMessage(&guess, field);
    if (guess.has_part()) {
      guess.mutable_part()->set_parts(1);
      guess.mutable_part()->set_piece("?");
    }
    said.push_back(guess);
    guess.set_job_id("");
    said.push_back(guess);
    guess.clear_sender();
    guess.clear_membership_epoch();
    said.push_back(guess);
  }
  return said;
}

TEST_F(StrangerTest, LearnsNothingFromWhatItIsAnswered) {
  const Incarnation own = IncarnationOf(OwnHeader());
  for (const std::string& address : {scheduler_address_, server_address_}) {
    int answers = 0;
    for (const wire::Header& said : EveryVerb(OwnHeader())) {
      Stranger stranger;
      ASSERT_TRUE(stranger.Connect(address));
      ASSERT_TRUE(stranger.Tell(said));
      for (const wire::Header& heard : stranger.HearAll(absl::Milliseconds(20))) {
        ++answers;
        EXPECT_TRUE(heard.has_error() || heard.has_ack()) << heard.DebugString();
        EXPECT_TRUE(heard.job_id().empty()) << heard.DebugString();
        EXPECT_FALSE(IncarnationOf(heard).is_set()) << heard.DebugString();
        EXPECT_EQ(heard.membership_epoch(), 0u);
        const std::string text = heard.DebugString();
        for (const std::string& secret :
             {std::string("job4711"), server_address_, absl::StrCat(absl::Hex(own.high)),
              absl::StrCat(absl::Hex(own.low)), absl::StrCat(own.high), absl::StrCat(own.low)}) {
          EXPECT_EQ(text.find(secret), std::string::npos) << text;
        }
      }
      EXPECT_LE(stranger.client().bytes_received(), 10 * stranger.client().bytes_sent())
          << said.DebugString();
    }
    EXPECT_GT(answers, 0) << address;
  }
  ExpectTheJobLives();
}

TEST_F(StrangerTest, EndsNoJobByAGoodbyeOrAnError) {
  for (const std::string& address : {scheduler_address_, server_address_}) {
    Stranger stranger;
    ASSERT_TRUE(stranger.Connect(address));
    for (const wire::Header& said : EveryVerb(OwnHeader())) {
      if (stranger.Tell(said)) continue;
      ASSERT_TRUE(stranger.Connect(address));
    }
    stranger.HearAll(kPatience);
  }
  ExpectTheJobLives();
}

// This attack once ended a job: one message to learn the incarnation, one message to end the job.
TEST_F(StrangerTest, ShowingWhatItWasToldEndsNoJob) {
  std::vector<wire::Header> told;
  for (const std::string& address : {scheduler_address_, server_address_}) {
    Stranger stranger;
    ASSERT_TRUE(stranger.Connect(address));
    wire::Header said = OwnHeader();
    SetIncarnation({.high = 1, .low = 2}, &said);
    said.mutable_pull()->add_items();
    ASSERT_TRUE(stranger.Tell(said));
    for (wire::Header& heard : stranger.HearAll(kPatience)) told.push_back(std::move(heard));
  }
  ASSERT_FALSE(told.empty());
  Stranger stranger;
  ASSERT_TRUE(stranger.Connect(scheduler_address_));
  for (const wire::Header& heard : told) {
    wire::Header goodbye = OwnHeader();
    SetIncarnation(IncarnationOf(heard), &goodbye);
    *goodbye.mutable_sender() = heard.sender();
    goodbye.mutable_goodbye();
    ASSERT_TRUE(stranger.Tell(goodbye));
  }
  stranger.HearAll(kPatience);
  ExpectTheJobLives();
}

// Assumes that the incarnation has leaked all the same.
TEST_F(StrangerTest, WithAMembersIncarnationTakesNoLivingMembersConnection) {
  Stranger stranger;
  ASSERT_TRUE(stranger.Connect(scheduler_address_));
  for (int attempt = 0; attempt < 3; ++attempt) {
    wire::Header goodbye = OwnHeader();
    goodbye.mutable_goodbye();
    ASSERT_TRUE(stranger.Tell(goodbye));
    wire::Header error = OwnHeader();
    error.mutable_error()->mutable_status()->set_code(13);
    ASSERT_TRUE(stranger.Tell(error));
    wire::Header registration = OwnHeader();
    registration.mutable_register_()->set_role(wire::WORKER);
    registration.mutable_register_()->set_num_workers(2);
    registration.mutable_register_()->set_num_servers(1);
    ASSERT_TRUE(stranger.Tell(registration));
    EXPECT_TRUE(stranger.HearAll(kPatience).empty());
  }
  ExpectTheJobLives();
  EXPECT_TRUE(stranger.HearAll(kPatience).empty()) << "it heard what was a member's";
}

TEST_F(StrangerTest, WithAMembersRoutingIdIsHeardForNobody) {
  second_.client().Close();
  ASSERT_TRUE(second_.Connect(scheduler_address_, "second"));
  EXPECT_TRUE(SecondIsEchoed());
  Stranger stranger;
  // ZeroMQ ignores a client that names a routing id in use.
  ASSERT_TRUE(stranger.Connect(scheduler_address_, "second"));
  wire::Header goodbye = SecondHeader(1);
  goodbye.set_incarnation(1);
  goodbye.mutable_goodbye();
  ASSERT_TRUE(stranger.Tell(goodbye));
  ExpectTheJobLives();
  EXPECT_TRUE(stranger.HearAll(kPatience).empty());
}

TEST_F(StrangerTest, GetsNoRankOfAJobThatIsComplete) {
  for (const int32_t wanted : {-1, 0, 1}) {
    Stranger stranger;
    ASSERT_TRUE(stranger.Connect(scheduler_address_));
    wire::Header registration = OwnHeader();
    SetIncarnation(DrawIncarnation(), &registration);
    registration.mutable_register_()->set_role(wire::WORKER);
    registration.mutable_register_()->set_wanted_rank(wanted);
    registration.mutable_register_()->set_num_workers(2);
    registration.mutable_register_()->set_num_servers(1);
    ASSERT_TRUE(stranger.Tell(registration));
    const std::optional<wire::Header> refused = stranger.Hear(kLong);
    ASSERT_TRUE(refused.has_value());
    EXPECT_TRUE(refused->has_error()) << refused->DebugString();
  }
  ExpectTheJobLives();
}

TEST_F(StrangerTest, IsToldApartFromAMemberThatReallyReconnects) {
  EXPECT_TRUE(SecondIsEchoed());
  for (int times = 0; times < 3; ++times) {
    second_.client().Close();
    ASSERT_TRUE(second_.Connect(scheduler_address_));
    EXPECT_TRUE(SecondIsEchoed()) << "its place is its own still";
  }
  ExpectTheJobLives();
}

}  // namespace
}  // namespace slimps
