// SPDX-License-Identifier: Apache-2.0
// The contents of a trace file, read as its viewers read them.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/trace/trace.h"

namespace slimps {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFirstNs = 1700000000000000000;

TraceLog& Log() { return TraceLog::Global(); }

SteadyTime At(double milliseconds) { return SteadyTime() + absl::Milliseconds(milliseconds); }

Json Written() {
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "trace_json_test.json").string();
  const absl::Status written = Log().WriteTo(path);
  EXPECT_TRUE(written.ok()) << written;
  std::ifstream in(path);
  return Json::parse(in);
}

std::vector<Json> OfPhase(const Json& file, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : file["traceEvents"]) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

// Returns the row names by tid.
std::map<int, std::string> Rows(const Json& file) {
  std::map<int, std::string> rows;
  for (const Json& event : OfPhase(file, "M")) {
    if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
  }
  return rows;
}

class TraceJson : public testing::Test {
 protected:
  void SetUp() override {
    Log().Start("worker 0");
    SetJobTime(absl::ZeroDuration());
  }
  void TearDown() override { Log().Stop(); }

  // Sets this machine's clock to be `ahead` of the job's.
  static void SetJobTime(absl::Duration ahead) {
    Log().SetJobTime({.steady = At(0), .wall = absl::FromUnixNanos(kFirstNs) - ahead});
  }
};

