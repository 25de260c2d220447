// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "tests/scheduler/watch/watch_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobWatchTest : public testing::Test {
 protected:
  JobWatchTest() { Begin(absl::Seconds(10)); }

  void Begin(absl::Duration stall_warning) {
    watch_ = std::make_unique<JobWatch>(
        JobWatch::Options{.num_workers = 2, .num_servers = 2, .stall_warning = stall_warning},
        SteadyTime());
  }
  std::vector<std::string> Observe(double seconds, const std::vector<std::string>& news = {}) {
    now_ = SteadyTime() + absl::Seconds(seconds);
    return watch_->Observe(view_, news, now_);
  }
  void Report(const NodePlace& place, const watch::NodeReport& report) {
    watch_->TakeReport(place, report.SerializeAsString(), now_);
  }

  std::unique_ptr<JobWatch> watch_;
  JobView view_ = RunningJob();
  SteadyTime now_;
};

TEST_F(JobWatchTest, EveryFieldIsThereBeforeAnybodyReports) {
  Observe(1.5);
  const nlohmann::json json = watch_->Json();
  EXPECT_EQ((std::vector<std::string>{"advice", "decision", "events", "figures", "history", "job",
                                      "nodes", "stalls", "tensors", "timeline"}),
            [&] {
              std::vector<std::string> names;
              for (const auto& [name, value] : json.items()) names.push_back(name);
              return names;
            }());
  EXPECT_EQ(nlohmann::json::parse(R"({"id": "job", "phase": "running", "seconds": 1.5,
      "num_workers": 2, "num_servers": 2, "round": 0, "why": ""})"),
            json["job"]);
  ASSERT_EQ(4u, json["nodes"].size());
  EXPECT_EQ(nlohmann::json::parse(R"({"role": "server", "rank": 0, "host": "alpha", "pid": 10,
      "state": "ok", "restarts": 0, "heard_s": 0.0, "round": null, "call": null,
      "push_bytes_per_s": null, "pull_bytes_per_s": null, "queue": null,
      "snapshot_age_s": null})"),
            json["nodes"][0]);
  EXPECT_TRUE(json["decision"].is_null());
  EXPECT_TRUE(json["figures"]["overlap"].is_null());
}

TEST_F(JobWatchTest, PlacesThatNobodyHasAreMissing) {
  view_.phase = JobView::Phase::kForming;
  view_.nodes.resize(1);
  EXPECT_THAT(Observe(3), IsEmpty());
  EXPECT_EQ("ok", watch_->Json()["nodes"][0]["state"]);
  EXPECT_EQ("missing", watch_->Json()["nodes"][3]["state"]);
  EXPECT_THAT(Observe(10.2), ElementsAre(HasSubstr("after 10 s the job waits for 1 server and 2")));
}

TEST_F(JobWatchTest, WaitsNameTheWorkerThatIsWaitedForAndItsLine) {
  Observe(1);
  watch::NodeReport server;
  *server.add_open_rounds() = Round(42, 5, {"s:w"}, {0});
  Report(kServer0, server);
  Report(kWorker0, Call("pull", 5, "train.py:88"));
  Observe(2);
  EXPECT_EQ(
      "round 42 waits 6 s for worker 0: s:w; worker 0: last call pull 6 s ago, at train.py:88",
      watch_->Waits());
  view_.phase = JobView::Phase::kEnding;
  Observe(3);
  EXPECT_EQ("", watch_->Waits());
}

TEST_F(JobWatchTest, AWorkersReportIsShown) {
  watch::NodeReport report = Call("pull", 2, "train.py:12", 120);
  report.mutable_activity()->set_in_progress(true);
  for (const double seconds : {1.0, 2.0}) {
    report.set_seconds(seconds);
    report.clear_samples();
    AddSample(Metric::kPayloadBytes, {"push", "1bit"}, 100 * seconds, &report);
    AddSample(Metric::kQueueDepth, {"push"}, 3, &report);
    Report(kWorker0, report);
    Observe(seconds);
  }
  Observe(3);
  const nlohmann::json json = watch_->Json();
  const nlohmann::json& worker = json["nodes"][2];
  EXPECT_EQ("waiting", worker["state"]);
  EXPECT_EQ(120, worker["round"]);
  EXPECT_EQ(nlohmann::json::parse(
                R"({"name": "pull", "in_progress": true, "seconds": 4.0, "where": "train.py:12"})"),
            worker["call"]);
  EXPECT_EQ(100, worker["push_bytes_per_s"]);
  EXPECT_EQ(3, worker["queue"]);
  EXPECT_EQ(120, json["job"]["round"]);
  EXPECT_EQ(100, json["figures"]["push_bytes_per_s"]);
  EXPECT_EQ(3u, json["history"].size());
}

