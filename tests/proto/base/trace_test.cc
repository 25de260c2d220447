// SPDX-License-Identifier: Apache-2.0
#include "proto/base/trace/trace.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

TraceLog& Log() { return TraceLog::Global(); }

SteadyTime At(int64_t milliseconds) { return SteadyTime() + absl::Milliseconds(milliseconds); }

std::string TestPath(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / name).string();
}

class TraceTest : public testing::Test {
 protected:
  void TearDown() override { Log().Stop(); }
};

TEST_F(TraceTest, NothingIsRecordedBeforeStartAndAfterStop) {
  Log().Start("a");
  Log().Stop();
  EXPECT_FALSE(Log().on());
  { TraceSpan span(TraceStage::kEncode, {"s:w", 0, 1}); }
  Log().Add(TraceStage::kSend, {"s:w", 0, 1}, At(0), At(1));
  Log().AddOfThread(TraceStage::kCopy, {"s:w", 0, 1}, At(0), At(1));
  EXPECT_TRUE(Log().Events().empty());
  EXPECT_EQ(0u, Log().dropped());
}

TEST_F(TraceTest, ASpanThatBeganBeforeStartOrEndsAfterStopIsNotRecorded) {
  Log().Stop();
  auto early = std::make_unique<TraceSpan>(TraceStage::kEncode, TraceSubject{"early", 0, 1});
  Log().Start("a");
  early.reset();
  auto late = std::make_unique<TraceSpan>(TraceStage::kEncode, TraceSubject{"late", 0, 1});
  Log().Stop();
  late.reset();
  EXPECT_TRUE(Log().Events().empty());
}

void AddEncode(int64_t round) {
  Log().AddOfThread(TraceStage::kEncode, {"s:w", 0, static_cast<uint64_t>(round)}, At(round),
                    At(round + 1));
}

TEST_F(TraceTest, AWatchKeepsTheNewestEventsOfAThread) {
  Log().Start("a");  // forgets what other tests recorded
  Log().Stop();
  Log().Watch();
  for (int64_t i = 0; i < int64_t{TraceLog::kWatchedEvents} + 10; ++i) AddEncode(i);
  EXPECT_EQ(Log().Events().size(), TraceLog::kWatchedEvents);
  EXPECT_EQ(Log().Events().front().round, 10u);
  EXPECT_EQ(Log().EventsSince(At(20)).front().round, 19u) << "it ended then";
  Log().EndWatch();
  EXPECT_FALSE(Log().on());
  EXPECT_TRUE(Log().Events().empty());
}

TEST_F(TraceTest, AWatchKeepsBoundedTextsAndNothingOfThreadsThatAreOver) {
  Log().Start("a");
  Log().Stop();
  Log().Watch();
  for (size_t i = 0; i < TraceLog::kWatchedKeys + 10; ++i) {
    Log().Add(TraceStage::kCall, {.key = absl::StrCat("call ", i)}, At(0), At(1));
  }
  EXPECT_EQ(Log().Events().back().key, absl::StrCat("call ", TraceLog::kWatchedKeys - 1));
  const size_t before = Log().Events().size();
  std::thread(AddEncode, 1).join();
  std::thread(AddEncode, 2).join();
  EXPECT_EQ(Log().Events().size(), before + 1);
  Log().EndWatch();
}

TEST_F(TraceTest, AWatchIsNoRecordingAndMayBeginAgain) {
  Log().Start("a");
  Log().Stop();
  Log().Watch();
  EXPECT_TRUE(Log().on());
  EXPECT_FALSE(Log().recording());
  Log().EndWatch();
  Log().Watch();
  EXPECT_TRUE(Log().on());
  Log().Start("a");
  EXPECT_TRUE(Log().recording());
  Log().Stop();
  EXPECT_FALSE(Log().recording());
}

TEST_F(TraceTest, AWatchReplacesNoRecording) {
  Log().Start("a");
  Log().Watch();
  Log().EndWatch();
  EXPECT_TRUE(Log().on());
  AddEncode(1);
  Log().Stop();
  Log().Watch();
  EXPECT_FALSE(Log().on()) << "what was recorded may still be written";
  EXPECT_EQ(Log().Events().size(), 1u);
}

