// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/scheduler/watch/watch_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class WaitsTest : public testing::Test {
 protected:
  std::vector<Wait> Find() const {
    return FindWaits(view_, reports_, kAge, now_, {.decision_version = decision_version_});
  }
  // Returns the lines, with the time that each wait knows.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const Wait& wait : Find()) {
      if (wait.patience == absl::InfiniteDuration()) continue;
      lines.push_back(
          absl::StrCat(wait.before, Seconds(wait.age.value_or(absl::Seconds(99))), wait.after));
    }
    return lines;
  }
  void Report(const NodePlace& place, watch::NodeReport report) {
    reports_[place] = {std::move(report), now_};
  }
  void ReportRound(const NodePlace& server, const watch::OpenRounds& open) {
    watch::NodeReport report;
    *report.add_open_rounds() = open;
    Report(server, std::move(report));
  }
  void ReportCall(const NodePlace& worker, double seconds, const std::string& where) {
    watch::NodeReport report = Call("pull", seconds, where);
    report.mutable_activity()->set_in_progress(true);
    Report(worker, std::move(report));
  }
  void ReportQueue(const NodePlace& server, double entries) {
    watch::NodeReport report;
    AddSample(Metric::kQueueDepth, {"shards"}, entries, &report);
    Report(server, std::move(report));
  }

  static constexpr absl::Duration kAge = absl::Seconds(30);
  JobView view_ = RunningJob();
  ReportMap reports_;
  uint64_t decision_version_ = 0;
  SteadyTime now_ = SteadyTime() + absl::Hours(1);
};

TEST_F(WaitsTest, ARoundNamesTensorsAndWhoHasNotPushed) {
  ReportRound(kServer0, Round(120, 11, {"s:a", "s:b", "s:c"}, {1}));
  ReportRound(kServer1, Round(120, 9, {"s:b", "s:d"}, {1}));
  Report(kWorker1, Call("push", 11, "train.py:31"));
  now_ += absl::Seconds(1);
  EXPECT_THAT(Lines(), ElementsAre("round 120 waits 12 s for worker 1: s:a, s:b and 2 more "
                                   "tensors; worker 1: last call push 12 s ago, at train.py:31"));
  EXPECT_EQ("round 120 goes on", Find()[0].over);
  EXPECT_THAT(Find()[0].blamed, ElementsAre(kWorker1));
}

TEST_F(WaitsTest, OnlyTheOldestRoundIsNamed) {
  ReportRound(kServer0, Round(121, 3, {"s:a"}, {0}));
  ReportRound(kServer1, Round(120, 12, {"s:b"}, {0, 1}));
  watch::NodeReport in_pull = Call("pull", 4, "");
  in_pull.mutable_activity()->set_in_progress(true);
  Report(kWorker0, in_pull);
  EXPECT_THAT(Lines(), ElementsAre("round 120 waits 12 s for worker 0, worker 1: s:b; worker 0: "
                                   "in pull for 4 s; worker 1: has not told what it does"));
}

TEST_F(WaitsTest, TheOldestRoundIsNotTheOneWithTheSmallestNumber) {
  ReportRound(kServer0, Round(7, 3, {"s:added_late"}, {0}));
  ReportRound(kServer1, Round(120, 12, {"s:b"}, {1}));
  EXPECT_THAT(Lines(), ElementsAre("round 120 waits 12 s for worker 1: s:b; worker 1: has not told "
                                   "what it does"));
  EXPECT_THAT(Find(), SizeIs(2)) << "the younger one goes on when no server reports it";
}

TEST_F(WaitsTest, EightNamesOfAServerMayHideMore) {
  ReportRound(kServer0, Round(7, 1, {"a", "b", "c", "d", "e", "f", "g", "h"}, {1}));
  Report(kWorker1, watch::NodeReport());
  EXPECT_THAT(Lines(), ElementsAre("round 7 waits 1 s for worker 1: a, b and at least 6 more "
                                   "tensors; worker 1: no call yet"));
}

TEST_F(WaitsTest, TheWordOfAServerThatIsSilentDoesNotAge) {
  ReportRound(kServer0, Round(7, 0.1, {"s:a"}, {1}));
  now_ += absl::Seconds(20);
  NodeOf(kServer0, &view_)->unheard = absl::Seconds(20);
  EXPECT_THAT(Lines(), ElementsAre("server 0 has not been heard for 20 s",
                                   "round 7 waits 0.1 s for worker 1: s:a; worker 1: has not told "
                                   "what it does"));
}

