// SPDX-License-Identifier: Apache-2.0
// The contract of BackupModel, call by call, on one thread.
#include "backup_model/backup_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "proto/base/clock.h"

namespace slimps {
namespace {

using Values = std::vector<float>;

// A deadline in the past. Calls do not wait; what is not there yet counts as missing.
const SteadyTime kNow = SteadyTime::InfinitePast();

SteadyTime Soon() { return MachineClock()->Now() + absl::Seconds(30); }

std::unique_ptr<BackupModel> MakeModel(const Values& initial = {10, 20},
                                       LocalUpdaterOptions updater = {.learning_rate = 1}) {
  const BackupTensor tensors[] = {{"s:w", initial}, {"s:b", initial}};
  auto model = BackupModel::Create({.updater = updater, .on_event = nullptr}, tensors);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

Values Read(BackupModel& model, int64_t iteration) {
  auto lease = model.AcquireRead(0, iteration, kNow);
  EXPECT_TRUE(lease.ok()) << lease.status();
  if (!lease.ok()) return {};
  return Values(lease->weights().begin(), lease->weights().end());
}

void Arrive(BackupModel& model, int64_t version, const Values& weights) {
  auto glo_buf = model.BeginGlobalWrite(0, version);
  ASSERT_TRUE(glo_buf.ok()) << glo_buf.status();
  std::ranges::copy(weights, glo_buf->begin());
  ASSERT_TRUE(model.CommitGlobal(0, version).ok());
}

TEST(BackupModel, ComputesInBuffersOfItsOwnersAndKeepsThem) {
  const auto memory = std::make_shared<Values>(4);
  const BackupBuffer glo_buf = {.floats = std::span(*memory).first(2), .owner = memory};
  const BackupBuffer loc_buf = {.floats = std::span(*memory).last(2), .owner = memory};
  const Values initial = {10, 20};
  std::ranges::copy(initial, glo_buf.floats.begin());
  const BackupTensor tensors[] = {
      {.name = "s:w", .initial = glo_buf.floats, .glo_buf = glo_buf, .loc_buf = loc_buf}};
  auto model = BackupModel::Create({.updater = {.learning_rate = 1}, .on_event = nullptr}, tensors);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Read(**model, 1), initial);
  ASSERT_TRUE((*model)->FinishIteration(0, 1, Values{1, 2}, kNow).ok());
  EXPECT_EQ(*memory, (Values{10, 20, 9, 18}));
  Arrive(**model, 1, {100, 200});
  EXPECT_EQ(*memory, (Values{100, 200, 9, 18}));
  EXPECT_EQ((*model)->Global(0).data(), memory->data());
  EXPECT_GT(memory.use_count(), 3);
  *model = nullptr;
  const BackupTensor longer[] = {{.name = "s:w",
                                  .initial = initial,
                                  .loc_buf = {.floats = std::span(*memory), .owner = memory}}};
  EXPECT_EQ(BackupModel::Create({}, longer).status(),
            absl::InvalidArgumentError("tensor s:w: loc_buf: expected 2 elements, got 4"));
}

TEST(BackupModel, AStepMayGoIntoTheCallersMemory) {
  const Values initial = {10, 20}, gradient = {1, 2};
  const BackupTensor tensors[] = {{"s:w", initial}};
  const BackupModelOptions options = {.updater = {.learning_rate = 1}, .on_event = nullptr};
  auto model = *BackupModel::Create(options, tensors);
  auto same = *BackupModel::Create(options, tensors);
  Values memory[2] = {{0, 0}, {0, 0}};
  for (int64_t i = 1; i <= 2; ++i) {
    EXPECT_EQ(Read(*model, i), Read(*same, i));
    ASSERT_TRUE(same->FinishIteration(0, i, gradient, kNow).ok());
    ASSERT_TRUE(model->FinishIteration(0, i, gradient, kNow, memory[i % 2]).ok());
    EXPECT_EQ(memory[i % 2], Read(*same, i + 1));
    for (BackupModel* each : {model.get(), same.get()}) Arrive(*each, i, {100, 200});
  }
  EXPECT_EQ(memory[1], (Values{9, 18})) << "left alone by the second step";
  model->KeepLocal(0, memory[1]);
  EXPECT_EQ(model->AcquireRead(0, 3, kNow)->weights().data(), memory[0].data());
  model->KeepLocal(0, memory[0]);
  memory[0] = {0, 0};
  EXPECT_EQ(*model->Save(2, kNow), *same->Save(2, kNow));
  Values longer(3);
  EXPECT_EQ(
      model->FinishIteration(0, 3, gradient, kNow, longer),
      absl::InvalidArgumentError("tensor s:w: loc_buf of iteration 3 has 3 elements, expected 2"));
}

TEST(BackupModel, IterationOneComputesOnVersionZero) {
  auto model = MakeModel();
  EXPECT_EQ(Read(*model, 1), (Values{10, 20}));
  EXPECT_EQ(Values(model->Global(0).begin(), model->Global(0).end()), (Values{10, 20}));
}

TEST(BackupModel, EachIterationComputesOnTheVersionBeforePlusItsOwnGradient) {
  auto model = MakeModel();
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 2}, kNow).ok());
  EXPECT_EQ(Read(*model, 2), (Values{9, 18}));  // version 0 - g_1
  Arrive(*model, 1, {100, 200});
  EXPECT_EQ(Read(*model, 2), (Values{9, 18})) << "version 1 is there, but belongs to iteration 3";
  ASSERT_TRUE(model->FinishIteration(0, 2, Values{3, 4}, kNow).ok());
  EXPECT_EQ(Read(*model, 3), (Values{97, 196}));  // version 1 - g_2
}

