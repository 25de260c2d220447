// SPDX-License-Identifier: Apache-2.0
#include "server/round/partition.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/format/lanes.h"
#include "compress/format/sum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PartitionSpec Spec(size_t elements, uint32_t workers, wire::StoreMode mode = wire::DIST_SYNC) {
  PartitionSpec spec;
  spec.key = Key("w").id();
  spec.name = "s:w";
  spec.elements = elements;
  spec.num_workers = workers;
  spec.mode = mode;
  return spec;
}

std::unique_ptr<Partition> Make(const PartitionSpec& spec, const std::vector<float>& initial,
                                const wire::OptimizerSpec& optimizer) {
  return Partition::Create(spec, Raw(initial), MakeOptimizer(optimizer)).value();
}

void ApplyAll(Partition& partition) {
  while (partition.HasCompleteRound()) partition.ApplyNextRound();
}

std::vector<float> WeightsOf(const Partition& partition) {
  return {partition.weights().begin(), partition.weights().end()};
}

absl::StatusCode CodeOf(const absl::StatusOr<PushVerdict>& result) {
  return result.status().code();
}

TEST(Partition, WithoutAnOptimizerARoundStoresTheSumOverWorkers) {
  auto partition = Make(Spec(2, 2), {9, 9}, {});
  ASSERT_TRUE(partition->Push(1, 0, 2, Raw({1, 2})).ok());
  ASSERT_TRUE(partition->Push(1, 1, 2, Raw({10, 20})).ok());
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(9, 9));  // counted, not yet applied
  ApplyAll(*partition);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(11, 22));
  EXPECT_EQ(partition->version(), 1);
}

// Returns a payload of thc. All workers' have one rotation and one scale: `scale`, if it is given.
ClaimedPayload Lanes(uint32_t worker, size_t elements, std::optional<float> scale = {}) {
  const auto codec = MakeCodec("thc").value();
  const std::vector<float> gradient = RandomValues(elements, 1);
  std::vector<std::byte> payload(codec->MaxPayloadBytes(elements));
  const EncodeInput input = {.gradient = gradient, .residual = {}, .context = {.worker = worker}};
  EXPECT_TRUE(codec->Encode(input, payload).ok());
  const LanesLayout layout = LanesLayoutOf(payload);
  for (size_t block = 0; scale.has_value() && block < layout.blocks(); ++block) {
    std::memcpy(payload.data() + layout.ScaleOffset(block), &*scale, sizeof *scale);
  }
  BuildLanesHeader(layout, payload);
  return {.format = codec->format(), .payload = Payload::Copy(payload), .checksum = worker + 1};
}

TEST(Partition, WithoutAnOptimizerIntegersAreTheAnswer) {
  constexpr size_t kElements = 5000;
  auto partition = Make(Spec(kElements, 2), std::vector<float>(kElements), {});
  const ClaimedPayload pushed[] = {Lanes(0, kElements), Lanes(1, kElements)};
  std::vector<float> sum(kElements), decoded(kElements);
  // Both push; one pushes nothing; one pushes floats.
  for (uint64_t round = 1; round <= 4; ++round) {
    SCOPED_TRACE(round);
    const ClaimedPayload first = round == 2   ? ClaimedPayload{}
                                 : round == 3 ? Raw(std::vector<float>(kElements, 1))
                                              : pushed[0];
    ASSERT_TRUE(partition->Push(round, 0, kElements, first).ok());
    ASSERT_TRUE(partition->Push(round, 1, kElements, pushed[1]).ok());
    ApplyAll(*partition);
    const std::vector<PayloadView> views = {{first.format, first.payload.bytes()},
                                            {pushed[1].format, pushed[1].payload.bytes()}};
    SumPayloads(views, kElements, 0, sum);
    const WireValue answer = partition->Share(round, round - 1);
    EXPECT_FALSE(answer.base_version.has_value());
    EXPECT_EQ(answer.format, round == 3 ? PayloadFormat::kRawF32 : PayloadFormat::kRotated);
    if (round != 3) {
      const LanesLayout layout = LanesLayoutOf(answer.payload.bytes());
      EXPECT_EQ(layout.bits, 8);
      EXPECT_EQ(layout.largest, round == 2 ? 30u : 60u);
    }
    ASSERT_TRUE(ValidatePayload(answer.format, answer.payload.bytes(), kElements).ok());
    Decode(answer.format, answer.payload.bytes(), kElements, 0, decoded);
    EXPECT_EQ(decoded, sum);
    EXPECT_EQ(WeightsOf(*partition), sum);
  }
}

