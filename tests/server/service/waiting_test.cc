// SPDX-License-Identifier: Apache-2.0
// Pushes that wait for their round: the server's bound on them, and rounds whose first
// contributions are summed early.
#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/partition.h"
#include "tests/compress/format/rows_test_util.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/service/server_service_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr RowGrid kGrid = {.elements = kBlockElements + 300, .row_elements = 100, .skip = 30};
constexpr size_t kRawBytes = kGrid.elements * sizeof(float);
constexpr size_t kUnbounded = size_t{1} << 40;

// What the workers push.
enum class Pushed { kRaw, kSigns, kRows, kMixed };

struct Job {
  wire::OptimizerSpec::Kind optimizer = wire::OptimizerSpec::NONE;
  Combine combine = Combine::kSum;
  uint32_t workers = 12;
};

wire::OptimizerSpec SpecOf(wire::OptimizerSpec::Kind kind) {
  wire::OptimizerSpec spec = SgdSpec(0.1, kind == wire::OptimizerSpec::SGD ? 0.9 : 0);
  spec.set_kind(kind);
  spec.set_weight_decay(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  spec.set_average(true);
  return spec;
}

ClaimedPayload Hashed(PayloadFormat format, Payload payload) {
  const uint64_t hash = HashBytes(payload.bytes());
  return {.format = format, .payload = std::move(payload), .checksum = hash};
}

ClaimedPayload PayloadOf(Pushed pushed, uint64_t round, uint32_t worker) {
  const uint64_t seed = 100 * round + worker;
  std::vector<float> values = RandomValues(kGrid.elements, seed);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = -0.0f;  // a sum makes it +0
  switch (pushed) {
    case Pushed::kRaw:
      return Hashed(PayloadFormat::kRawF32, RawPayload(values));
    case Pushed::kSigns:
      return Signs(values, 0.1f * static_cast<float>(worker + 1));
    case Pushed::kRows: {
      const std::vector<uint32_t> rows = SomeRows(kGrid, 0.3, seed);
      return Hashed(PayloadFormat::kRows, Payload::Copy(RowsPayload(kGrid, rows, values)));
    }
    default:
      if (seed % 5 == 0) return {};
      return PayloadOf(static_cast<Pushed>(seed % 3), round, worker);
  }
}

// Creates each payload only once.
class Payloads {
 public:
  explicit Payloads(Pushed pushed) : pushed_(pushed) {}

  const ClaimedPayload& Of(uint64_t round, uint32_t worker) {
    const auto [found, is_new] = made_.try_emplace({round, worker});
    if (is_new) found->second = PayloadOf(pushed_, round, worker);
    return found->second;
  }

 private:
  const Pushed pushed_;
  std::map<std::pair<uint64_t, uint32_t>, ClaimedPayload> made_;
};

std::unique_ptr<Partition> Make(const Job& job, std::shared_ptr<WaitingBytes> waiting) {
  PartitionSpec spec;
  spec.name = "s:w";
  spec.offset = kGrid.skip;
  spec.elements = kGrid.elements;
  spec.row_elements = kGrid.row_elements;
  spec.num_workers = job.workers;
  spec.combine = job.combine;
  spec.waiting = std::move(waiting);
  return Partition::Create(spec, Raw(RandomValues(kGrid.elements, 7)),
                           MakeOptimizer(SpecOf(job.optimizer)))
      .value();
}

// Returns the bits of the weights and of the optimizer's state.
std::vector<uint32_t> BitsOf(const Partition& partition) {
  std::vector<float> all(partition.weights().begin(), partition.weights().end());
  for (const uint32_t tensor : {1u, 2u}) {
    wire::OptimizerState state;
    state.set_tensor(tensor);
    const std::vector<float> more = Floats(partition.ShareState(&state).payload);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::vector<uint32_t> bits;
  for (const float value : all) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Pushes some rounds in an order that `seed` chooses and applies them. Pushes again where the
// server had no room. Returns the largest number of bytes that waited.
size_t RunRounds(Partition& partition, const Job& job, WaitingBytes& waiting, uint64_t seed,
                 Payloads& payloads) {
  constexpr uint64_t kRounds = 3;
  std::mt19937_64 random(seed);
  size_t most = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::deque<uint32_t> to_come;
    for (uint32_t worker = 0; worker < job.workers; ++worker) to_come.push_back(worker);
    if (seed > 0) std::shuffle(to_come.begin(), to_come.end(), random);
    size_t refused = 0;
    while (!to_come.empty() && refused <= to_come.size()) {
      const uint32_t worker = to_come.front();
      to_come.pop_front();
      const auto verdict =
          partition.Push(round, worker, kGrid.elements, payloads.Of(round, worker));
      most = std::max(most, waiting.bytes());
      refused = verdict.ok() ? 0 : refused + 1;
      if (verdict.ok()) continue;
      EXPECT_EQ(verdict.status().code(), Code::kResourceExhausted) << verdict.status();
      to_come.push_back(worker);
    }
    EXPECT_TRUE(to_come.empty()) << "nobody was let in any more";
    while (partition.HasCompleteRound()) partition.ApplyNextRound();
    EXPECT_EQ(partition.version(), round);
    EXPECT_EQ(waiting.bytes(), 0);
  }
  return most;
}

TEST(Waiting, ARoundWhoseFirstPushesAreSummedEarlyHasTheSameBits) {
  for (const Pushed pushed : {Pushed::kRaw, Pushed::kSigns, Pushed::kRows, Pushed::kMixed}) {
    Payloads payloads(pushed);
    for (const auto optimizer : {wire::OptimizerSpec::NONE, wire::OptimizerSpec::TEST,
                                 wire::OptimizerSpec::SGD, wire::OptimizerSpec::ADAMW}) {
      for (const Combine combine : {Combine::kSum, Combine::kMajority}) {
        const Job job{.optimizer = optimizer,
                      .combine = combine,
                      .workers = pushed == Pushed::kSigns ? 80u : 12u};
        auto free = std::make_shared<WaitingBytes>(kUnbounded);
        auto expected = Make(job, free);
        const size_t all = RunRounds(*expected, job, *free, 0, payloads);
        for (const uint64_t seed : {0, 1, 2}) {
          auto tight = std::make_shared<WaitingBytes>(2 * kRawBytes);
          auto partition = Make(job, tight);
          const size_t most = RunRounds(*partition, job, *tight, seed, payloads);
          EXPECT_LT(most, all) << "nothing was summed early: the test shows nothing";
          EXPECT_TRUE(BitsOf(*partition) == BitsOf(*expected))
              << static_cast<int>(pushed) << " " << optimizer << " seed " << seed;
        }
      }
    }
  }
}

// Once 64 workers' pushes of 4 MiB filled all the room of a partition, and the next round's pushes
// were refused.
TEST(Waiting, ManyRawPushesInRankOrderTakeTheMemoryOfAFew) {
  const Job job{.optimizer = wire::OptimizerSpec::SGD, .workers = 64};
  auto waiting = std::make_shared<WaitingBytes>(8 * kRawBytes);
  auto partition = Make(job, waiting);
  for (uint32_t worker = 0; worker < job.workers; ++worker) {
    for (const uint64_t round : {1, 2}) {
      if (round == 2 && worker != 0) continue;  // only worker 0 is ahead
      const auto verdict =
          partition->Push(round, worker, kGrid.elements, PayloadOf(Pushed::kRaw, round, worker));
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_LE(waiting->bytes(), waiting->most());
    }
  }
  EXPECT_TRUE(partition->HasCompleteRound());
}

TEST(Waiting, WhatWasSummedEarlyIsRememberedAndCannotBeLeft) {
  auto waiting = std::make_shared<WaitingBytes>(kRawBytes);
  const Job job{.optimizer = wire::OptimizerSpec::SGD, .workers = 4};
  auto partition = Make(job, waiting), expected = Make(job, nullptr);
  const auto push = [](Partition& to, uint32_t worker, uint64_t of_round = 1) {
    return to.Push(1, worker, kGrid.elements, PayloadOf(Pushed::kRaw, of_round, worker));
  };
  for (const uint32_t worker : {0u, 1u, 2u}) ASSERT_TRUE(push(*partition, worker).ok());
  EXPECT_EQ(waiting->bytes(), kRawBytes) << "one sum";
  EXPECT_EQ(push(*partition, 1).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(push(*partition, 1, 9).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(partition->Leave(1, 1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(waiting->bytes(), kRawBytes);
  ASSERT_TRUE(partition->Leave(3, 1).ok());
  ASSERT_TRUE(partition->HasCompleteRound());
  partition->ApplyNextRound();
  ASSERT_TRUE(expected->Leave(3, 1).ok());
  for (const uint32_t worker : {0u, 1u, 2u}) ASSERT_TRUE(push(*expected, worker).ok());
  expected->ApplyNextRound();
  EXPECT_TRUE(BitsOf(*partition) == BitsOf(*expected)) << "an average over three";
  EXPECT_EQ(push(*partition, 1).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(push(*partition, 1, 9).status().code(), Code::kAlreadyExists);
}

TEST(Waiting, OneContributionAloneIsSteppedByAsItCame) {
  auto waiting = std::make_shared<WaitingBytes>(0);
  const Job job{.workers = 2};
  auto partition = Make(job, waiting);
  const ClaimedPayload payload = PayloadOf(Pushed::kRaw, 1, 0);
  ASSERT_TRUE(partition->Push(1, 0, kGrid.elements, payload).ok());
  ASSERT_TRUE(partition->Leave(1, 1).ok());
  partition->ApplyNextRound();
  const std::vector<float> weights(partition->weights().begin(), partition->weights().end());
  EXPECT_EQ(RawPayload(weights).size(), payload.payload.size());
  EXPECT_TRUE(std::ranges::equal(RawPayload(weights).bytes(), payload.payload.bytes()))
      << "-0 stays";
}

class WaitingInAServer : public ServerServiceFixture {
 protected:
  absl::Status Push(const std::string& name, uint32_t worker, uint64_t round) {
    Message push = From(worker);
    AddPush(&push, {.name = name, .round = round, .values = {1, 2}, .ticket = round});
    return PushStatus(Ask(std::move(push)));
  }
};

TEST_F(WaitingInAServer, TheBoundIsOnAllPartitionsTogether) {
  ServerOptions options{.job_id = "job", .num_workers = 3, .shard_threads = 2};
  options.max_waiting_bytes = 2 * sizeof(float);
  Start(options);
  for (const char* name : {"a", "b", "c"}) InitKey(name, {0, 0});
  EXPECT_EQ(Push("a", 2, 1), absl::OkStatus());
  for (const char* name : {"b", "c"}) {
    const absl::Status status = Push(name, 2, 1);
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << name;
    EXPECT_THAT(status.ToString(), HasSubstr("round 1 of worker 2: 8 bytes on top of 8 that wait "
                                             "in the server exceed 8"));
  }
  EXPECT_EQ(Push("b", 0, 1), absl::OkStatus()) << "its turn in rank order";
  EXPECT_EQ(Push("b", 0, 2).code(), Code::kResourceExhausted) << "ahead";
  EXPECT_EQ(Push("b", 1, 1), absl::OkStatus());
  EXPECT_EQ(Push("b", 2, 1), absl::OkStatus());
}

}  // namespace
}  // namespace slimps
