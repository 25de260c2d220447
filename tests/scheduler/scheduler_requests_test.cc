// SPDX-License-Identifier: Apache-2.0
// Requests of the nodes of a running job: barriers, placement, threshold decisions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/policy/measured_rounds.h"
#include "proto/base/hash.h"
#include "tests/scheduler/scheduler_state_fixture.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

class SchedulerRequestsTest : public SchedulerStateTest {
 protected:
  static wire::Header BarrierOf(uint64_t node) {
    wire::Header barrier = HeaderOf(node);
    barrier.mutable_barrier()->set_name("b");
    barrier.mutable_barrier()->set_ticket(1);
    barrier.mutable_barrier()->set_group(wire::WORKER);
    return barrier;
  }

  // Declares key "w" in partitions of at most ten elements.
  static wire::Header DeclarationOf(uint64_t node, int64_t elements) {
    wire::Header declare = HeaderOf(node);
    declare.mutable_declare_keys()->set_partition_elements(10);
    wire::KeyInfo* key = declare.mutable_declare_keys()->add_keys();
    key->set_name("s:w");
    key->set_key(HashText("s:w"));
    key->add_shape(elements);
    return declare;
  }
};

TEST_F(SchedulerRequestsTest, BarriersAreReleasedToThoseWhoCame) {
  RegisterAll();
  wire::Header barrier = BarrierOf(kWorker0);
  EXPECT_TRUE(Tell(kWorker0, barrier).empty());
  barrier.set_incarnation(kWorker1);
  EXPECT_EQ(Tell(kWorker1, barrier)[0].barrier_release().name(), "b");
  EXPECT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_TRUE(Others(kServer).empty());
}

TEST_F(SchedulerRequestsTest, ABarrierBeforeTheRosterIsCompleteIsRefused) {
  Register(kWorker0);
  EXPECT_EQ(Tell(kWorker0, BarrierOf(kWorker0))[0].barrier_release().status().code(), 9u);
}

TEST_F(SchedulerRequestsTest, LeavingReleasesBarriersAndDeclarationsThatWaitForTheLeaver) {
  RegisterAll();
  Tell(kWorker0, BarrierOf(kWorker0));
  wire::Header declare = DeclarationOf(kWorker0, 3);
  EXPECT_TRUE(Tell(kWorker0, declare).empty());
  Goodbye(kWorker1);
  const auto told = Others(kWorker0);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].placement().status().code(), 9u);
  EXPECT_EQ(told[0].request_id(), declare.request_id());
  EXPECT_EQ(told[1].barrier_release().status().code(), 0u);
}

TEST_F(SchedulerRequestsTest, APlacementAnswersEveryWorkersDeclaration) {
  RegisterAll();
  wire::Header declare = DeclarationOf(kWorker0, 25);
  EXPECT_TRUE(Tell(kWorker0, declare).empty());
  wire::Header from_other = declare;
  from_other.set_incarnation(kWorker1);
  from_other.set_request_id(7);
  const auto answer = Tell(kWorker1, from_other);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].request_id(), 7u);
  EXPECT_EQ(answer[0].placement().keys(0).partitions_size(), 3);
  ASSERT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_EQ(Others(kWorker0)[0].request_id(), declare.request_id());
  declare.set_incarnation(kServer);
  EXPECT_THAT(Tell(kServer, declare)[0].error().status().message(), HasSubstr("only workers"));
}

TEST_F(SchedulerRequestsTest, WorkersThatCompressInDifferentWaysAreToldWhoDoesWhat) {
  RegisterAll();
  wire::Header declare = DeclarationOf(kWorker0, 25);
  declare.mutable_declare_keys()->set_compression("1bit");
  Tell(kWorker0, declare);
  wire::Header from_other = DeclarationOf(kWorker1, 25);
  from_other.mutable_declare_keys()->set_compression("none");
  const auto answer = Tell(kWorker1, from_other);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].placement().differing_compression(), "worker 0: 1bit; worker 1: none");
  ASSERT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_EQ(Others(kWorker0)[0].placement().differing_compression(),
            "worker 0: 1bit; worker 1: none");
}