TEST(BackupModel, AnIterationWithoutGradientLeavesTheGlobalWeights) {
  auto model = MakeModel({10, 20}, {.update = {.momentum = 0.5}, .learning_rate = 1});
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{2, 2}, kNow).ok());
  Arrive(*model, 1, {50, 60});
  Read(*model, 2);
  ASSERT_TRUE(model->FinishIteration(0, 2, {}, kNow).ok());
  EXPECT_EQ(Read(*model, 3), (Values{50, 60}));
  Arrive(*model, 2, {0, 0});
  ASSERT_TRUE(model->FinishIteration(0, 3, Values{1, 1}, kNow).ok());
  EXPECT_EQ(Read(*model, 4), (Values{-2, -2}))
      << "momentum 0.5 * 2 + 1, as if iteration 2 were not";
}

TEST(BackupModel, TheLagNeverExceedsOneRound) {
  auto model = MakeModel();
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  Read(*model, 2);
  // Round 1 has not arrived, so iteration 2 cannot end and iteration 3 cannot begin.
  const absl::Status late = model->FinishIteration(0, 2, Values{1, 1}, kNow);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.message().find("tensor s:w: waited in vain for version 1 in glo_buf"),
            absl::string_view::npos)
      << late;
  EXPECT_EQ(model->AcquireRead(0, 3, kNow).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Read(*model, 2), (Values{9, 19})) << "a wait in vain changes nothing";
  Arrive(*model, 1, {5, 5});
  EXPECT_TRUE(model->FinishIteration(0, 2, Values{1, 1}, kNow).ok());
}