TEST_F(TraceTest, SpansHoldWhatTheyAreAboutAndWhenTheyWere) {
  Log().Start("a");
  const SteadyTime before = MachineClock()->Now();
  {
    std::string key = "s:conv1.weight, a name that is longer than a string keeps in place";
    TraceSpan span(TraceStage::kEncode, {key, 3, 17});
    Log().Add(TraceStage::kSend, {"i:5", 4, 18}, At(2), At(7));
  }
  const SteadyTime after = MachineClock()->Now();
  const std::vector<TraceEvent> events = Log().Events();
  ASSERT_EQ(2u, events.size());
  const TraceEvent& send = events[0];
  EXPECT_EQ(TraceStage::kSend, send.stage);
  EXPECT_EQ("i:5", send.key);
  EXPECT_EQ(4u, send.partition);
  EXPECT_EQ(18u, send.round);
  EXPECT_EQ(At(2), send.began);
  EXPECT_EQ(At(7), send.ended);
  EXPECT_FALSE(send.of_thread);
  const TraceEvent& encode = events[1];
  EXPECT_EQ(TraceStage::kEncode, encode.stage);
  EXPECT_EQ("s:conv1.weight, a name that is longer than a string keeps in place", encode.key);
  EXPECT_EQ(3u, encode.partition);
  EXPECT_EQ(17u, encode.round);
  EXPECT_TRUE(encode.of_thread);
  EXPECT_LE(before, encode.began);
  EXPECT_LE(encode.began, encode.ended);
  EXPECT_LE(encode.ended, after);
}

TEST_F(TraceTest, EventsComeInOrderOfBeginningTheOuterBeforeTheInner) {
  Log().Start("a");
  Log().Add(TraceStage::kPull, {"c", 0, 0}, At(5), At(6));
  Log().Add(TraceStage::kPull, {"inner", 0, 0}, At(1), At(2));
  Log().Add(TraceStage::kPull, {"outer", 0, 0}, At(1), At(9));
  std::vector<std::string> keys;
  for (const TraceEvent& event : Log().Events()) keys.push_back(event.key);
  EXPECT_EQ((std::vector<std::string>{"outer", "inner", "c"}), keys);
}

TEST_F(TraceTest, WhatEndsBeforeItBeganTakesNoTime) {
  Log().Start("a");
  Log().Add(TraceStage::kSend, {"w", 0, 0}, At(5), At(3));
  ASSERT_EQ(1u, Log().Events().size());
  EXPECT_EQ(At(5), Log().Events()[0].ended);
}

TEST_F(TraceTest, BeyondTheBoundEventsAreCountedNotKept) {
  Log().Start("a", 3);
  for (int i = 0; i < 10; ++i) {
    Log().Add(TraceStage::kSend, {"w", 0, static_cast<uint64_t>(i)}, At(i), At(i + 1));
  }
  const std::vector<TraceEvent> events = Log().Events();
  ASSERT_EQ(3u, events.size());
  EXPECT_EQ(2u, events[2].round);
  EXPECT_EQ(7u, Log().dropped());
  Log().Start("a", 3);
  EXPECT_EQ(0u, Log().dropped());
}

TEST_F(TraceTest, StartForgetsWhatWasAlsoOfThreadsThatHaveRecordedBefore) {
  Log().Start("a");
  Log().Add(TraceStage::kSend, {"old", 0, 0}, At(0), At(1));
  Log().Start("a");
  EXPECT_TRUE(Log().Events().empty());
  Log().Add(TraceStage::kSend, {"new", 0, 0}, At(0), At(1));
  ASSERT_EQ(1u, Log().Events().size());
  EXPECT_EQ("new", Log().Events()[0].key);
}

