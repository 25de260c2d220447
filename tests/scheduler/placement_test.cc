// SPDX-License-Identifier: Apache-2.0
#include "scheduler/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/base/hash.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

void AddKey(wire::DeclareKeys* declared, const std::string& name, std::vector<int64_t> shape) {
  wire::KeyInfo* info = declared->add_keys();
  info->set_name(name);
  info->set_key(HashText(name));
  for (const int64_t dim : shape) info->add_shape(dim);
}

wire::DeclareKeys Keys(std::vector<std::pair<std::string, std::vector<int64_t>>> keys,
                       uint64_t partition_elements = 1024) {
  wire::DeclareKeys declared;
  declared.set_partition_elements(partition_elements);
  for (auto& [name, shape] : keys) AddKey(&declared, name, shape);
  return declared;
}

using Answers = std::vector<PlacementTable::Answer>;

// Declares keys as worker w, in request number w.
Answers Declare(PlacementTable* table, uint32_t worker, const wire::DeclareKeys& declared) {
  absl::StatusOr<Answers> answers = table->Declare(worker, worker, declared);
  EXPECT_TRUE(answers.ok()) << answers.status();
  return answers.ok() ? *std::move(answers) : Answers();
}

// Returns the placement in a job of one worker.
wire::Placement PlaceAlone(PlacementTable* table, const wire::DeclareKeys& declared) {
  const Answers answers = Declare(table, 0, declared);
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers.size() == 1 && answers[0].placement.ok());
  return answers.size() == 1 ? answers[0].placement.value() : wire::Placement();
}

TEST(Placement, PartitionsCoverAKeyWithoutGapOrOverlap) {
  PlacementTable table({.num_workers = 1, .num_servers = 3});
  const wire::Placement placement = PlaceAlone(&table, Keys({{"s:w", {50, 50}}}, 1000));
  ASSERT_EQ(placement.keys(0).partitions_size(), 3);
  uint64_t offset = 0;
  for (const wire::PartitionPlace& partition : placement.keys(0).partitions()) {
    EXPECT_EQ(partition.offset(), offset);
    offset += partition.elements();
  }
  EXPECT_EQ(offset, 2500u);
  EXPECT_EQ(placement.keys(0).partitions(2).elements(), 500u);
}

TEST(Placement, AKeyMayAskForPartitionsOfItsOwn) {
  PlacementTable table({.num_workers = 1, .num_servers = 2});
  wire::DeclareKeys declared = Keys({{"s:w", {50, 50}}, {"s:v", {50, 50}}}, 1000);
  declared.mutable_keys(0)->set_partition_elements(1250);
  const wire::Placement placement = PlaceAlone(&table, declared);
  ASSERT_EQ(placement.keys(0).partitions_size(), 2);
  EXPECT_EQ(placement.keys(0).partitions(1).offset(), 1250u);
  EXPECT_EQ(placement.keys(1).partitions_size(), 3);
}

TEST(Placement, WorkersMustAskForTheSamePartitionsOfAKey) {
  PlacementTable table({.num_workers = 2, .num_servers = 2});
  wire::DeclareKeys declared = Keys({{"s:w", {50, 50}}}, 1000);
  EXPECT_TRUE(Declare(&table, 0, declared).empty());
  declared.mutable_keys(0)->set_partition_elements(1250);
  const Answers answers = Declare(&table, 1, declared);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(std::string(answers[1].placement.status().message()),
              HasSubstr("worker 1 cuts partitions of 1250 elements, expected as worker 0 does: "
                        "1000"));
}

TEST(Placement, ServersAreBalancedByBytesWithinOnePartition) {
  PlacementTable table({.num_workers = 1, .num_servers = 3});
  std::vector<std::pair<std::string, std::vector<int64_t>>> keys;
  for (int i = 0; i < 40; ++i) keys.push_back({"s:k" + std::to_string(i), {(i * 37) % 900 + 1, 3}});
  PlaceAlone(&table, Keys(keys, 512));
  const auto [least, most] =
      std::minmax_element(table.server_bytes().begin(), table.server_bytes().end());
  EXPECT_GT(*least, 0u);
  EXPECT_LE(*most - *least, 512 * sizeof(float));
}