TEST(Partition, IntegersThatNoFormatHoldsAreNotTheAnswer) {
  // Each payload is valid; their sum has twice the levels.
  constexpr size_t kElements = 5000;
  constexpr float kScale = 2e33f;
  auto partition = Make(Spec(kElements, 2), std::vector<float>(kElements), {});
  ASSERT_TRUE(partition->Push(1, 0, kElements, Lanes(0, kElements, kScale)).ok());
  ASSERT_TRUE(partition->Push(1, 1, kElements, Lanes(1, kElements, kScale)).ok());
  ApplyAll(*partition);
  const WireValue answer = partition->Share(1, 0);
  EXPECT_EQ(answer.format, PayloadFormat::kRawF32);
  EXPECT_TRUE(ValidatePayload(answer.format, answer.payload.bytes(), kElements).ok());
}

TEST(Partition, AFewElementsAreNotPaddedForTheAnswer) {
  auto partition = Make(Spec(7, 1), std::vector<float>(7), {});
  ASSERT_TRUE(partition->Push(1, 0, 7, Lanes(0, 7)).ok());
  ApplyAll(*partition);
  EXPECT_EQ(partition->Share(1).format, PayloadFormat::kRawF32);
}

TEST(Partition, AbsentPushesCountAsZeroAndInTheAverage) {
  wire::OptimizerSpec spec = SgdSpec(1);
  spec.set_average(true);
  auto partition = Make(Spec(2, 2), {0, 0}, spec);
  ASSERT_TRUE(partition->Push(1, 0, 2, {}).ok());
  ASSERT_TRUE(partition->Push(1, 1, 2, Raw({2, 4})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-1, -2));
}

TEST(Partition, AMajorityIsNotDividedByTheWorkersWhoGaveIt) {
  wire::OptimizerSpec optimizer = SgdSpec(1);
  optimizer.set_average(true);
  PartitionSpec spec = Spec(4, 3);
  spec.combine = Combine::kMajority;
  auto partition = Make(spec, {0, 0, 0, 0}, optimizer);
  ASSERT_TRUE(partition->Push(1, 0, 4, Signs({1, -1, 1, -1}, 1)).ok());
  ASSERT_TRUE(partition->Push(1, 1, 4, Signs({1, -1, -1, -1}, 1)).ok());
  ASSERT_TRUE(partition->Push(1, 2, 4, Raw({1, 1, 0, 5})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-1, 1, 0, -1));
}

TEST(Partition, WorkersThatLeftAreNotInTheAverage) {
  wire::OptimizerSpec spec = SgdSpec(1);
  spec.set_average(true);
  auto partition = Make(Spec(1, 2), {0}, spec);
  ASSERT_TRUE(partition->Leave(0, 1).ok());
  ASSERT_TRUE(partition->Push(1, 1, 1, Raw({4})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-4));
}

