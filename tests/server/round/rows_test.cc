// SPDX-License-Identifier: Apache-2.0
// Row-sparse rounds on a server: which elements they change, how rows are pulled, what is refused.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/aggregate.h"
#include "server/round/partition.h"
#include "server/round/partition_rows.h"
#include "tests/compress/format/rows_test_util.h"
#include "tests/compress/test_data.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

wire::OptimizerSpec SpecOf(wire::OptimizerSpec::Kind kind) {
  wire::OptimizerSpec spec = SgdSpec(0.1, kind == wire::OptimizerSpec::SGD ? 0.9 : 0);
  spec.set_kind(kind);
  spec.set_weight_decay(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  spec.set_rescale_grad(0.5);
  return spec;
}

const std::vector<wire::OptimizerSpec::Kind>& Steppers() {
  static const std::vector<wire::OptimizerSpec::Kind> kinds = {
      wire::OptimizerSpec::SGD, wire::OptimizerSpec::ADAM, wire::OptimizerSpec::ADAMW,
      wire::OptimizerSpec::TEST};
  return kinds;
}

ClaimedPayload Rows(const RowGrid& grid, const std::vector<uint32_t>& rows,
                    const std::vector<float>& dense) {
  Payload payload = Payload::Copy(RowsPayload(grid, rows, dense));
  const uint64_t hash = HashBytes(payload.bytes());
  return {.format = PayloadFormat::kRows, .payload = std::move(payload), .checksum = hash};
}

struct Tensors {
  explicit Tensors(size_t n)
      : before(RandomFloats(n, 1)), after(n, -77.0f), state0(RandomFloats(n, 2)), state1(n, 0.5f) {}
  std::vector<float> before, after, state0, state1;
};

TEST(RowsRound, StepsTheUnionOfTheRowsAsADenseRoundWouldAndNothingElse) {
  for (const RowGrid& grid :
       {RowGrid{.elements = 3 * kBlockElements + 17, .row_elements = 100, .skip = 30},
        RowGrid{.elements = 2 * kBlockElements, .row_elements = 6000, .skip = 5999},
        RowGrid{.elements = 50, .row_elements = 1, .skip = 0}}) {
    std::vector<std::vector<std::byte>> payloads;
    std::vector<uint8_t> touched(grid.elements, 0);
    for (uint64_t worker = 0; worker < 3; ++worker) {
      const std::vector<uint32_t> rows = SomeRows(grid, 0.2, worker);
      payloads.push_back(RowsPayload(grid, rows, RandomFloats(grid.elements, 10 + worker)));
      const std::vector<uint8_t> in = InRows(grid, rows);
      for (size_t i = 0; i < touched.size(); ++i) touched[i] |= in[i];
    }
    std::vector<PayloadView> views = {{.format = PayloadFormat::kAbsent, .bytes = {}}};
    for (const auto& bytes : payloads) views.push_back({PayloadFormat::kRows, bytes});
    for (const auto kind : Steppers()) {
      const auto optimizer = MakeOptimizer(SpecOf(kind));
      const auto input = [&](Tensors& t, bool touched_only) {
        return AggregateInput{.payloads = views,
                              .optimizer = optimizer.get(),
                              .step = optimizer->PlanStep({.contributors = 4}),
                              .before = t.before,
                              .after = t.after,
                              .state0 = t.state0,
                              .state1 = t.state1,
                              .touched_only = touched_only};
      };
      Tensors dense(grid.elements), lazy(grid.elements), in_place(grid.elements);
      const Tensors old(grid.elements);
      AggregateRound(input(dense, false), 0, grid.elements);
      AggregateRound(input(lazy, true), 0, grid.elements);
      AggregateInput same = input(in_place, true);
      same.after = in_place.before;
      AggregateRound(same, 0, grid.elements);
      for (size_t i = 0; i < grid.elements; ++i) {
        if (touched[i] == 0) {
          dense.after[i] = old.before[i];
          dense.state0[i] = old.state0[i];
          dense.state1[i] = old.state1[i];
        }
      }
      EXPECT_EQ(Difference(lazy.after, dense.after), "") << kind;
      EXPECT_EQ(Difference(lazy.state0, dense.state0), "") << kind;
      EXPECT_EQ(Difference(lazy.state1, dense.state1), "") << kind;
      EXPECT_EQ(Difference(in_place.before, dense.after), "") << kind;
    }
  }
}

// A tensor of 4 rows of 3 elements. The partition holds elements 2 to 10, so it has part of rows 0
// and 3 and all of rows 1 and 2.
class RowsPartition : public ::testing::Test {
 protected:
  static constexpr RowGrid kGrid = {.elements = 9, .row_elements = 3, .skip = 2};

  static std::unique_ptr<Partition> Make(const wire::OptimizerSpec& optimizer, uint32_t workers,
                                         wire::StoreMode mode = wire::DIST_SYNC,
                                         wire::DType dtype = wire::FLOAT32) {
    PartitionSpec spec;
    spec.name = "s:w";
    spec.offset = kGrid.skip;
    spec.elements = kGrid.elements;
    spec.row_elements = kGrid.row_elements;
    spec.num_workers = workers;
    spec.mode = mode;
    spec.dtype = dtype;
    return Partition::Create(spec, Raw(Counting()), MakeOptimizer(optimizer)).value();
  }
  static std::vector<float> Counting() { return {0, 1, 2, 3, 4, 5, 6, 7, 8}; }
  static std::vector<float> All(float value) { return std::vector<float>(kGrid.elements, value); }
  static void Push(Partition& partition, uint64_t round, uint32_t worker, ClaimedPayload payload) {
    const auto verdict = partition.Push(round, worker, kGrid.elements, std::move(payload));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    while (partition.HasCompleteRound()) partition.ApplyNextRound();
  }
  static std::vector<float> Weights(const Partition& partition) {
    return {partition.weights().begin(), partition.weights().end()};
  }
  static std::vector<float> Pulled(Partition& partition, const std::vector<uint32_t>& rows) {
    return Floats(partition.ShareRows(partition.version(), rows).payload);
  }
};

TEST_F(RowsPartition, RowsStepByTheHyperparametersThatCameWithThem) {
  auto partition = Make(SgdSpec(1), 1);
  wire::Hyper hyper;
  hyper.set_learning_rate(0.5);
  hyper.set_weight_decay(1);
  ASSERT_TRUE(partition->Push(1, 0, kGrid.elements, Rows(kGrid, {1}, All(2)), nullptr, hyper).ok());
  partition->ApplyNextRound();
  // w - 0.5 * (2 + w)
  EXPECT_THAT(Weights(*partition), ElementsAre(0, -0.5, 0, 0.5, 4, 5, 6, 7, 8));
  Push(*partition, 2, 0, Rows(kGrid, {3}, All(2)));
  EXPECT_THAT(Weights(*partition), ElementsAre(0, -0.5, 0, 0.5, 4, 5, 6, 5, 6));
}

TEST_F(RowsPartition, WithoutAnOptimizerTheSumReplacesTheValueAndOtherRowsAreZero) {
  auto partition = Make({}, 2);
  Push(*partition, 1, 0, Rows(kGrid, {0, 1}, All(10)));
  Push(*partition, 1, 1, Rows(kGrid, {1}, All(1)));
  EXPECT_THAT(Weights(*partition), ElementsAre(10, 11, 11, 11, 0, 0, 0, 0, 0));
}

TEST_F(RowsPartition, ADensePushOfTheSameRoundIsSummedAndAllRowsAreStepped) {
  wire::OptimizerSpec decaying = SgdSpec(1);
  decaying.set_weight_decay(0.5);
  auto partition = Make(decaying, 2);
  Push(*partition, 1, 0, Rows(kGrid, {3}, All(10)));
  Push(*partition, 1, 1, Raw(All(1)));
  EXPECT_THAT(Weights(*partition), ElementsAre(-1, -0.5, 0, 0.5, 1, 1.5, 2, -7.5, -7));
}

TEST_F(RowsPartition, ARoundOfRowsLeavesOtherRowsAndTheirDecayAlone) {
  wire::OptimizerSpec decaying = SgdSpec(1);
  decaying.set_weight_decay(0.5);
  auto partition = Make(decaying, 2);
  Push(*partition, 1, 0, Rows(kGrid, {3}, All(10)));
  Push(*partition, 1, 1, {});  // absent: it counts, and does not ask for a dense step
  EXPECT_THAT(Weights(*partition), ElementsAre(0, 1, 2, 3, 4, 5, 6, -6.5, -6));
  Push(*partition, 2, 0, Rows(kGrid, {}, All(0)));
  Push(*partition, 2, 1, Rows(kGrid, {}, All(0)));
  EXPECT_THAT(Weights(*partition), ElementsAre(0, 1, 2, 3, 4, 5, 6, -6.5, -6));
  EXPECT_EQ(partition->version(), 2);
}

TEST_F(RowsPartition, UnderDistAsyncEachPushStepsItsRows) {
  wire::OptimizerSpec test = SpecOf(wire::OptimizerSpec::TEST);
  auto partition = Make(test, 2, wire::DIST_ASYNC);
  Push(*partition, 1, 1, Rows(kGrid, {0}, All(4)));
  Push(*partition, 1, 0, Rows(kGrid, {0, 2}, All(2)));
  EXPECT_THAT(Weights(*partition), ElementsAre(3, 1, 2, 3, 5, 6, 7, 7, 8));
  EXPECT_EQ(partition->version(), 2);
}

TEST_F(RowsPartition, AMajorityIsTakenOfAllElements) {
  PartitionSpec spec = Make({}, 1)->spec();
  spec.combine = Combine::kMajority;
  auto partition = Partition::Create(spec, Raw(Counting()), MakeOptimizer(SgdSpec(1))).value();
  Push(*partition, 1, 0, Rows(kGrid, {0}, All(-3)));
  EXPECT_THAT(Weights(*partition), ElementsAre(1, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(RowsPartition, ARepeatedPushCountsOnceAndAnotherIsRefused) {
  auto partition = Make(SpecOf(wire::OptimizerSpec::TEST), 2);
  Push(*partition, 1, 0, Rows(kGrid, {1}, All(2)));
  EXPECT_EQ(partition->Push(1, 0, kGrid.elements, Rows(kGrid, {1}, All(2))).value(),
            PushVerdict::kDuplicate);
  EXPECT_EQ(partition->Push(1, 0, kGrid.elements, Rows(kGrid, {2}, All(2))).status().code(),
            absl::StatusCode::kAlreadyExists);
  Push(*partition, 1, 1, Rows(kGrid, {}, All(0)));
  EXPECT_THAT(Weights(*partition), ElementsAre(0, 2, 3, 4, 4, 5, 6, 7, 8));
}

TEST_F(RowsPartition, RowsOfAnotherTensorsShapeAreRefused) {
  auto partition = Make({}, 1);
  const auto refusal = [&](const RowGrid& grid) {
    const absl::Status status =
        partition->Push(1, 0, kGrid.elements, Rows(grid, {0}, All(1))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(
      refusal({.elements = 9, .row_elements = 4, .skip = 2}),
      HasSubstr("key s:w partition 0: push of worker 0 round 1: rows payload: expected rows "
                "of 3 elements, 2 of the first before the partition, got rows of 4, 2"));
  EXPECT_THAT(refusal({.elements = 9, .row_elements = 3, .skip = 1}),
              HasSubstr("got rows of 3, 1"));
  EXPECT_THAT(refusal({.elements = 8, .row_elements = 3, .skip = 2}),
              HasSubstr("elements: expected 9"));
}

TEST_F(RowsPartition, PulledRowsAreTheirPartsInOrderOfTheVersionAskedFor) {
  auto partition = Make(SpecOf(wire::OptimizerSpec::TEST), 1);
  EXPECT_THAT(Pulled(*partition, {0, 2, 3}), ElementsAre(0, 4, 5, 6, 7, 8));
  EXPECT_THAT(Pulled(*partition, {}), ElementsAre());
  Push(*partition, 1, 0, Rows(kGrid, {2}, All(2)));
  WireValue late = partition->ShareRows(/*wanted=*/0, std::vector<uint32_t>{2});
  EXPECT_EQ(late.version, 0);
  EXPECT_THAT(Floats(late.payload), ElementsAre(4, 5, 6));
  const WireValue now = partition->ShareRows(1, std::vector<uint32_t>{2});
  EXPECT_EQ(now.version, 1);
  EXPECT_THAT(Floats(now.payload), ElementsAre(5, 6, 7));
  EXPECT_EQ(now.hash, HashBytes(now.payload.bytes()));
  EXPECT_EQ(partition->ShareRows(1, {}).version, 1);
}

TEST_F(RowsPartition, PulledRowsAreWhatADensePullShowsInHalfPrecisionToo) {
  auto partition = Make(SpecOf(wire::OptimizerSpec::TEST), 1, wire::DIST_SYNC, wire::FLOAT16);
  Push(*partition, 1, 0, Rows(kGrid, {1, 3}, std::vector<float>(9, 0.2f)));
  std::vector<float> seen(9);
  const WireValue whole = partition->Share(1);
  ASSERT_EQ(whole.format, PayloadFormat::kRawF16);
  Decode(whole.format, whole.payload.bytes(), 9, 0, seen);
  EXPECT_NE(seen[1], Weights(*partition)[1]) << "not rounded: the test shows nothing";
  EXPECT_EQ(Pulled(*partition, {0, 1, 2, 3}), seen);
}

TEST_F(RowsPartition, RowNumbersOfAPullMustBeWholeRisingAndThere) {
  const auto parse = [](std::vector<uint32_t> rows, size_t cut) {
    std::string bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * 4 - cut);
    return ParsePulledRows(bytes, kGrid);
  };
  EXPECT_THAT(*parse({0, 1, 3}, 0), ElementsAre(0, 1, 3));
  EXPECT_THAT(std::string(parse({0, 1}, 1).status().message()), HasSubstr("got 7 in all"));
  EXPECT_THAT(std::string(parse({1, 1}, 0).status().message()), HasSubstr("rising ones under 4"));
  EXPECT_THAT(std::string(parse({4}, 0).status().message()), HasSubstr("under 4, got 4"));
  EXPECT_FALSE(parse({~uint32_t{0}, 0}, 0).ok());
}

// ---- the optimizer's state ----------------------------------------------------------------------

TEST_F(RowsPartition, StateThatWasSharedAndPutBackGoesOnBitForBit) {
  auto first = Make(SpecOf(wire::OptimizerSpec::ADAM), 1);
  auto second = Make(SpecOf(wire::OptimizerSpec::ADAM), 1);
  Push(*first, 1, 0, Raw(RandomFloats(9, 1)));
  const std::vector<float> weights = Weights(*first);
  auto third = Partition::Create(second->spec(), Raw(weights),
                                 MakeOptimizer(SpecOf(wire::OptimizerSpec::ADAM)))
                   .value();
  for (uint32_t tensor : {1u, 2u}) {
    wire::OptimizerState state;
    state.set_tensor(tensor);
    const WireValue value = first->ShareState(&state);
    EXPECT_EQ(state.kind(), wire::OptimizerSpec::ADAM);
    EXPECT_EQ(state.tensors(), 2u);
    EXPECT_EQ(state.updates(), 1u);
    state.set_load(1);
    ASSERT_TRUE(third->PutState(state, {.format = value.format, .payload = value.payload}).ok());
    // A late repeat of the same load changes nothing.
    EXPECT_TRUE(third->PutState(state, Raw(All(99))).ok());
  }
  Push(*first, 2, 0, Raw(RandomFloats(9, 2)));
  Push(*third, 1, 0, Raw(RandomFloats(9, 2)));
  EXPECT_EQ(Weights(*third), Weights(*first));
}

TEST_F(RowsPartition, StateOfAnotherOptimizerOrShapeIsRefused) {
  auto partition = Make(SgdSpec(0.1, 0.9), 1);
  wire::OptimizerState state;
  state.set_tensor(1);
  partition->ShareState(&state);
  state.set_load(1);
  const auto code = [&](const wire::OptimizerState& other, const ClaimedPayload& value) {
    return partition->PutState(other, value).code();
  };
  EXPECT_EQ(code(state, Raw({1, 2})), absl::StatusCode::kDataLoss);
  wire::OptimizerState other = state;
  other.set_kind(wire::OptimizerSpec::ADAM);
  EXPECT_EQ(code(other, Raw(All(1))), absl::StatusCode::kFailedPrecondition);
  other = state;
  other.set_tensors(2);
  EXPECT_EQ(code(other, Raw(All(1))), absl::StatusCode::kFailedPrecondition);
  for (uint32_t tensor : {0u, 2u}) {
    other = state;
    other.set_tensor(tensor);
    EXPECT_EQ(code(other, Raw(All(1))), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(code(state, {.format = PayloadFormat::kRows}), absl::StatusCode::kInvalidArgument);
  other = state;
  other.set_load(0);
  EXPECT_EQ(code(other, Raw(All(1))), absl::StatusCode::kInvalidArgument);
  other = state;
  // The next count would wrap to 0, and Adam's bias correction would be infinite.
  other.set_updates(~uint64_t{0});
  EXPECT_THAT(
      std::string(partition->PutState(other, Raw(All(1))).message()),
      HasSubstr("at most 4611686018427387904 updates, got load 1 and 18446744073709551615"));
  EXPECT_EQ(code(other, Raw(All(1))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(state, Raw(All(1))), absl::StatusCode::kOk);
}

TEST_F(RowsPartition, AnOptimizerWithoutStateHasNoneToShare) {
  auto partition = Make(SgdSpec(0.1), 1);
  wire::OptimizerState state;
  state.set_tensor(1);
  EXPECT_EQ(partition->ShareState(&state).format, PayloadFormat::kAbsent);
  EXPECT_EQ(state.tensors(), 0u);
}

}  // namespace
}  // namespace slimps
