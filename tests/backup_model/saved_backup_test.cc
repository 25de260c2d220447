// SPDX-License-Identifier: Apache-2.0
// A backup model that is saved goes on as if it had not been stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backup_model/backup_model.h"

namespace slimps {
namespace {

using Values = std::vector<float>;

SteadyTime Soon() { return MachineClock()->Now() + absl::Seconds(30); }

std::unique_ptr<BackupModel> Make(const LocalUpdaterOptions& updater, const Values& initial) {
  const BackupTensor tensors[] = {{"s:w", initial}};
  auto model = BackupModel::Create({.updater = updater, .on_event = nullptr}, tensors);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// The global weights of a version, and the gradient of an iteration.
Values Global(int64_t version) {
  return {static_cast<float>(100 - 3 * version * version), static_cast<float>(7 * version)};
}
Values Gradient(int64_t iteration) { return {static_cast<float>(iteration), 2.5f}; }

// Runs iterations `first` to `last`, and returns w_loc after the last.
Values Iterate(BackupModel& model, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) {
    EXPECT_TRUE(model.AcquireRead(0, i, Soon()).ok());
    EXPECT_TRUE(model.FinishIteration(0, i, Gradient(i), Soon()).ok());
    const auto glo_buf = model.BeginGlobalWrite(0, i);
    EXPECT_TRUE(glo_buf.ok());
    std::ranges::copy(Global(i), glo_buf->begin());
    EXPECT_TRUE(model.CommitGlobal(0, i).ok());
  }
  const auto lease = model.AcquireRead(0, last + 1, Soon());
  EXPECT_TRUE(lease.ok()) << lease.status();
  return Values(lease->weights().begin(), lease->weights().end());
}

TEST(SavedBackup, ItGoesOnWhereItWas) {
  const LocalUpdaterOptions kinds[] = {
      {.learning_rate = 0.1},
      {.update = {.momentum = 0.9}, .learning_rate = 0.1},
      {.update = {.momentum = 0.9}, .moments = Moments::kServers, .learning_rate = 0.1},
      {.update = {.kind = UpdateKind::kAdam}, .moments = Moments::kServers, .learning_rate = 0.1},
  };
  for (const LocalUpdaterOptions& kind : kinds) {
    const auto whole = Make(kind, Global(0));
    Iterate(*whole, 1, 3);
    const auto saved = whole->Save(3, Soon());
    ASSERT_TRUE(saved.ok()) << saved.status();
    const auto resumed = Make(kind, Global(3));
    ASSERT_TRUE(resumed->Restore(3, *saved).ok());
    EXPECT_EQ(Iterate(*resumed, 4, 6), Iterate(*whole, 4, 6));
  }
}

TEST(SavedBackup, WhatDoesNotFitIsRefused) {
  const auto model = Make({.learning_rate = 1}, {1, 2});
  const std::string saved = *model->Save(0, Soon());
  const auto refused = [&](const std::string& content, const Values& initial) {
    return Make({.learning_rate = 1}, initial)->Restore(1, content).code();
  };
  EXPECT_EQ(refused(saved, {1, 2}), absl::StatusCode::kOk);
  EXPECT_EQ(refused(saved, {1, 2, 3}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(saved + "x", {1, 2}), absl::StatusCode::kInvalidArgument);
  for (size_t length = 0; length < saved.size(); ++length) {
    EXPECT_EQ(refused(saved.substr(0, length), {1, 2}), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace slimps
