// SPDX-License-Identifier: Apache-2.0
#include "scheduler/barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Node = BarrierTable::Node;

const Node kServer0{wire::SERVER, 0};
const Node kWorker0{wire::WORKER, 0};
const Node kWorker1{wire::WORKER, 1};

wire::Barrier Visit(const std::string& name, uint64_t ticket, std::vector<double> values = {},
                    wire::Role group = wire::WORKER) {
  wire::Barrier barrier;
  barrier.set_name(name);
  barrier.set_ticket(ticket);
  barrier.set_group(group);
  barrier.mutable_values()->Add(values.begin(), values.end());
  return barrier;
}

class BarrierTest : public testing::Test {
 protected:
  std::vector<BarrierTable::Release> Arrive(const Node& node, const wire::Barrier& barrier) {
    auto releases = table_.Arrive(node, barrier);
    EXPECT_TRUE(releases.ok()) << releases.status();
    return releases.ok() ? *releases : std::vector<BarrierTable::Release>();
  }
  BarrierTable table_{{.num_workers = 2, .num_servers = 1, .max_names = 3, .max_open = 3}};
};

TEST_F(BarrierTest, OpensWhenTheLastOfTheGroupComes) {
  EXPECT_TRUE(Arrive(kWorker1, Visit("b", 1)).empty());
  const auto releases = Arrive(kWorker0, Visit("b", 1));
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_THAT(releases[0].to, ElementsAre(kWorker0, kWorker1));
  EXPECT_EQ(releases[0].message.name(), "b");
  EXPECT_EQ(releases[0].message.ticket(), 1u);
  EXPECT_EQ(releases[0].message.status().code(), 0u);
}