// Runs three rounds of four workers and returns the weights. Two workers push raw gradients, two
// push signs. Each worker pushes twice. `seed` decides the order.
std::vector<float> RunShuffled(size_t first, size_t elements, uint64_t seed) {
  constexpr size_t kTotal = 2 * kBlockElements + 100;
  constexpr uint32_t kWorkers = 4;
  const auto part = [&](uint64_t value_seed) {
    const std::vector<float> whole = RandomValues(kTotal, value_seed);
    return std::vector<float>(whole.begin() + first, whole.begin() + first + elements);
  };
  wire::OptimizerSpec spec = SgdSpec(0.1, 0.9);
  spec.set_average(true);
  auto partition = Make(Spec(elements, kWorkers), part(1), spec);
  std::mt19937_64 random(seed);
  for (uint64_t round = 1; round <= 3; ++round) {
    std::vector<uint32_t> order = {0, 1, 2, 3, 0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    for (const uint32_t worker : order) {
      const std::vector<float> gradient = part(round * 10 + worker);
      EXPECT_TRUE(partition
                      ->Push(round, worker, elements,
                             worker % 2 == 0 ? Raw(gradient) : Signs(gradient, 0.3f))
                      .ok());
    }
    ApplyAll(*partition);
  }
  return WeightsOf(*partition);
}

TEST(Partition, AnyOrderOfArrivalGivesTheSameBits) {
  constexpr size_t kElements = 2 * kBlockElements + 100;
  const std::vector<float> reference = RunShuffled(0, kElements, 0);
  for (uint64_t seed = 1; seed < 10; ++seed) {
    ASSERT_EQ(RunShuffled(0, kElements, seed), reference);
  }
}

TEST(Partition, CuttingAKeyGivesTheSameBits) {
  const std::vector<float> whole = RunShuffled(0, 2 * kBlockElements + 100, 0);
  std::vector<float> joined = RunShuffled(0, 1000, 1);
  for (const auto& [first, elements] : std::vector<std::pair<size_t, size_t>>{
           {1000, kBlockElements + 500}, {1500 + kBlockElements, kBlockElements - 1400}}) {
    const std::vector<float> part = RunShuffled(first, elements, 2);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(joined, whole);
}

TEST(Partition, MalformedPushesAreRefusedAndNotCounted) {
  auto partition = Make(Spec(3, 1), {0, 0, 0}, {});
  EXPECT_EQ(CodeOf(partition->Push(1, 0, 2, Raw({1, 2}))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(partition->Push(1, 0, 3, Raw({1, 2}))), absl::StatusCode::kDataLoss);
  ClaimedPayload garbage = Raw({1, 2, 3});
  for (const auto format : {PayloadFormat::kLevels, PayloadFormat::kSparse}) {
    garbage.format = format;
    const absl::StatusOr<PushVerdict> refused = partition->Push(1, 0, 3, garbage);
    EXPECT_FALSE(refused.ok());
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("key s:w partition 0"));
  }
  EXPECT_FALSE(partition->HasCompleteRound());
  EXPECT_TRUE(partition->Push(1, 0, 3, Raw({1, 2, 3})).ok());
}

TEST(Partition, InitialValueIsCheckedAndMayBeAbsent) {
  const auto none = MakeOptimizer({});
  EXPECT_EQ(Partition::Create(Spec(3, 1), Raw({1}), none).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_THAT(WeightsOf(*Partition::Create(Spec(2, 1), {}, none).value()), ElementsAre(0, 0));
}

TEST(Partition, SameInitAgainIsFineAndAnotherIsNot) {
  auto partition = Make(Spec(2, 1), {1, 2}, {});
  EXPECT_TRUE(partition->CheckRepeatedInit(Spec(2, 1), Raw({1, 2}).checksum).ok());
  EXPECT_EQ(partition->CheckRepeatedInit(Spec(2, 1), Raw({1, 3}).checksum).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(partition->CheckRepeatedInit(Spec(3, 1), Raw({1, 2}).checksum).code(),
            absl::StatusCode::kAlreadyExists);
  PartitionSpec majority = Spec(2, 1);
  majority.combine = Combine::kMajority;
  EXPECT_EQ(partition->CheckRepeatedInit(majority, Raw({1, 2}).checksum).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(Partition, OptimizerOfTheSameKindKeepsItsState) {
  auto partition = Make(Spec(1, 1), {0}, SgdSpec(1, 0.5));
  ASSERT_TRUE(partition->Push(1, 0, 1, Raw({1})).ok());
  ApplyAll(*partition);  // buf 1, w -1
  partition->SetOptimizer(MakeOptimizer(SgdSpec(10, 0.5)));
  ASSERT_TRUE(partition->Push(2, 0, 1, Raw({1})).ok());
  ApplyAll(*partition);  // buf 1.5
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-16));
}

TEST(Partition, MomentumMayBeginLater) {
  auto partition = Make(Spec(1, 1), {0}, SgdSpec(1));
  ASSERT_TRUE(partition->Push(1, 0, 1, Raw({1})).ok());
  ApplyAll(*partition);
  partition->SetOptimizer(MakeOptimizer(SgdSpec(1, 0.5)));
  ASSERT_TRUE(partition->Push(2, 0, 1, Raw({1})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-2));
}

TEST(Partition, AnotherKindOfOptimizerBeginsWithoutTheStateThatWasPut) {
  auto partition = Make(Spec(1, 1), {0}, SgdSpec(1, 0.5));
  wire::OptimizerState state;
  state.set_kind(wire::OptimizerSpec::SGD);
  state.set_tensors(1);
  state.set_tensor(1);
  state.set_updates(9);
  state.set_load(1);
  ASSERT_TRUE(partition->PutState(state, Raw({42})).ok());
  partition->SetOptimizer(MakeOptimizer(SgdSpec(1, 0.9)));
  EXPECT_THAT(Floats(partition->ShareState(&state).payload), ElementsAre(42)) << "the same kind";
  EXPECT_EQ(state.updates(), 9u);
  wire::OptimizerSpec adam = SgdSpec(1);
  adam.set_kind(wire::OptimizerSpec::ADAM);
  adam.set_beta1(0.9);
  adam.set_beta2(0.99);
  adam.set_epsilon(1e-8);
  partition->SetOptimizer(MakeOptimizer(adam));
  for (const uint32_t tensor : {1u, 2u}) {
    state.set_tensor(tensor);
    EXPECT_THAT(Floats(partition->ShareState(&state).payload), ElementsAre(0)) << tensor;
  }
  EXPECT_EQ(state.updates(), 0u);
}

TEST(Partition, OptimizerOfAnotherKindStepsFromTheNextRoundAndBeginsWithoutState) {
  auto partition = Make(Spec(1, 2), {0}, SgdSpec(1, 0.5));
  ASSERT_TRUE(partition->Push(1, 0, 1, Raw({1})).ok());
  ASSERT_TRUE(partition->Push(1, 1, 1, Raw({1})).ok());
  ApplyAll(*partition);  // buf 2, w -2
  ASSERT_TRUE(partition->Push(2, 0, 1, Raw({3})).ok());
  partition->SetOptimizer(MakeOptimizer({}));  // it applies from the round that is under way
  ASSERT_TRUE(partition->Push(2, 1, 1, Raw({4})).ok());
  ApplyAll(*partition);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(7));
  partition->SetOptimizer(MakeOptimizer(SgdSpec(1, 0.5)));
  for (const uint64_t round : {3, 4}) {
    ASSERT_TRUE(partition->Push(round, 0, 1, Raw({1})).ok());
    ASSERT_TRUE(partition->Push(round, 1, 1, Raw({1})).ok());
    ApplyAll(*partition);
  }
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(7 - 2 - 3)) << "buf 2, then 3";
}

TEST(Partition, AsyncAppliesEachPushOnceWhenItComes) {
  auto partition = Make(Spec(1, 2, wire::DIST_ASYNC), {0}, SgdSpec(1));
  EXPECT_EQ(partition->Push(1, 1, 1, Raw({1})).value(), PushVerdict::kAccepted);
  EXPECT_EQ(partition->Push(3, 1, 1, Raw({3})).value(), PushVerdict::kAccepted);
  EXPECT_EQ(partition->Push(2, 1, 1, Raw({2})).value(), PushVerdict::kAccepted);
  EXPECT_EQ(partition->Push(2, 1, 1, Raw({2})).value(), PushVerdict::kDuplicate);
  EXPECT_EQ(CodeOf(partition->Push(2, 1, 1, Raw({5}))), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(-6));
  EXPECT_EQ(partition->version(), 3);
  EXPECT_FALSE(partition->HasCompleteRound());
}

TEST(Partition, ARepeatFromLongAgoChangesNothing) {
  for (const auto mode : {wire::DIST_SYNC, wire::DIST_ASYNC}) {
    auto partition = Make(Spec(1, 1, mode), {0}, SgdSpec(1));
    for (uint64_t round = 1; round <= 100; ++round) {
      ASSERT_TRUE(partition->Push(round, 0, 1, Raw({1})).ok());
      ApplyAll(*partition);
    }
    EXPECT_EQ(partition->Push(1, 0, 1, Raw({1})).value(), PushVerdict::kDuplicate);
    EXPECT_FALSE(partition->HasCompleteRound());
    EXPECT_THAT(WeightsOf(*partition), ElementsAre(-100));
    EXPECT_EQ(partition->version(), 100);
  }
}

TEST(Partition, AsyncWithoutAnOptimizerIsRefused) {
  auto partition = Make(Spec(1, 1, wire::DIST_ASYNC), {0}, {});
  EXPECT_EQ(CodeOf(partition->Push(1, 0, 1, Raw({1}))), absl::StatusCode::kFailedPrecondition);
}

TEST(Partition, WaitIsDescribedWithTheWorkersThatAreMissing) {
  auto partition = Make(Spec(1, 4), {0}, {});
  ASSERT_TRUE(partition->Push(1, 1, 1, Raw({1})).ok());
  ASSERT_TRUE(partition->Leave(3, 1).ok());
  EXPECT_EQ(
      partition->DescribeWait(2),
      "key s:w partition 0: version 2 wanted, 0 held; round 1 lacks the push of workers 0, 2");
}

TEST(Partition, HalfPrecisionKeysAreServedAsSuchAndKeptInFull) {
  PartitionSpec spec = Spec(1, 1);
  spec.dtype = wire::BFLOAT16;
  auto partition = Make(spec, {1.0f + 1.0f / 1024}, {});
  EXPECT_EQ(partition->Share(0).format, PayloadFormat::kRawBf16);
  EXPECT_EQ(partition->Share(0).payload.size(), 2);
  EXPECT_THAT(WeightsOf(*partition), ElementsAre(1.0f + 1.0f / 1024));
}

}  // namespace
}  // namespace slimps