TEST_F(JobWatchTest, AStalledRoundMakesItsWorkerSlowAndThenGoesOn) {
  watch::NodeReport open;
  *open.add_open_rounds() = Round(7, 12, {"s:w"}, {1});
  Report(kServer0, open);
  EXPECT_THAT(Observe(0), ElementsAre("round 7 waits 12 s for worker 1: s:w; worker 1: has not "
                                      "told what it does"));
  const nlohmann::json json = watch_->Json();
  EXPECT_EQ("slow", json["nodes"][3]["state"]);
  EXPECT_EQ(12, json["stalls"][0]["seconds"]);
  EXPECT_THAT(json["stalls"][0]["text"], HasSubstr("round 7 waits 12 s"));
  EXPECT_THAT(json["events"][0]["text"], HasSubstr("round 7 waits 12 s"));
  Report(kServer0, watch::NodeReport());
  EXPECT_THAT(Observe(1), ElementsAre("round 7 goes on after 13 s"));
  EXPECT_THAT(watch_->Json()["stalls"], IsEmpty());
}

TEST_F(JobWatchTest, WhatAFormerProcessDidIsNotSaidOfItsSuccessor) {
  watch::NodeReport report = Call("end_step", 2, "train.py:12", 120);
  report.mutable_activity()->set_in_progress(true);
  Report(kWorker1, report);
  NodeOf(kWorker1, &view_)->state = NodeView::State::kAway;
  EXPECT_THAT(Observe(20), IsEmpty());
  EXPECT_EQ("end_step", watch_->Json()["nodes"][3]["call"]["name"]);
  NodeOf(kWorker1, &view_)->state = NodeView::State::kThere;
  NodeOf(kWorker1, &view_)->restarts = 1;
  EXPECT_THAT(Observe(20.5), IsEmpty());
  EXPECT_TRUE(watch_->Json()["nodes"][3]["call"].is_null());
}

TEST_F(JobWatchTest, WithoutStallWarningStallsAreShownAndNoLineSaysSo) {
  Begin(absl::ZeroDuration());
  view_.barriers = {{"kvstore/barrier", 3, "", false, {kWorker1}}};
  NodeOf(kServer0, &view_)->unheard = absl::Seconds(9);
  EXPECT_THAT(Observe(20), IsEmpty());
  ASSERT_EQ(1u, watch_->Json()["stalls"].size());
  EXPECT_EQ("server 0 has not been heard for 9 s", watch_->Json()["stalls"][0]["text"]);
  EXPECT_EQ("slow", watch_->Json()["nodes"][0]["state"]);
  EXPECT_THAT(Observe(30), IsEmpty());
  ASSERT_EQ(2u, watch_->Json()["stalls"].size());
  EXPECT_EQ("slow", watch_->Json()["nodes"][3]["state"]);
}

TEST_F(JobWatchTest, ADecisionIsShownWithTheNamesOfItsKeys) {
  watch::NodeReport report;
  watch::TensorFigures& tensor = *report.add_tensors();
  tensor.set_name("s:w");
  tensor.set_key(HashText("s:w"));
  Report(kWorker0, report);
  wire::CodecMap map;
  map.set_version(2);
  map.set_from_round(30);
  map.set_codec("1bit");
  map.set_has_threshold(true);
  map.set_threshold_bytes(4096);
  map.add_entries()->set_key(HashText("s:w"));
  map.add_table()->set_bytes(64);
  view_.decision = map;
  Observe(1);
  EXPECT_EQ(2u, watch_->decision_version());
  view_.decision.reset();
  Observe(2);
  const nlohmann::json json = watch_->Json();
  EXPECT_EQ(4096, json["decision"]["threshold_bytes"]);
  EXPECT_TRUE(json["decision"]["pull_threshold_bytes"].is_null());
  EXPECT_EQ("s:w", json["decision"]["keys"][0]["key"]);
  EXPECT_EQ(64, json["decision"]["table"][0]["bytes"]);
  EXPECT_EQ("decision 2, from round 30 on: pushes 1bit from 4096 bytes, pulls raw",
            json["events"][0]["text"]);
}

TEST_F(JobWatchTest, OfDecisionsInARowTheNewestIsAnEvent) {
  for (uint64_t version = 1; version <= 300; ++version) {
    view_.decision.emplace().set_version(version);
    const bool is_first = version == 1;
    Observe(1,
            is_first ? std::vector<std::string>{"worker 1 is gone"} : std::vector<std::string>{});
  }
  const nlohmann::json events = watch_->Json()["events"];
  ASSERT_EQ(2u, events.size());
  EXPECT_EQ("worker 1 is gone", events[0]["text"]);
  EXPECT_THAT(events[1]["text"].get<std::string>(), testing::StartsWith("decision 300,"));
}