TEST_F(BarrierTest, ASumThatOverflowsIsAStatusNotAMessageThatNobodyMaySend) {
  EXPECT_TRUE(Arrive(kWorker1, Visit("b", 1, {1, 1.5e308})).empty());
  const auto releases = Arrive(kWorker0, Visit("b", 1, {2, 1.5e308}));
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_EQ(releases[0].message.status().code(), static_cast<int>(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(releases[0].message.status().message(), HasSubstr("value 1"));
  EXPECT_TRUE(releases[0].message.sums().empty());
}

TEST_F(BarrierTest, AGroupOfEveryoneWaitsForServersToo) {
  EXPECT_TRUE(Arrive(kWorker0, Visit("b", 1, {}, wire::ROLE_UNSPECIFIED)).empty());
  EXPECT_TRUE(Arrive(kWorker1, Visit("b", 1, {}, wire::ROLE_UNSPECIFIED)).empty());
  EXPECT_EQ(Arrive(kServer0, Visit("b", 1, {}, wire::ROLE_UNSPECIFIED)).size(), 1u);
}

TEST_F(BarrierTest, ARepeatedVisitCountsOnce) {
  EXPECT_TRUE(Arrive(kWorker0, Visit("b", 1)).empty());
  EXPECT_TRUE(Arrive(kWorker0, Visit("b", 1)).empty());
  EXPECT_EQ(Arrive(kWorker1, Visit("b", 1)).size(), 1u);
}

TEST_F(BarrierTest, WhoMissedTheReleaseGetsItAgainAlone) {
  Arrive(kWorker0, Visit("b", 1, {2}));
  Arrive(kWorker1, Visit("b", 1, {3}));
  const auto again = Arrive(kWorker1, Visit("b", 1, {3}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_THAT(again[0].to, ElementsAre(kWorker1));
  EXPECT_THAT(again[0].message.sums(), ElementsAre(5));
}

TEST_F(BarrierTest, TheNextVisitIsAnotherBarrier) {
  Arrive(kWorker0, Visit("b", 1));
  Arrive(kWorker1, Visit("b", 1));
  EXPECT_TRUE(Arrive(kWorker0, Visit("b", 2)).empty());
  EXPECT_EQ(Arrive(kWorker1, Visit("b", 2)).size(), 1u);
}

TEST_F(BarrierTest, OneThatOnlyOpenedIsAnsweredAgainWhateverItsNumber) {
  constexpr uint64_t kTickets = 1000;
  for (uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    Arrive(kWorker0, Visit("b", ticket));
    Arrive(kWorker1, Visit("b", ticket));
  }
  for (uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    const auto again = Arrive(kWorker1, Visit("b", ticket));
    ASSERT_EQ(again.size(), 1u) << ticket;
    EXPECT_THAT(again[0].to, ElementsAre(kWorker1));
    EXPECT_EQ(again[0].message.ticket(), ticket);
    EXPECT_EQ(again[0].message.newest(), kTickets);
    EXPECT_EQ(again[0].message.status().code(), 0u);
  }
}

TEST_F(BarrierTest, SumsAreRememberedByTheirBytesAndNotByTheirNumber) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  constexpr size_t kNumbers = 1000;
  BarrierTable table({.num_workers = 1, .num_servers = 1, .max_remembered_bytes = kMostBytes});
  const auto visit = [&](uint64_t ticket, size_t count) {
    const std::vector<double> values(count, static_cast<double>(ticket));
    return table.Arrive(kWorker0, Visit("b", ticket, values));
  };
  constexpr uint64_t kSmall = 500, kLarge = kMostBytes / (kNumbers * sizeof(double)) + 1;
  for (uint64_t ticket = 1; ticket <= kSmall; ++ticket) ASSERT_TRUE(visit(ticket, 1).ok());
  for (uint64_t ticket = 1; ticket <= kLarge; ++ticket) {
    ASSERT_TRUE(visit(kSmall + ticket, kNumbers).ok());
  }
  ASSERT_TRUE(visit(kSmall + kLarge + 1, 1).ok());
  for (uint64_t ticket = 1; ticket <= kSmall; ++ticket) {
    const auto again = visit(ticket, 1);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ((*again)[0].message.sums(0), static_cast<double>(ticket));
  }
  const absl::Status forgotten = visit(kSmall + kLarge, kNumbers).status();
  EXPECT_EQ(forgotten.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(forgotten.message()), HasSubstr("sums of this one are not kept"));
}

TEST_F(BarrierTest, OnceAllHavePushedALittleMoreIsRemembered) {
  uint64_t ticket = 0;
  const auto sum = [&] {
    Arrive(kWorker0, Visit("b", ++ticket, {1}));
    Arrive(kWorker1, Visit("b", ticket, {1}));
  };
  sum();
  table_.NoteAllHavePushed();
  const size_t fit =
      BarrierTable::kBytesOfTraining / BarrierTable::BytesToRemember(Visit("b", 1, {1}));
  for (size_t i = 0; i < fit + 2; ++i) sum();
  EXPECT_TRUE(table_.Arrive(kWorker1, Visit("b", 1, {1})).ok());
  EXPECT_TRUE(table_.Arrive(kWorker1, Visit("b", 1 + fit, {1})).ok());
  EXPECT_EQ(table_.Arrive(kWorker1, Visit("b", 2 + fit, {1})).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(table_.Arrive(kWorker1, Visit("b", ticket, {1})).ok()) << "the newest";
}

TEST_F(BarrierTest, NamesDoNotMix) {
  EXPECT_TRUE(Arrive(kWorker0, Visit("a", 1)).empty());
  EXPECT_TRUE(Arrive(kWorker1, Visit("b", 1)).empty());
  EXPECT_EQ(Arrive(kWorker0, Visit("b", 1)).size(), 1u);
}

TEST_F(BarrierTest, ValuesAreSummedInRankOrderWhateverTheArrival) {
  // 1e16 + 1 loses the 1, so the sum shows the order of addition.
  BarrierTable table({.num_workers = 3, .num_servers = 1});
  ASSERT_TRUE(table.Arrive({wire::WORKER, 2}, Visit("b", 1, {-1e16})).ok());
  ASSERT_TRUE(table.Arrive({wire::WORKER, 1}, Visit("b", 1, {1})).ok());
  const auto releases = table.Arrive({wire::WORKER, 0}, Visit("b", 1, {1e16}));
  ASSERT_TRUE(releases.ok());
  EXPECT_THAT((*releases)[0].message.sums(), ElementsAre((1e16 + 1) + -1e16));
}

TEST_F(BarrierTest, DifferentNumbersOfValuesAreAnErrorForAll) {
  Arrive(kWorker0, Visit("b", 1, {1, 2}));
  const auto releases = Arrive(kWorker1, Visit("b", 1, {1}));
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_THAT(releases[0].to, ElementsAre(kWorker0, kWorker1));
  EXPECT_EQ(releases[0].message.status().code(), 3u);
  EXPECT_THAT(releases[0].message.status().message(), HasSubstr("worker 1"));
  EXPECT_EQ(releases[0].message.sums_size(), 0);
}

TEST_F(BarrierTest, DifferentGroupsAreAnErrorAtOnce) {
  Arrive(kWorker0, Visit("b", 1, {}, wire::ROLE_UNSPECIFIED));
  const auto releases = Arrive(kWorker1, Visit("b", 1));
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_EQ(releases[0].message.status().code(), 3u);
}

wire::Barrier GivesUp(wire::Barrier barrier) {
  barrier.set_gave_up_after_ms(60'000);
  return barrier;
}

TEST_F(BarrierTest, AGivenUpBarrierIsOverForAllAndALateVisitorLearnsWho) {
  BarrierTable table({.num_workers = 3, .num_servers = 1});
  ASSERT_TRUE(table.Arrive(kWorker0, Visit("b", 1)).ok());
  ASSERT_TRUE(table.Arrive(kWorker1, Visit("b", 1)).ok());
  const auto releases = table.Arrive(kWorker1, GivesUp(Visit("b", 1)));
  ASSERT_TRUE(releases.ok());
  ASSERT_EQ(releases->size(), 1u);
  EXPECT_THAT((*releases)[0].to, ElementsAre(kWorker0, kWorker1));
  EXPECT_EQ((*releases)[0].message.status().message(),
            "barrier \"b\" number 1: worker 1 waited 1m for worker 2 and gave up");
  EXPECT_EQ((*releases)[0].message.newest(), 1u);
  const absl::Status late = table.Arrive({wire::WORKER, 2}, Visit("b", 1)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(late.message(),
            "barrier \"b\" number 1: worker 2 comes too late: worker 1 waited for 1m and gave up");
  const auto again = table.Arrive(kWorker0, Visit("b", 1));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)[0].message.status().code(), 4u) << "of those who waited, for whom it was lost";
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(table.Arrive({wire::WORKER, rank}, Visit("b", 2)).ok());
  }
  EXPECT_EQ(table.Arrive({wire::WORKER, 2}, Visit("b", 2))->size(), 1u);
}

TEST_F(BarrierTest, AVisitorWhoIsSeveralBarriersLateLearnsBothNumbers) {
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) {
    EXPECT_EQ(Arrive(kWorker0, GivesUp(Visit("b", ticket))).size(), 1u);
  }
  const absl::Status late = table_.Arrive(kWorker1, Visit("b", 1)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("number 1: worker 1 comes too late, number 3 is over too"));
  EXPECT_THAT(std::string(late.message()), HasSubstr("worker 0 waited 1m for worker 1"));
  EXPECT_EQ(table_.NewestOver("b"), 3u);
  ASSERT_EQ(table_.Tickets().size(), 1u);
  EXPECT_EQ(table_.Tickets()[0].name(), "b");
  EXPECT_EQ(table_.Tickets()[0].ticket(), 3u);
}

TEST_F(BarrierTest, AWorkerThatComesAgainFromTheFirstTicketOnGetsTheSameSums) {
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) {
    Arrive(kWorker0, Visit("b", ticket, {2}));
    Arrive(kWorker1, Visit("b", ticket, {static_cast<double>(ticket)}));
  }
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) {
    const auto again = Arrive(kWorker1, Visit("b", ticket, {7}));
    ASSERT_EQ(again.size(), 1u);
    EXPECT_THAT(again[0].to, ElementsAre(kWorker1));
    EXPECT_THAT(again[0].message.sums(), ElementsAre(2.0 + static_cast<double>(ticket)));
  }
}