TEST(Placement, TheOrderOfKeysInADeclarationDoesNotMatter) {
  PlacementTable one({.num_workers = 1, .num_servers = 2});
  PlacementTable other({.num_workers = 1, .num_servers = 2});
  const wire::Placement forth =
      PlaceAlone(&one, Keys({{"s:a", {10}}, {"s:b", {10}}, {"s:c", {30}}}));
  const wire::Placement back =
      PlaceAlone(&other, Keys({{"s:c", {30}}, {"s:b", {10}}, {"s:a", {10}}}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(forth.keys(i).key(), back.keys(2 - i).key());
    EXPECT_EQ(forth.keys(i).partitions(0).server(), back.keys(2 - i).partitions(0).server());
  }
}

TEST(Placement, AnAnswerWaitsForEveryWorkerAndIsTheSameForAll) {
  PlacementTable table({.num_workers = 2, .num_servers = 2});
  const wire::DeclareKeys declared = Keys({{"s:a", {10}}, {"s:b", {3}}});
  EXPECT_TRUE(Declare(&table, 1, declared).empty());
  EXPECT_TRUE(Declare(&table, 1, declared).empty()) << "a repeat is no other worker";
  const Answers answers = Declare(&table, 0, declared);
  ASSERT_EQ(answers.size(), 2u);
  for (uint32_t worker = 0; worker < 2; ++worker) {
    EXPECT_EQ(answers[worker].worker, worker);
    EXPECT_EQ(answers[worker].request, worker);
    ASSERT_TRUE(answers[worker].placement.ok());
    EXPECT_EQ(answers[worker].placement->SerializeAsString(),
              answers[0].placement->SerializeAsString());
  }
  const Answers again = Declare(&table, 1, declared);  // the answer was lost
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].placement->SerializeAsString(), answers[0].placement->SerializeAsString());
}

TEST(Placement, DeclarationsThatOverlapAreAnsweredWhenAllTheirKeysAreThere) {
  PlacementTable table({.num_workers = 2, .num_servers = 1});
  EXPECT_TRUE(table.Declare(0, 1, Keys({{"s:a", {1}}, {"s:b", {1}}}))->empty());
  EXPECT_TRUE(table.Declare(0, 2, Keys({{"s:c", {1}}}))->empty());
  EXPECT_TRUE(table.Declare(1, 3, Keys({{"s:b", {1}}}))->size() == 1) << "worker 1's own";
  const auto answers = table.Declare(1, 4, Keys({{"s:c", {1}}, {"s:a", {1}}}));
  ASSERT_EQ(answers->size(), 3u);
  EXPECT_EQ(answers->at(0).request, 1u);
  EXPECT_EQ(answers->at(1).request, 2u);
  EXPECT_EQ(answers->at(2).request, 4u);
}

// Once each declaration looked at all waiting declarations, and each of their keys at all workers.
TEST(Placement, DeclaringCostsWorkersTimesKeys) {
  for (const uint32_t workers : {8u, 64u}) {
    PlacementTable table({.num_workers = workers, .num_servers = 3});
    wire::DeclareKeys declared;
    declared.set_partition_elements(100);
    constexpr uint64_t kKeys = 30;
    for (uint64_t i = 0; i < kKeys; ++i) AddKey(&declared, "s:k" + std::to_string(i), {7});
    size_t answered = 0;
    for (uint32_t worker = 0; worker < workers; ++worker) {
      answered += Declare(&table, worker, declared).size();
    }
    EXPECT_EQ(answered, workers);
    EXPECT_LE(table.steps(), 4 * workers * kKeys);
  }
}

TEST(Placement, KeysDeclaredLaterLeaveEarlierOnesWhereTheyAre) {
  PlacementTable table({.num_workers = 1, .num_servers = 2});
  const wire::DeclareKeys first = Keys({{"s:a", {10}}});
  const std::string before = PlaceAlone(&table, first).SerializeAsString();
  const wire::Placement second = PlaceAlone(&table, Keys({{"s:b", {1000}}}));
  EXPECT_EQ(second.keys(0).partitions(0).server(), 1u);
  EXPECT_EQ(PlaceAlone(&table, first).SerializeAsString(), before);
}