TEST_F(TraceJson, AnEventIsACompleteEventInMicroseconds) {
  Log().Add(TraceStage::kSend, {"s:w", 2, 7}, At(0.25), At(1.5));
  Log().Add(TraceStage::kPull, {"s:w", 2, 7}, At(1.5), At(4) + absl::Nanoseconds(1));
  const Json file = Written();
  const std::vector<Json> events = OfPhase(file, "X");
  ASSERT_EQ(2u, events.size());
  EXPECT_EQ((Json{{"ph", "X"},
                  {"name", "s:w[2]"},
                  {"cat", "send"},
                  {"ts", 0.0},
                  {"dur", 1250.0},
                  {"pid", getpid()},
                  {"tid", 1},
                  {"args", {{"key", "s:w"}, {"partition", 2}, {"round", 7}}}}),
            events[0]);
  EXPECT_EQ("pull", events[1]["cat"]);
  EXPECT_DOUBLE_EQ(1250, events[1]["ts"].get<double>());
  EXPECT_DOUBLE_EQ(2500.001, events[1]["dur"].get<double>());
  EXPECT_EQ(std::to_string(kFirstNs + 250'000), file["otherData"]["base_unix_ns"]);
}

TEST_F(TraceJson, AnEventSaysItsElementsIfItKnowsThem) {
  Log().Add(TraceStage::kEncode, {"s:w", 2, 7, 262144}, At(0), At(1));
  const std::vector<Json> events = OfPhase(Written(), "X");
  ASSERT_EQ(1u, events.size());
  EXPECT_EQ((Json{{"key", "s:w"}, {"partition", 2}, {"round", 7}, {"elements", 262144}}),
            events[0]["args"]);
}

TEST_F(TraceJson, WhatIsNotOfATensorHasItsNameAlone) {
  Log().Add(TraceStage::kForward, {"Net", 0, 3}, At(0), At(1));
  Log().Add(TraceStage::kNews, {"worker 0 has joined"}, At(2), At(2));
  const std::vector<Json> events = OfPhase(Written(), "X");
  ASSERT_EQ(2u, events.size());
  EXPECT_EQ("Net", events[0]["name"]);
  EXPECT_EQ("forward", events[0]["cat"]);
  EXPECT_EQ(3, events[0]["args"]["round"]);
  EXPECT_EQ("worker 0 has joined", events[1]["name"]);
  EXPECT_EQ("news", events[1]["cat"]);
}

TEST_F(TraceJson, TheFileSaysWhichProcessItIsOf) {
  Log().SetProcessName("worker 3 \"the\\last\"");
  const Json file = Written();
  EXPECT_EQ("worker 3 \"the\\last\"", file["otherData"]["process"]);
  const std::vector<Json> metadata = OfPhase(file, "M");
  ASSERT_EQ(1u, metadata.size());
  EXPECT_EQ("process_name", metadata[0]["name"]);
  EXPECT_EQ("worker 3 \"the\\last\"", metadata[0]["args"]["name"]);
  EXPECT_EQ(getpid(), metadata[0]["pid"]);
}

TEST_F(TraceJson, OddKeyNamesAreEscapedAndWhatIsNotUtf8IsReplaced) {
  constexpr char kOdd[] = "s:\"quoted\"\\ \n\t\x01 gr\xc3\xbc\xc3\x9f \xe2\x82\xac </script>\0 end";
  const std::string odd(kOdd, sizeof(kOdd) - 1);
  Log().Add(TraceStage::kSend, {odd, 0, 0}, At(0), At(1));
  Log().Add(TraceStage::kSend, {"s:\xff\xc3(", 0, 0}, At(2), At(3));
  const std::vector<Json> events = OfPhase(Written(), "X");
  ASSERT_EQ(2u, events.size());
  EXPECT_EQ(odd, events[0]["args"]["key"]);
  EXPECT_EQ(odd + "[0]", events[0]["name"]);
  EXPECT_EQ("s:\xef\xbf\xbd\xef\xbf\xbd(", events[1]["args"]["key"]);
}

TEST_F(TraceJson, ASpanOfNoTensorIsNamedAfterItsStage) {
  { TraceSpan span(TraceStage::kCompute, {"", 0, 12}); }
  const std::vector<Json> events = OfPhase(Written(), "X");
  ASSERT_EQ(1u, events.size());
  EXPECT_EQ("compute", events[0]["name"]);
  EXPECT_EQ(12, events[0]["args"]["round"]);
}

TEST_F(TraceJson, EveryStageHasItsNameAndRowsComeInTheJourneysOrder) {
  for (size_t i = kTraceStages; i-- > 0;) {
    Log().Add(static_cast<TraceStage>(i), {"s:w", 0, 0}, At(0), At(1));
  }
  const Json file = Written();
  std::vector<std::string> names;
  for (const auto& [tid, name] : Rows(file)) names.push_back(name);
  EXPECT_EQ((std::vector<std::string>{"compute", "wait", "copy", "encode", "send", "pull", "decode",
                                      "local_update", "aggregate", "reply", "decide", "forward",
                                      "backward", "step", "call", "phase", "news"}),
            names);
  for (const Json& event : OfPhase(file, "M")) {
    if (event["name"] == "thread_sort_index") {
      EXPECT_EQ(event["tid"], event["args"]["sort_index"]);
    }
  }
}

TEST_F(TraceJson, AStageHasARowPerThreadNamedAfterTheThread) {
  const auto encode = [](const char* name) {
    if (name != nullptr) pthread_setname_np(pthread_self(), name);
    TraceSpan encode(TraceStage::kEncode, {"s:w", 0, 0});
    TraceSpan decode(TraceStage::kDecode, {"s:w", 0, 0});
  };
  std::thread(encode, "push").join();
  std::thread(encode, nullptr).join();
  Log().AddOfThread(TraceStage::kEncode, {"s:w", 0, 0}, At(0), At(1));
  std::vector<std::string> names;
  for (const auto& [tid, name] : Rows(Written())) names.push_back(name);
  EXPECT_EQ((std::vector<std::string>{"encode (push)", "encode (thread 1)", "encode (main)",
                                      "decode (push)", "decode (thread 1)"}),
            names);
}

TEST_F(TraceJson, SharedSpansThatOverlapLieOnRowsOfTheirOwnAndRowsAreUsedAgain) {
  Log().Add(TraceStage::kSend, {"a", 0, 0}, At(0), At(4));
  Log().Add(TraceStage::kSend, {"b", 0, 0}, At(1), At(3));
  Log().Add(TraceStage::kSend, {"c", 0, 0}, At(2), At(6));
  Log().Add(TraceStage::kSend, {"d", 0, 0}, At(3), At(5));  // b's row is free from here on
  Log().Add(TraceStage::kPull, {"e", 0, 0}, At(0), At(9));  // another stage's event
  const Json file = Written();
  const std::map<int, std::string> rows = Rows(file);
  std::map<std::string, std::string> row_of;
  for (const Json& event : OfPhase(file, "X")) row_of[event["args"]["key"]] = rows.at(event["tid"]);
  EXPECT_EQ((std::map<std::string, std::string>{
                {"a", "send"}, {"b", "send 2"}, {"c", "send 3"}, {"d", "send 2"}, {"e", "pull"}}),
            row_of);
}

TEST_F(TraceJson, AClockThatIsAheadIsSetBack) {
  SetJobTime(absl::Milliseconds(3));
  Log().Add(TraceStage::kSend, {"a", 0, 0}, At(5), At(6));
  EXPECT_EQ(std::to_string(kFirstNs + 2'000'000), Written()["otherData"]["base_unix_ns"]);
  SetJobTime(absl::Milliseconds(-3));
  EXPECT_EQ(std::to_string(kFirstNs + 8'000'000), Written()["otherData"]["base_unix_ns"]);
}

TEST_F(TraceJson, WhatWasDroppedIsSaid) {
  Log().Start("worker 0", 1);
  EXPECT_EQ("0", Written()["otherData"]["dropped"]);
  for (int i = 0; i < 5; ++i) Log().Add(TraceStage::kSend, {"a", 0, 0}, At(i), At(i + 1));
  EXPECT_EQ("4", Written()["otherData"]["dropped"]);
}

TEST_F(TraceJson, ATraceOfNothingIsAFileToo) {
  const Json file = Written();
  EXPECT_TRUE(OfPhase(file, "X").empty());
  EXPECT_EQ("ms", file["displayTimeUnit"]);
}

}  // namespace
}  // namespace slimps