TEST_F(BarrierTest, AnEarlierTicketIsNotAnsweredForAnotherPurpose) {
  wire::Barrier visit = Visit("b", 1);
  visit.set_purpose("the loss");
  Arrive(kWorker0, visit);
  Arrive(kWorker1, visit);
  Arrive(kWorker0, Visit("b", 2));
  Arrive(kWorker1, Visit("b", 2));
  const absl::Status refused = table_.Arrive(kWorker1, Visit("b", 1)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("which was for the loss"));
}

TEST_F(BarrierTest, WhoComesAgainMayGiveAnotherOptimizerToTheSameCall) {
  wire::Barrier visit = Visit("b", 1, {1});
  visit.set_purpose("setting the optimizer: learning_rate: 0.1");
  Arrive(kWorker0, visit);
  Arrive(kWorker1, visit);
  Arrive(kWorker0, Visit("b", 2));
  Arrive(kWorker1, Visit("b", 2));
  visit.set_purpose("setting the optimizer: learning_rate: 0.05");
  EXPECT_THAT(Arrive(kWorker1, visit)[0].message.sums(), ElementsAre(2));
}

TEST_F(BarrierTest, WhoGivesUpWhatHasOpenedGetsTheSum) {
  Arrive(kWorker0, Visit("b", 1, {2}));
  Arrive(kWorker1, Visit("b", 1, {3}));
  const auto releases = Arrive(kWorker0, GivesUp(Visit("b", 1, {2})));
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_THAT(releases[0].to, ElementsAre(kWorker0));
  EXPECT_THAT(releases[0].message.sums(), ElementsAre(5));
}