TEST(BackupModel, GloBufIsNotHandedOutWhileItsVersionIsUnmerged) {
  auto model = MakeModel();
  EXPECT_EQ(model->BeginGlobalWrite(0, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  EXPECT_EQ(model->BeginGlobalWrite(0, 2).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(model->BeginGlobalWrite(0, 1).ok());
  EXPECT_EQ(model->BeginGlobalWrite(0, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(model->CommitGlobal(0, 2).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(model->CommitGlobal(0, 1).ok());
  EXPECT_EQ(model->CommitGlobal(0, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(model->BeginGlobalWrite(0, 2).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(BackupModel, AHalfWrittenVersionIsNotMerged) {
  auto model = MakeModel();
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  auto glo_buf = model->BeginGlobalWrite(0, 1);
  ASSERT_TRUE(glo_buf.ok());
  (*glo_buf)[0] = 1000;
  Read(*model, 2);
  EXPECT_EQ(model->FinishIteration(0, 2, Values{1, 1}, kNow).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(model->Drain(1, kNow).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(BackupModel, NothingIsWrittenUnderALease) {
  auto model = MakeModel();
  auto first = model->AcquireRead(0, 1, kNow);
  auto second = model->AcquireRead(0, 1, kNow);
  ASSERT_TRUE(first.ok() && second.ok());
  const Values gradient = {1, 1};
  EXPECT_FALSE(model->FinishIteration(0, 1, gradient, kNow).ok());
  { BackupModel::ReadLease moved = *std::move(first); }
  EXPECT_FALSE(model->FinishIteration(0, 1, gradient, kNow).ok());
  EXPECT_EQ(second->weights()[0], 10);
  // Releases the second and takes over nothing: the first was moved.
  *second = *std::move(first);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(second->weights().empty());
  EXPECT_TRUE(model->FinishIteration(0, 1, gradient, kNow).ok());
}

TEST(BackupModel, LocBufIsAlignedAndStaysWhereItIs) {
  auto model = MakeModel();
  const float* address = nullptr;
  for (int64_t i = 1; i <= 5; ++i) {
    {
      auto lease = model->AcquireRead(0, i, kNow);
      ASSERT_TRUE(lease.ok());
      if (i == 1) address = lease->weights().data();
      EXPECT_EQ(lease->weights().data(), address);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
    }
    ASSERT_TRUE(model->FinishIteration(0, i, Values{1, 1}, kNow).ok());
    Arrive(*model, i, {1, 1});
  }
}

TEST(BackupModel, CallsOutOfTurnAreRefusedAtOnceAndByName) {
  auto model = MakeModel();
  // Waiting cannot make any of these calls succeed, so none of them waits for its deadline.
  const absl::Status unread =
      model->FinishIteration(0, 1, Values{1, 1}, SteadyTime::InfiniteFuture());
  EXPECT_EQ(unread.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(unread.message().find("s:w"), absl::string_view::npos) << unread;
  Read(*model, 1);
  EXPECT_EQ(model->FinishIteration(0, 2, Values{1, 1}, SteadyTime::InfiniteFuture()).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  EXPECT_EQ(model->FinishIteration(0, 1, Values{1, 1}, SteadyTime::InfiniteFuture()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(model->AcquireRead(0, 1, SteadyTime::InfiniteFuture()).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "iteration 1 is over";
}

TEST(BackupModel, WrongLengthsAndUnknownTensorsAreInvalid) {
  auto model = MakeModel();
  Read(*model, 1);
  const absl::Status length = model->FinishIteration(0, 1, Values{1, 1, 1}, kNow);
  EXPECT_EQ(length.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(length.message().find("has 3 elements, expected 2"), absl::string_view::npos) << length;
  EXPECT_EQ(model->num_tensors(), 2u);
  EXPECT_EQ(model->AcquireRead(2, 1, kNow).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model->BeginGlobalWrite(2, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model->CommitGlobal(2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model->WaitGlobal(2, 1, kNow).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model->FinishIteration(2, 1, {}, kNow).code(), absl::StatusCode::kInvalidArgument);
  const auto bad = BackupModel::Create({.updater = {.learning_rate = -1}, .on_event = nullptr}, {});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BackupModel, DrainWaitsForEveryTensor) {
  auto model = MakeModel();
  EXPECT_TRUE(model->Drain(0, kNow).ok());
  for (size_t t = 0; t < 2; ++t) {
    ASSERT_TRUE(model->AcquireRead(t, 1, kNow).ok());
    ASSERT_TRUE(model->FinishIteration(t, 1, Values{1, 1}, kNow).ok());
  }
  Arrive(*model, 1, {7, 8});
  const absl::Status waiting = model->Drain(1, kNow);
  EXPECT_EQ(waiting.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(waiting.message().find("s:b"), absl::string_view::npos) << waiting;
  ASSERT_TRUE(model->BeginGlobalWrite(1, 1).ok());
  ASSERT_TRUE(model->CommitGlobal(1, 1).ok());
  EXPECT_TRUE(model->Drain(1, kNow).ok());
  EXPECT_EQ(model->Global(0)[1], 8);
}

TEST(BackupModel, TheLearningRateFollowsItsSchedule) {
  auto model = MakeModel({10, 20}, {.learning_rate = 1, .loc_lr = 2});
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  EXPECT_EQ(Read(*model, 2), (Values{8, 18}));
  Arrive(*model, 1, {0, 0});
  model->set_learning_rate(0.5);
  ASSERT_TRUE(model->FinishIteration(0, 2, Values{1, 1}, kNow).ok());
  EXPECT_EQ(Read(*model, 3), (Values{-1, -1})) << "loc_lr stays twice the global rate";
}

TEST(BackupModel, ATensorMayHaveHyperparametersOfItsOwn) {
  auto model = MakeModel({10, 20}, {.update = {.weight_decay = 0.5}, .learning_rate = 1});
  const auto finish = [&](size_t tensor, int64_t iteration) {
    ASSERT_TRUE(model->AcquireRead(tensor, iteration, kNow).ok());
    ASSERT_TRUE(model->FinishIteration(tensor, iteration, Values{2, 2}, kNow).ok());
  };
  const auto weights = [&](size_t tensor, int64_t iteration) {
    const auto lease = model->AcquireRead(tensor, iteration, kNow);
    return Values(lease->weights().begin(), lease->weights().end());
  };
  finish(0, 1);
  EXPECT_EQ(weights(0, 2), (Values{10 - (2 + 5), 20 - (2 + 10)}));
  ASSERT_TRUE(model->SetHyper(0, {.learning_rate = 0.25, .weight_decay = 0.1}).ok());
  EXPECT_EQ(weights(0, 2), (Values{3, 8})) << "from the next FinishIteration on";
  model->set_learning_rate(4);  // of all other tensors
  finish(1, 1);
  EXPECT_EQ(weights(1, 2), (Values{10 - 4 * (2 + 5), 20 - 4 * (2 + 10)}));
  Arrive(*model, 1, {10, 20});
  ASSERT_TRUE(model->FinishIteration(0, 2, Values{2, 2}, kNow).ok());
  EXPECT_EQ(weights(0, 3), (Values{10 - 0.25f * (2 + 0.1f * 10), 20 - 0.25f * (2 + 0.1f * 20)}));
  Arrive(*model, 2, {10, 20});
  ASSERT_TRUE(model->SetHyper(0, {.learning_rate = 0, .weight_decay = 7}).ok());
  ASSERT_TRUE(model->FinishIteration(0, 3, Values{2, 2}, kNow).ok());
  EXPECT_EQ(weights(0, 4), (Values{10, 20}));
}

TEST(BackupModel, HyperparametersOutOfRangeAreRefusedAndTheOldOnesHold) {
  auto model = MakeModel();
  ASSERT_TRUE(model->SetHyper(0, {.learning_rate = 2}).ok());
  const std::pair<Hyper, const char*> bad[] = {
      {{.learning_rate = -1}, "tensor s:w: local updater: learning_rate is -1"},
      {{.learning_rate = NAN}, "learning_rate is nan"},
      {{.learning_rate = INFINITY}, "learning_rate is inf"},
      {{.weight_decay = -0.5}, "tensor s:w: local updater: weight_decay is -0.5"},
      {{.momentum = 1}, "tensor s:w: local updater: momentum is 1"}};
  for (const auto& [hyper, words] : bad) {
    const absl::Status refused = model->SetHyper(0, hyper);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find(words), absl::string_view::npos) << refused;
  }
  EXPECT_EQ(model->SetHyper(2, {.learning_rate = 1}).code(), absl::StatusCode::kInvalidArgument);
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  EXPECT_EQ(Read(*model, 2), (Values{8, 18}));
}

TEST(BackupModel, AfterFailAllEveryCallTellsTheFirstCause) {
  auto model = MakeModel();
  Read(*model, 1);
  ASSERT_TRUE(model->FinishIteration(0, 1, Values{1, 1}, kNow).ok());
  ASSERT_TRUE(model->BeginGlobalWrite(0, 1).ok());
  auto lease = model->AcquireRead(0, 2, kNow);
  model->FailAll(absl::OkStatus());  // no failure
  const absl::Status cause = absl::UnavailableError("server 1 is gone");
  model->FailAll(cause);
  model->FailAll(absl::InternalError("later"));
  EXPECT_EQ(model->CommitGlobal(0, 1), cause);
  EXPECT_EQ(model->FinishIteration(0, 2, Values{1, 1}, Soon()), cause);
  EXPECT_EQ(model->AcquireRead(1, 1, Soon()).status(), cause);
  EXPECT_EQ(model->BeginGlobalWrite(1, 1).status(), cause);
  EXPECT_EQ(model->Drain(1, Soon()), cause);
  EXPECT_EQ(model->SetHyper(1, {.learning_rate = 1}), cause);
  EXPECT_EQ(lease->weights()[0], 9) << "what is held can still be read, and given back";
}

}  // namespace
}  // namespace slimps