void ExpectDisagreement(const wire::DeclareKeys& zero, const wire::DeclareKeys& one,
                        const std::string& expected, const std::string& got) {
  PlacementTable table({.num_workers = 2, .num_servers = 1});
  EXPECT_TRUE(Declare(&table, 1, one).empty());
  const Answers answers = Declare(&table, 0, zero);
  ASSERT_EQ(answers.size(), 2u);
  for (const PlacementTable::Answer& answer : answers) {
    const absl::Status& status = answer.placement.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : {std::string("key s:w"), std::string("worker 1"),
                                    std::string("expected as worker 0"), expected, got}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
  EXPECT_EQ(Declare(&table, 1, one).size(), 1u) << "still so";
}

TEST(Placement, AShapeMismatchReachesBothWorkersNamingKeyExpectedAndGot) {
  ExpectDisagreement(Keys({{"s:w", {3, 4}}}), Keys({{"s:w", {4, 3}}}), "[3, 4]", "[4, 3]");
}

TEST(Placement, ADTypeMismatchReachesBothWorkers) {
  wire::DeclareKeys half = Keys({{"s:w", {3}}});
  half.mutable_keys(0)->set_dtype(wire::FLOAT16);
  ExpectDisagreement(Keys({{"s:w", {3}}}), half, "FLOAT32", "FLOAT16");
}

TEST(Placement, APartitionSizeMismatchReachesBothWorkers) {
  ExpectDisagreement(Keys({{"s:w", {3}}}, 100), Keys({{"s:w", {3}}}, 200), "100", "200");
}

wire::DeclareKeys Numbered(uint64_t number, wire::DeclareKeys declared) {
  declared.set_number(number);
  return declared;
}

TEST(Placement, WorkersWithOtherKeysAreAllToldTheFirstDifferenceAtOnce) {
  PlacementTable table({.num_workers = 4, .num_servers = 1});
  const wire::DeclareKeys first = Numbered(1, Keys({{"s:a", {1}}, {"s:b", {2, 3}}, {"s:c", {1}}}));
  const wire::DeclareKeys other = Numbered(1, Keys({{"s:a", {1}}, {"s:d", {4}}}));
  EXPECT_TRUE(Declare(&table, 2, first).empty());
  EXPECT_TRUE(Declare(&table, 1, first).empty());
  Answers answers = Declare(&table, 3, other);
  ASSERT_EQ(answers.size(), 3u);
  const absl::Status expected = absl::InvalidArgumentError(
      "the workers initialise different keys: worker 3 declares 2 and worker 2 3; only worker 3 "
      "has s:d, shape [4], dtype FLOAT32; only worker 2 has s:b, shape [2, 3], dtype FLOAT32");
  for (const PlacementTable::Answer& answer : answers) {
    EXPECT_EQ(answer.placement.status(), expected) << answer.worker;
  }
  answers = Declare(&table, 0, first);
  ASSERT_EQ(answers.size(), 1u) << "the last one does not wait for the others";
  EXPECT_EQ(answers[0].placement.status(), expected);
}

TEST(Placement, AKeyMoreOrAnotherOrderIsCompared) {
  PlacementTable table({.num_workers = 2, .num_servers = 1});
  EXPECT_TRUE(Declare(&table, 1, Numbered(1, Keys({{"s:b", {1}}, {"s:a", {1}}}))).empty());
  Answers answers = Declare(&table, 0, Numbered(1, Keys({{"s:a", {1}}, {"s:b", {1}}})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers[0].placement.ok()) << "the order of keys does not matter";
  answers = Declare(&table, 1, Numbered(1, Keys({{"s:b", {1}}, {"s:a", {1}}})));
  EXPECT_TRUE(answers.at(0).placement.ok()) << "a process that was started again";
  EXPECT_TRUE(Declare(&table, 1, Numbered(2, Keys({{"s:c", {1}}}))).empty());
  answers = Declare(&table, 0, Numbered(2, Keys({{"s:c", {1}}, {"s:d", {1}}})));
  ASSERT_EQ(answers.size(), 2u);
  for (const PlacementTable::Answer& answer : answers) {
    EXPECT_EQ(answer.placement.status(),
              absl::InvalidArgumentError("the workers initialise different keys: worker 0 declares "
                                         "2 and worker 1 1; only worker 0 has s:d, shape [1], "
                                         "dtype FLOAT32"));
  }
}

// Once a worker could make it keep the same keys under any number of numbers.
TEST(Placement, TheKeysThatAreKeptToCompareAreBounded) {
  PlacementTable table({.num_workers = 2, .num_servers = 1, .max_keys = 4});
  const wire::DeclareKeys keys = Keys({{"s:a", {1}}, {"s:b", {1}}});
  for (uint64_t number = 1; number <= 3; ++number) {
    EXPECT_TRUE(table.Declare(0, number, Numbered(number, keys))->empty());
  }
  const Answers answers = Declare(&table, 1, Numbered(3, Keys({{"s:a", {1}}})));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].placement.ok()) << "number 3 is not compared";
}

