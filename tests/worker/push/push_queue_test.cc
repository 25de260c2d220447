// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_queue.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace slimps {
namespace {

class PushQueueTest : public ::testing::Test {
 protected:
  TensorPlan Plan(const std::string& name) {
    return TensorPlan{.key = Key(name), .info = {}, .partitions = {}};
  }
  EncodeWork Work(const TensorPlan& tensor, uint64_t round, size_t partition = 0,
                  int priority = 0) {
    return {.job = std::make_shared<const PushJob>(
                PushJob{.tensor = &tensor, .round = round, .priority = priority}),
            .grad_bufs = {},
            .partition = partition};
  }
  void Add(EncodeWork work) {
    std::vector<EncodeWork> works;
    works.push_back(std::move(work));
    queue_.Add(std::move(works));
  }
  // Begins a work and says which: "w2/1" is partition 1 of w in round 2; "": none may begin.
  std::string Begin() {
    std::optional<EncodeWork> work = queue_.Begin();
    if (!work.has_value()) return "";
    begun_.push_back(*work);
    return std::string(work->job->tensor->key.typed_name()).substr(2) +
           std::to_string(work->job->round) + "/" + std::to_string(work->partition);
  }

  const TensorPlan v_ = Plan("v"), w_ = Plan("w");
  PushQueue queue_{4};
  std::vector<EncodeWork> begun_;
};

TEST_F(PushQueueTest, AnEarlierRoundThenAHigherPriorityThenWhatCameFirst) {
  Add(Work(v_, 2));
  Add(Work(v_, 1, 0, -1));
  Add(Work(w_, 1, 1));
  Add(Work(w_, 1, 0));
  EXPECT_EQ(Begin(), "w1/1");
  EXPECT_EQ(Begin(), "w1/0");
  EXPECT_EQ(Begin(), "v1/0");
  EXPECT_EQ(queue_.size(), 1u);
}

TEST_F(PushQueueTest, APartitionsRoundsTakeTurnsAndOthersPass) {
  Add(Work(w_, 1));
  Add(Work(w_, 2));
  Add(Work(w_, 2, 1));
  EXPECT_EQ(Begin(), "w1/0");
  EXPECT_EQ(Begin(), "w2/1");
  EXPECT_FALSE(queue_.CanBegin());
  EXPECT_EQ(Begin(), "");
  queue_.End(begun_[1]);
  EXPECT_EQ(Begin(), "") << "the other partition is still being encoded";
  queue_.End(begun_[0]);
  EXPECT_EQ(Begin(), "w2/0");
}

TEST_F(PushQueueTest, AWholeTensorIsAloneAndNothingPassesIt) {
  Add(Work(v_, 1));
  EncodeWork measured = Work(w_, 2);
  measured.whole_tensor = true;
  Add(measured);
  Add(Work(v_, 3, 1));
  EXPECT_EQ(Begin(), "v1/0");
  EXPECT_EQ(Begin(), "");
  queue_.End(begun_[0]);
  EXPECT_EQ(Begin(), "w2/0");
  EXPECT_EQ(Begin(), "");
  queue_.End(begun_[1]);
  EXPECT_EQ(Begin(), "v3/1");
}

TEST_F(PushQueueTest, NothingBeginsWhileItIsClosed) {
  Add(Work(v_, 1));
  EXPECT_TRUE(queue_.idle());
  queue_.Close();
  EXPECT_FALSE(queue_.idle());
  EXPECT_EQ(Begin(), "");
  queue_.Open();
  EXPECT_EQ(Begin(), "v1/0");
  EXPECT_FALSE(queue_.idle());
  queue_.End(begun_[0]);
  EXPECT_TRUE(queue_.idle());
}

}  // namespace
}  // namespace slimps