TEST_F(TraceTest, EveryThreadsEventsAreThereUnderItsOwnNumberEvenWhenItHasEnded) {
  constexpr int kThreads = 8, kEach = 500;
  Log().Start("a");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      const std::string key = "s:" + std::to_string(t);
      for (uint64_t i = 0; i < kEach; ++i) {
        TraceSpan span(TraceStage::kDecode, {key, static_cast<uint32_t>(t), i});
      }
    });
  }
  // Reads while the threads record. Each event that is there must be whole.
  for (int i = 0; i < 20; ++i) {
    for (const TraceEvent& event : Log().Events()) {
      ASSERT_EQ("s:" + std::to_string(event.partition), event.key);
    }
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, std::set<uint32_t>> numbers;
  std::map<std::string, std::set<uint64_t>> rounds;
  for (const TraceEvent& event : Log().Events()) {
    numbers[event.key].insert(event.thread);
    rounds[event.key].insert(event.round);
  }
  ASSERT_EQ(size_t{kThreads}, numbers.size());
  std::set<uint32_t> all;
  for (const auto& [key, of_key] : numbers) {
    EXPECT_EQ(1u, of_key.size()) << key;
    all.insert(of_key.begin(), of_key.end());
    EXPECT_EQ(size_t{kEach}, rounds[key].size()) << key;
  }
  EXPECT_EQ(size_t{kThreads}, all.size());
}

TEST_F(TraceTest, StartAndStopWhileThreadsRecordLoseNothingOfTheLastRun) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&done] {
      while (!done) TraceSpan span(TraceStage::kAggregate, {"w", 0, 0});
    });
  }
  for (int i = 0; i < 50; ++i) {
    Log().Start("a", 1000);
    Log().SetProcessName("b");
    Log().SetJobTime({.steady = At(i), .wall = absl::UnixEpoch()});
    EXPECT_LE(Log().Events().size(), 1000u + 4);  // each thread may have begun one before
    Log().Stop();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  Log().Start("a");
  { TraceSpan span(TraceStage::kAggregate, {"w", 0, 0}); }
  EXPECT_EQ(1u, Log().Events().size());
}

TEST(TracePath, PartsAreNamedBeforeTheExtension) {
  EXPECT_EQ("out/job.worker0.json", TracePartPath("out/job.json", "worker", 0));
  EXPECT_EQ("job.server12.json", TracePartPath("job.json", "server", 12));
  EXPECT_EQ("a.b/job.server1", TracePartPath("a.b/job", "server", 1));
  EXPECT_EQ("a.b.server1.json", TracePartPath("a.b.json", "server", 1));
  EXPECT_EQ("out/.json.server1", TracePartPath("out/.json", "server", 1));
}

TEST(TracePath, WhatCannotBeWrittenIsToldBeforehandAndNamed) {
  const std::string good = TestPath("checked.json");
  std::filesystem::remove(good);
  EXPECT_TRUE(CheckTracePath(good).ok());
  EXPECT_FALSE(std::filesystem::exists(good)) << "nothing was written yet";
  for (const std::string& bad : {std::string("/no/such/folder/t.json"), std::string(), TestPath(""),
                                 TestPath("checked.json") + "/x.json"}) {
    std::ofstream(good) << "old";
    const absl::Status status = CheckTracePath(bad);
    EXPECT_EQ(absl::StatusCode::kUnavailable, status.code()) << bad;
    EXPECT_NE(std::string::npos, status.message().find("cannot write trace " + bad + ": "))
        << status;
  }
}

TEST_F(TraceTest, AWriteThatFailsNamesTheFileAndLeavesNothingBehind) {
  Log().Start("a");
  const absl::Status missing = Log().WriteTo("/no/such/folder/t.json");
  EXPECT_EQ(absl::StatusCode::kUnavailable, missing.code());
  EXPECT_EQ("cannot write trace /no/such/folder/t.json: No such file or directory",
            std::string(missing.message()));
  const std::string folder = TestPath("taken");
  std::filesystem::create_directories(folder + "/t.json");
  EXPECT_NE(std::string::npos, Log().WriteTo(folder + "/t.json").message().find("Is a directory"));
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ("t.json", entry.path().filename());
    ++entries;
  }
  EXPECT_EQ(1u, entries);
}

}  // namespace
}  // namespace slimps