TEST_F(SchedulerRequestsTest, DeclarationsThatWaitAreBounded) {
  RegisterAll();
  for (int i = 0; i < 64; ++i) {
    EXPECT_TRUE(Tell(kWorker0, DeclarationOf(kWorker0, 25)).empty());
  }
  wire::Header declare = HeaderOf(kWorker0);
  declare.mutable_declare_keys()->set_partition_elements(10);
  EXPECT_EQ(Tell(kWorker0, declare)[0].error().status().code(), 8u);
}

TEST_F(SchedulerRequestsTest, TheThresholdDecisionGoesToAllWorkersOnce) {
  RegisterAll();
  wire::Header report = HeaderOf(kWorker0);
  report.mutable_threshold_report()->set_codec("1bit");
  report.mutable_threshold_report()->set_ready_round(21);
  EXPECT_EQ(Tell(kWorker0, report)[0].body_case(), wire::Header::kAck);
  report.set_incarnation(kWorker1);
  const auto told = Tell(kWorker1, report);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].codec_map().from_round(), 22u);
  EXPECT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_TRUE(Others(kServer).empty());
  const auto again = Tell(kWorker1, report);  // the broadcast was lost
  EXPECT_EQ(again[1].codec_map().version(), 1u);
  EXPECT_TRUE(Others(kWorker0).empty());
}

TEST_F(SchedulerRequestsTest, LaterThresholdDecisionsGoToAllWorkersAndAgainToWhoeverMissedThem) {
  RegisterAll();
  wire::Header report = HeaderOf(kWorker0);
  report.mutable_threshold_report()->set_codec("1bit");
  report.mutable_threshold_report()->set_ready_round(21);
  Tell(kWorker0, report);
  report.set_incarnation(kWorker1);
  Tell(kWorker1, report);
  report.mutable_threshold_report()->set_generation(3);
  report.mutable_threshold_report()->set_ready_round(34);
  EXPECT_EQ(Tell(kWorker1, report).size(),
            1u);  // only the acknowledgement: worker 0 has not reported
  EXPECT_EQ(Tell(kWorker1, report).size(), 1u);
  report.set_incarnation(kWorker0);
  const auto told = Tell(kWorker0, report);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].codec_map().version(), 4u);
  EXPECT_EQ(told[1].codec_map().from_round(), 38u);
  ASSERT_EQ(Others(kWorker1).size(), 1u);
  EXPECT_EQ(Others(kWorker1)[0].codec_map().version(), 4u);
  EXPECT_TRUE(Others(kServer).empty());
  report.set_incarnation(kWorker1);
  const auto again = Tell(kWorker1, report);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[1].codec_map().version(), 4u);
  EXPECT_TRUE(Others(kWorker0).empty());
}

TEST_F(SchedulerRequestsTest, AWorkerWhoseLastReportCameReleasesADecision) {
  RegisterAll();
  wire::Header report = HeaderOf(kWorker0);
  report.mutable_threshold_report()->set_codec("1bit");
  report.mutable_threshold_report()->set_ready_round(21);
  EXPECT_EQ(Tell(kWorker0, report).size(), 1u);
  wire::Header last = HeaderOf(kWorker1);
  last.mutable_threshold_report()->set_generation(MeasuredRounds::kLastGeneration);
  const auto told = Tell(kWorker1, last);
  ASSERT_EQ(told.size(), 2u);  // it is still in the job
  EXPECT_EQ(told[1].codec_map().version(), 1u);
  ASSERT_EQ(Others(kWorker0).size(), 1u);
  EXPECT_EQ(Others(kWorker0)[0].codec_map().version(), 1u);
}

}  // namespace
}  // namespace slimps