TEST_F(BarrierTest, WhoIsTheLastToComeOpensItEvenIfItGaveUp) {
  Arrive(kWorker0, Visit("b", 1, {2}));
  const auto releases = Arrive(kWorker1, GivesUp(Visit("b", 1, {3})));  // its own visit was lost
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_THAT(releases[0].message.sums(), ElementsAre(5));
}

TEST_F(BarrierTest, AVisitThatWasLostIsTakenWhenANewerBarrierHasOpened) {
  Arrive(kWorker0, Visit("b", 1));  // worker 1's visit was lost
  Arrive(kWorker0, Visit("b", 2));
  EXPECT_EQ(Arrive(kWorker1, Visit("b", 2)).size(), 1u);
  const auto releases = Arrive(kWorker1, Visit("b", 1));
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_THAT(releases[0].to, ElementsAre(kWorker0, kWorker1));
  EXPECT_EQ(releases[0].message.newest(), 2u);
  EXPECT_EQ(table_.NewestOver("b"), 2u);
}

TEST_F(BarrierTest, DifferentPurposesAreAnErrorAtOnceThatNamesBoth) {
  BarrierTable table({.num_workers = 3, .num_servers = 1});
  wire::Barrier loss = Visit("b", 1, {1});
  loss.set_purpose("the loss");
  wire::Barrier states = Visit("b", 1, {1});
  states.set_purpose("saving states");
  ASSERT_TRUE(table.Arrive(kWorker1, loss).ok());
  const auto releases = table.Arrive(kWorker0, states);
  ASSERT_TRUE(releases.ok());
  ASSERT_EQ(releases->size(), 1u);
  EXPECT_THAT((*releases)[0].to, ElementsAre(kWorker0, kWorker1));
  EXPECT_EQ((*releases)[0].message.status().message(),
            "barrier \"b\" number 1: worker 1 comes for the loss, group worker, with 1 values; "
            "expected as worker 0 comes: for saving states, group worker, with 1 values");
}

TEST_F(BarrierTest, NamesAndPurposesAreBounded) {
  EXPECT_EQ(table_.Arrive(kWorker0, Visit(std::string(257, 'x'), 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  wire::Barrier visit = Visit("b", 1);
  visit.set_purpose(std::string(1025, 'x'));
  EXPECT_EQ(table_.Arrive(kWorker0, visit).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BarrierTest, ANodeThatLeavesIsNotWaitedFor) {
  EXPECT_TRUE(Arrive(kWorker0, Visit("b", 1, {7})).empty());
  const auto releases = table_.Leave(kWorker1);
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_THAT(releases[0].to, ElementsAre(kWorker0));
  EXPECT_THAT(releases[0].message.sums(), ElementsAre(7));
  EXPECT_EQ(Arrive(kWorker0, Visit("b", 2)).size(), 1u);
}

TEST_F(BarrierTest, ANodeOutsideTheGroupIsRefused) {
  EXPECT_EQ(table_.Arrive(kServer0, Visit("b", 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.Arrive(kWorker0, Visit("b", 1, {}, wire::SCHEDULER)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BarrierTest, OpenBarriersAndNamesAreBounded) {
  for (const char* name : {"a", "b", "c"}) Arrive(kWorker0, Visit(name, 1));
  EXPECT_EQ(table_.Arrive(kWorker0, Visit("d", 1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  for (const char* name : {"a", "b", "c"}) Arrive(kWorker1, Visit(name, 1));
  EXPECT_EQ(table_.Arrive(kWorker0, Visit("d", 1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Arrive(kWorker0, Visit("a", 2)).empty());
}

}  // namespace
}  // namespace slimps