TEST_F(WaitsTest, AServerWithAllPushesThatDoesNotFinishIsNamed) {
  ReportRound(kServer1, Round(7, 11, {"s:a"}, {}));
  EXPECT_THAT(Lines(), ElementsAre("server 1 has not finished round 7 for 11 s, though all workers "
                                   "have pushed it: s:a"));
  EXPECT_THAT(Find()[0].blamed, ElementsAre(kServer1));
}

TEST_F(WaitsTest, ANodeIsLateAfterAFewHeartbeats) {
  NodeOf(kWorker1, &view_)->unheard = absl::Milliseconds(1900);
  EXPECT_THAT(Lines(), IsEmpty());
  NodeOf(kWorker1, &view_)->unheard = absl::Milliseconds(2560);
  EXPECT_THAT(Lines(), ElementsAre("worker 1 has not been heard for 2.5 s"));
  EXPECT_EQ(absl::Milliseconds(2500), Find()[0].patience);
}

TEST_F(WaitsTest, ALossThatWasToldIsNotToldAgain) {
  NodeOf(kWorker1, &view_)->unheard = absl::Seconds(20);
  for (const auto state : {NodeView::State::kGone, NodeView::State::kAway}) {
    NodeOf(kWorker1, &view_)->state = state;
    ASSERT_THAT(Find(), SizeIs(1));
    EXPECT_EQ(absl::InfiniteDuration(), Find()[0].patience);
    EXPECT_EQ("", Find()[0].over);
  }
  NodeOf(kWorker1, &view_)->state = NodeView::State::kLeft;
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(WaitsTest, ABarrierAndASumNameWhoHasNotCome) {
  view_.barriers = {{"kvstore/barrier", 3, "", false, {kWorker1}},
                    {"loss", 9, "the mean loss", true, {kWorker0}}};
  Report(kWorker0, Call("pull", 5, ""));
  Report(kWorker1, Call("push", 31, "data.py:4"));
  EXPECT_THAT(
      Lines(),
      ElementsAre("barrier \"kvstore/barrier\" waits 99 s for worker 1; worker 1: last call "
                  "push 31 s ago, at data.py:4",
                  "sum \"loss\" for the mean loss waits 99 s for worker 0; worker 0: last "
                  "call pull 5 s ago"));
}

TEST_F(WaitsTest, ADecisionAndADeclarationNameWhoseWordLacks) {
  view_.undeclared = {{"s:a"}, {kWorker1}};
  view_.unreported = {kWorker0};
  EXPECT_THAT(Lines(), ElementsAre("the declaration of s:a waits 99 s for worker 1; worker 1: has "
                                   "not told what it does",
                                   "the decision how to compress waits 99 s for worker 0; worker "
                                   "0: has not told what it does"));
}

TEST_F(WaitsTest, TheNextDecisionAndDeclarationAreOtherWaits) {
  std::set<std::string> ids;
  for (const std::string key : {"s:a", "s:b"}) {
    view_.undeclared = {{key}, {kWorker1}};
    view_.unreported = {kWorker0};
    ++decision_version_;
    for (const Wait& wait : Find()) ids.insert(wait.id);
  }
  EXPECT_THAT(ids, SizeIs(4));
}

TEST_F(WaitsTest, ACallThatNothingExplainsNamesTheFullestServer) {
  ReportCall(kWorker0, 11, "f.py:3");
  ReportCall(kWorker1, 10, "");
  ReportQueue(kServer0, 1);
  ReportQueue(kServer1, 40);
  now_ += absl::Seconds(1);
  EXPECT_THAT(Lines(), ElementsAre("worker 0 is in pull for 12 s, at f.py:3; worker 1: in pull for "
                                   "11 s; server 1 has 40 entries queued"));
  EXPECT_THAT(Find()[0].blamed, ElementsAre(kServer1));
  ReportQueue(kServer1, 0);
  EXPECT_THAT(Lines(), ElementsAre(testing::EndsWith("; server 0 has 1 entry queued")));
  ReportQueue(kServer0, 0);
  EXPECT_THAT(Lines(), ElementsAre(testing::EndsWith("; worker 1: in pull for 11 s")));
  EXPECT_THAT(Find()[0].blamed, IsEmpty());
}

TEST_F(WaitsTest, AShortCallOrOneThatHasReturnedHasNoLine) {
  ReportCall(kWorker0, 9, "");
  Report(kWorker1, Call("pull", 30, ""));
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(WaitsTest, ARoundThatIsOpenAsLongExplainsACall) {
  ReportCall(kWorker0, 11, "");
  ReportRound(kServer0, Round(7, 9.5, {"s:a"}, {1}));  // it began while the call encoded
  EXPECT_THAT(Lines(), ElementsAre(testing::StartsWith("round 7 waits 9.5 s for worker 1")));
  ReportRound(kServer0, Round(7, 1, {"s:a"}, {1}));
  EXPECT_THAT(Lines(), ElementsAre(testing::StartsWith("round 7 waits 1 s for worker 1"),
                                   "worker 0 is in pull for 11 s"));
}

TEST_F(WaitsTest, ACallThatWasToldDoesNotEndWhenARoundExplainsIt) {
  ReportCall(kWorker0, 11, "");
  EXPECT_THAT(Lines(), ElementsAre("worker 0 is in pull for 11 s"));
  const std::string id = Find()[0].id;
  ReportRound(kServer0, Round(7, 12, {"s:a"}, {1}));
  ASSERT_THAT(Find(), SizeIs(2));
  EXPECT_EQ(id, Find()[1].id);
  EXPECT_EQ(absl::InfiniteDuration(), Find()[1].patience);
  EXPECT_EQ("worker 0 goes on", Find()[1].over);
}

TEST_F(WaitsTest, AnAgreementExplainsTheCallsOfThoseWhoHaveCome) {
  ReportCall(kWorker0, 11, "");
  view_.barriers = {{"kvstore/barrier", 3, "", false, {kWorker1}}};
  EXPECT_THAT(Lines(), SizeIs(1));
  view_.barriers[0].missing = {kWorker0};
  EXPECT_THAT(Lines(), ElementsAre(testing::HasSubstr("waits 99 s for worker 0"),
                                   "worker 0 is in pull for 11 s"));
}

TEST_F(WaitsTest, ASilentOrLostNodeExplainsACall) {
  ReportCall(kWorker0, 11, "");
  NodeOf(kServer1, &view_)->unheard = absl::Seconds(3);
  EXPECT_THAT(Lines(), ElementsAre("server 1 has not been heard for 3 s"));
  NodeOf(kServer1, &view_)->state = NodeView::State::kGone;
  EXPECT_THAT(Lines(), IsEmpty());
  NodeOf(kServer1, &view_)->state = NodeView::State::kThere;
  NodeOf(kServer1, &view_)->unheard = absl::ZeroDuration();
  NodeOf(kWorker1, &view_)->state = NodeView::State::kAway;
  NodeOf(kWorker1, &view_)->unheard = absl::Hours(1);
  EXPECT_THAT(Lines(), ElementsAre("worker 0 is in pull for 11 s")) << "the job goes on without it";
}

TEST_F(WaitsTest, ARoundNamesTheServerWhosePushesWait) {
  watch::NodeReport report;
  *report.add_open_rounds() = Round(7, 11, {"s:a"}, {1});
  AddSample(Metric::kQueueDepth, {"shards"}, 3, &report);
  Report(kServer0, report);
  EXPECT_THAT(Lines(), ElementsAre("round 7 waits 11 s for worker 1: s:a; worker 1: has not told "
                                   "what it does; server 0 has 3 entries queued"));
}

TEST_F(WaitsTest, MissingNodesAreCountedWithThoseThatAreThere) {
  view_.phase = JobView::Phase::kForming;
  view_.nodes.erase(view_.nodes.begin() + 1, view_.nodes.end());
  view_.refusals = {"refused a worker (host b, pid 9): wrong counts"};
  EXPECT_THAT(Lines(),
              ElementsAre("after 30 s the job waits for 1 server and 2 workers; there: server 0 "
                          "(host alpha, pid 10); refused a worker (host b, pid 9): wrong counts"));
  view_.nodes.clear();
  view_.refusals.clear();
  EXPECT_THAT(Lines(), ElementsAre("after 30 s the job waits for 2 servers and 2 workers; there: "
                                   "nobody"));
}

TEST_F(WaitsTest, AtMostEightWorkersAreDescribed) {
  view_.num_workers = 100;
  std::vector<uint32_t> all(100);
  for (uint32_t rank = 0; rank < 100; ++rank) all[rank] = rank;
  ReportRound(kServer0, Round(7, 11, {"s:a"}, all));
  ASSERT_THAT(Lines(), SizeIs(1));
  EXPECT_THAT(Lines()[0], testing::HasSubstr("worker 7 and 92 more: s:a"));
  EXPECT_THAT(Lines()[0], testing::HasSubstr("worker 7: not there"));
  EXPECT_THAT(Lines()[0], testing::Not(testing::HasSubstr("worker 8")));
}

TEST_F(WaitsTest, AJobThatIsOverWaitsForNobody) {
  ReportRound(kServer0, Round(7, 11, {"s:a"}, {1}));
  view_.phase = JobView::Phase::kEnding;
  EXPECT_THAT(Find(), IsEmpty());
}

}  // namespace
}  // namespace slimps