TEST(Placement, TwoNamesWithOneIdAreRefused) {
  PlacementTable table({.num_workers = 1, .num_servers = 1});
  Declare(&table, 0, Keys({{"s:a", {3}}}));
  wire::DeclareKeys twin = Keys({{"s:b", {3}}});
  twin.mutable_keys(0)->set_key(HashText("s:a"));
  const absl::Status status = table.Declare(0, 0, twin).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s:b"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("s:a already (hash collision)"));

  wire::DeclareKeys both = Keys({{"s:x", {3}}, {"s:y", {3}}});
  both.mutable_keys(1)->set_key(both.keys(0).key());
  EXPECT_THAT(std::string(table.Declare(0, 0, both).status().message()), HasSubstr("one id"));
}

TEST(Placement, MalformedDeclarationsAreRefusedAndLeaveNoTrace) {
  PlacementTable table({.num_workers = 1,
                        .num_servers = 1,
                        .max_keys = 2,
                        .max_partitions_of_key = 8,
                        .max_partitions = 10,
                        .max_elements_of_key = 1000});
  wire::DeclareKeys wrong_id = Keys({{"s:w", {3}}});
  wrong_id.mutable_keys(0)->set_key(5);
  const std::vector<std::pair<wire::DeclareKeys, std::string>> cases = {
      {wrong_id, "not the hash of its name"},
      {Keys({{"s:ok", {1}}, {"s:w", {0}}}), "expected 1 to 1000 elements"},
      {Keys({{"s:w", {-1}}}), "elements"},
      {Keys({{"s:w", {1000, 2}}}), "elements"},
      {Keys({{"s:w", {int64_t{1} << 40, int64_t{1} << 40}}}), "elements"},
      {Keys({{"s:w", {10}}}, 0), "partition_elements"},
      {Keys({{"s:w", {9}}}, 1), "more than 8 partitions"},
      {Keys({{"s:a", {8}}, {"s:b", {8}}}, 1), "16 new partitions"},
      {Keys({{"s:a", {1}}, {"s:b", {1}}, {"s:c", {1}}}), "3 new keys"},
  };
  for (const auto& [declared, what] : cases) {
    const absl::Status status = table.Declare(0, 0, declared).status();
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
  EXPECT_TRUE(table.Declare(0, 0, Keys({{"s:p", {1}}, {"s:q", {1}}})).ok());
}

TEST(Placement, AWorkerCannotDeclareAKeyTwiceDifferently) {
  PlacementTable table({.num_workers = 2, .num_servers = 1});
  Declare(&table, 0, Keys({{"s:w", {3}}}));
  EXPECT_THAT(std::string(table.Declare(0, 1, Keys({{"s:w", {4}}})).status().message()),
              HasSubstr("declared before"));
}

TEST(Placement, AWorkerThatLeftWithoutDeclaringIsAnError) {
  PlacementTable table({.num_workers = 2, .num_servers = 1});
  const wire::DeclareKeys declared = Keys({{"s:w", {3}}});
  EXPECT_TRUE(Declare(&table, 0, declared).empty());
  Answers answers = table.Leave(1);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].placement.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(answers[0].placement.status().message()), HasSubstr("worker 1 left"));
  answers =
      Declare(&table, 0, Keys({{"s:v", {3}}}));  // now not all workers can declare it any more
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(std::string(answers[0].placement.status().message()), HasSubstr("worker 1 left"));
}

TEST(Placement, WhatAWorkerDeclaredBeforeItLeftStays) {
  PlacementTable table({.num_workers = 2, .num_servers = 1});
  const wire::DeclareKeys declared = Keys({{"s:w", {3}}});
  EXPECT_TRUE(Declare(&table, 1, declared).empty());
  EXPECT_TRUE(table.Leave(1).empty());
  const Answers answers = Declare(&table, 0, declared);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers[0].placement.ok());
}

TEST(Placement, KeysThatDeclarationsWaitForAreNamedWithTheWorkersThatLack) {
  PlacementTable table({.num_workers = 3, .num_servers = 1});
  EXPECT_EQ(table.FindUndeclared(), Undeclared());
  Declare(&table, 0, Keys({{"s:a", {10}}, {"s:b", {10}}}));
  Declare(&table, 1, Keys({{"s:a", {10}}}));
  const Undeclared undeclared = {{"s:a", "s:b"}, {{wire::WORKER, 1}, {wire::WORKER, 2}}};
  EXPECT_EQ(table.FindUndeclared(), undeclared);
  Declare(&table, 2, Keys({{"s:a", {10}}, {"s:b", {10}}}));
  EXPECT_EQ(table.FindUndeclared(), (Undeclared{{"s:b"}, {{wire::WORKER, 1}}}));
}

}  // namespace
}  // namespace slimps