TEST_F(JobWatchTest, ALateNodeIsShownAsSlowBeforeALineSaysSo) {
  NodeOf(kWorker1, &view_)->unheard = absl::Milliseconds(2100);
  EXPECT_THAT(Observe(5), IsEmpty());
  EXPECT_EQ("slow", watch_->Json()["nodes"][3]["state"]);
  NodeOf(kWorker1, &view_)->unheard = absl::Milliseconds(2600);
  EXPECT_THAT(Observe(5.5), ElementsAre("worker 1 has not been heard for 2.6 s"));
}

TEST_F(JobWatchTest, AnEventSaysHowManyKeysAPolicyDecides) {
  wire::CodecMap& map = view_.decision.emplace();
  map.set_version(1);
  map.set_from_round(7);
  map.set_policy("lgreco");
  map.set_reason("lgreco: the uniform setting");
  map.add_entries();
  Observe(1);
  EXPECT_EQ("decision 1, from round 7 on: policy lgreco, 1 key; lgreco: the uniform setting",
            watch_->Json()["events"][0]["text"]);
  map.set_version(2);
  map.add_entries();
  Observe(2);
  EXPECT_EQ("decision 2, from round 7 on: policy lgreco, 2 keys; lgreco: the uniform setting",
            watch_->Json()["events"][0]["text"]);
}

TEST_F(JobWatchTest, ALongNameIsCutAndStillNamesItsKey) {
  const std::string name(1000, 'x');
  watch::NodeReport report;
  watch::TensorFigures& tensor = *report.add_tensors();
  tensor.set_name(name);
  tensor.set_key(HashText(name));
  Report(kWorker0, report);
  view_.decision.emplace().set_version(1);
  view_.decision->add_entries()->set_key(HashText(name));
  Observe(1);
  EXPECT_EQ(name.substr(0, 200), watch_->Json()["decision"]["keys"][0]["key"]);
  tensor.set_key(1);
  Report(kWorker0, report);
  Observe(2);
  EXPECT_NE(name.substr(0, 200), watch_->Json()["decision"]["keys"][0]["key"]) << "it is gone";
}

TEST_F(JobWatchTest, DetailsOfOthersThanWorkerZeroAreLeftOut) {
  watch::NodeReport report;
  report.add_timeline()->set_end_s(1);
  Report(kWorker1, report);
  Observe(1);
  EXPECT_THAT(watch_->Json()["timeline"], IsEmpty());
  Report(kWorker0, report);
  EXPECT_EQ(1u, watch_->Json()["timeline"].size());
}

TEST_F(JobWatchTest, TheNewestTwoHundredEventsAreKept) {
  for (int i = 0; i < 300; ++i) Observe(i, {absl::StrCat("line ", i)});
  const nlohmann::json events = watch_->Json()["events"];
  ASSERT_EQ(JobWatch::kMaxEvents, events.size());
  EXPECT_EQ("line 299", events.back()["text"]);
  EXPECT_EQ(299, events.back()["t"]);
}

TEST_F(JobWatchTest, GarbageIsDroppedAndCounted) {
  watch_->TakeReport(kWorker0, "\xff\xff\xff", SteadyTime());
  EXPECT_EQ(1u, watch_->dropped_reports());
  Observe(1);
  EXPECT_TRUE(watch_->Json()["nodes"][2]["call"].is_null());
}

TEST_F(JobWatchTest, MetricsAreThoseOfTheNodesAndItsOwn) {
  watch::NodeReport report;
  AddSample(Metric::kRawBytes, {"push"}, 512, &report);
  Report(kWorker1, report);
  NodeOf(kServer0, &view_)->unheard = absl::Seconds(4);
  NodeOf(kServer1, &view_)->restarts = 3;
  Observe(20);
  const std::string text = MetricsText(watch_->Samples());
  EXPECT_THAT(text, HasSubstr("# TYPE slimps_raw_bytes_total counter\n"));
  EXPECT_THAT(text, HasSubstr("slimps_raw_bytes_total{role=\"worker\",rank=\"1\","
                              "direction=\"push\"} 512\n"));
  EXPECT_THAT(text, HasSubstr("slimps_node_up{role=\"server\",rank=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("slimps_node_up{role=\"server\",rank=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("slimps_restarts_total{role=\"server\",rank=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("slimps_stalls_total{role=\"scheduler\",rank=\"0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("slimps_job_age_seconds{role=\"scheduler\",rank=\"0\"} 20\n"));
}

}  // namespace
}  // namespace slimps
