// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/residuals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/compress/codec/state/add_state.h"
#include "worker/saved/checked_content.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a tensor cut into partitions of `partition_elements`.
std::unique_ptr<TensorPlan> Tensor(const std::string& name, size_t elements,
                                   size_t partition_elements) {
  auto tensor = std::make_unique<TensorPlan>(
      TensorPlan{.key = Key(name), .info = {}, .elements = elements, .partitions = {}});
  for (size_t offset = 0; offset < elements; offset += partition_elements) {
    tensor->partitions.push_back({.server = 0,
                                  .offset = offset,
                                  .elements = std::min(partition_elements, elements - offset)});
  }
  return tensor;
}

class Residuals : public ::testing::Test {
 protected:
  // Returns tensors a (10 elements) and b (3), in partitions of `cut` elements.
  std::vector<const TensorPlan*> Tensors(size_t cut) {
    kept_.push_back(Tensor("a", 10, cut));
    kept_.push_back(Tensor("b", 3, cut));
    return {kept_[kept_.size() - 2].get(), kept_.back().get()};
  }

  // Sets residual i of `a` to i + 1, and of `b` to -(i + 1).
  static void Fill(StateStore& states, const std::vector<const TensorPlan*>& tensors) {
    for (const TensorPlan* tensor : tensors) {
      const float sign = tensor->key.typed_name() == "s:a" ? 1 : -1;
      for (uint32_t i = 0; i < tensor->partitions.size(); ++i) {
        const PartitionPlan& partition = tensor->partitions[i];
        CodecState& state = AddState(states, tensor->key.id(), i, partition.elements);
        for (size_t k = 0; k < partition.elements; ++k) {
          state.residual()[k] = sign * static_cast<float>(partition.offset + k + 1);
        }
      }
    }
  }
  static std::vector<float> All(StateStore& states, const TensorPlan& tensor) {
    std::vector<float> all;
    for (uint32_t i = 0; i < tensor.partitions.size(); ++i) {
      CodecState* const state = states.Find(tensor.key.id(), i);
      if (state == nullptr) continue;
      EXPECT_EQ(state->residual().size(), tensor.partitions[i].elements);
      all.insert(all.end(), state->residual().begin(), state->residual().end());
    }
    return all;
  }
  std::string Saved(size_t cut, float grad_scale = 2) {
    StateStore states;
    const auto tensors = Tensors(cut);
    Fill(states, tensors);
    return BuildResiduals(tensors, grad_scale, states);
  }
  std::string Refusal(std::string_view content, absl::StatusCode code, float grad_scale = 2) {
    StateStore states;
    const absl::Status refused = ParseResiduals(content, Tensors(4), grad_scale, &states);
    EXPECT_EQ(refused.code(), code) << refused;
    return std::string(refused.message());
  }

  std::vector<std::unique_ptr<TensorPlan>> kept_;
};

TEST_F(Residuals, AnyCutIsBroughtToAnyOther) {
  for (const size_t from : {1u, 3u, 4u, 10u, 100u}) {
    for (const size_t to : {1u, 2u, 4u, 7u, 100u}) {
      const auto tensors = Tensors(to);
      StateStore states;
      const absl::Status parsed = ParseResiduals(Saved(from), tensors, 2, &states);
      ASSERT_TRUE(parsed.ok()) << parsed;
      EXPECT_THAT(All(states, *tensors[0]), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
      EXPECT_THAT(All(states, *tensors[1]), ElementsAre(-1, -2, -3));
    }
  }
}

TEST_F(Residuals, KeysThatWereNotSavedBeginAtZeroAndNoStatesAreFine) {
  StateStore states, loaded;
  const auto tensors = Tensors(4);
  const std::vector<const TensorPlan*> one = {tensors[1]};
  Fill(states, one);
  ASSERT_TRUE(ParseResiduals(BuildResiduals(one, 1, states), tensors, 1, &loaded).ok());
  EXPECT_EQ(loaded.Find(Key("a").id(), 0), nullptr);
  EXPECT_THAT(All(loaded, *tensors[1]), ElementsAre(-1, -2, -3));
  ASSERT_TRUE(ParseResiduals(BuildResiduals(tensors, 1, StateStore()), tensors, 1, &loaded).ok());
  EXPECT_THAT(loaded.Keys(), IsEmpty());
}

TEST_F(Residuals, APolicysProgressComesBackAndMayBeSkipped) {
  StateStore states, loaded;
  const auto tensors = Tensors(4);
  Fill(states, tensors);
  const std::string progress("decided\0so", 10);
  const std::string content = BuildResiduals(tensors, 1, states, progress);
  std::string policy = "old";
  ASSERT_TRUE(ParseResiduals(content, tensors, 1, &loaded, &policy).ok());
  EXPECT_EQ(policy, progress);
  EXPECT_THAT(All(loaded, *tensors[1]), ElementsAre(-1, -2, -3));
  ASSERT_TRUE(ParseResiduals(content, tensors, 1, &loaded).ok());
  ASSERT_TRUE(
      ParseResiduals(BuildResiduals(tensors, 1, states), tensors, 1, &loaded, &policy).ok());
  EXPECT_EQ(policy, "");
}

TEST_F(Residuals, WhatAnotherCodecKeepsBesideThemIsLeftOut) {
  const auto tensors = Tensors(4);
  const Key memory = Key::Auxiliary("q", tensors[0]->key);
  const auto with = [&](size_t elements) {
    kept_.push_back(Tensor("", elements, elements));
    kept_.back()->key = memory;
    std::vector<const TensorPlan*> all = tensors;
    all.push_back(kept_.back().get());
    return all;
  };
  StateStore states;
  const auto saved = with(6);
  Fill(states, saved);
  const std::string content = BuildResiduals(saved, 1, states);
  for (const auto& there : {tensors, with(4)}) {
    StateStore loaded;
    const absl::Status parsed = ParseResiduals(content, there, 1, &loaded);
    ASSERT_TRUE(parsed.ok()) << parsed;
    EXPECT_THAT(All(loaded, *tensors[1]), ElementsAre(-1, -2, -3));
    EXPECT_EQ(loaded.Keys().size(), 2u);
    EXPECT_EQ(loaded.Find(memory.id(), 0), nullptr);
  }
  StateStore loaded;
  ASSERT_TRUE(ParseResiduals(content, with(6), 1, &loaded).ok());
  EXPECT_NE(loaded.Find(memory.id(), 0), nullptr);
}

TEST_F(Residuals, ContentOfAnotherJobIsRefusedByName) {
  kept_.push_back(Tensor("c", 3, 4));
  const std::vector<const TensorPlan*> other = {kept_.back().get()};
  EXPECT_THAT(Refusal(BuildResiduals(other, 2, StateStore()), absl::StatusCode::kInvalidArgument),
              HasSubstr("residuals: key s:c: expected a key of this store"));
  kept_.push_back(Tensor("b", 4, 4));
  const std::vector<const TensorPlan*> longer = {kept_.back().get()};
  EXPECT_THAT(Refusal(BuildResiduals(longer, 2, StateStore()), absl::StatusCode::kInvalidArgument),
              HasSubstr("key s:b: expected 3 elements, got 4"));
  EXPECT_THAT(Refusal(Saved(4), absl::StatusCode::kInvalidArgument, /*grad_scale=*/32),
              HasSubstr("expected those of gradients times grad_scale 32, got times 2"));
  kept_.push_back(Tensor("b", 3, 4));
  EXPECT_THAT(Refusal(BuildResiduals({kept_.back().get(), kept_.back().get()}, 2, StateStore()),
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("key s:b comes twice"));
}

TEST_F(Residuals, StatesThatDoNotGoWithTheirKeysAreRefused) {
  StateStore states;
  const auto tensors = Tensors(4);
  Fill(states, tensors);
  const std::vector<const TensorPlan*> one = {tensors[0]};
  EXPECT_THAT(Refusal(BuildResiduals(one, 2, states), absl::StatusCode::kInvalidArgument),
              HasSubstr("which is not listed"));
  EXPECT_THAT(Refusal(BuildResiduals(Tensors(5), 2, states), absl::StatusCode::kInvalidArgument),
              HasSubstr("expected 5 elements, got 4"))
      << "cut in another way than the content says";
}

TEST_F(Residuals, WhatIsDamagedOrOfAnotherKindIsRefused) {
  const std::string good = Saved(4);
  std::string bad = good;
  bad[good.size() / 2] = static_cast<char>(bad[good.size() / 2] ^ 1);
  EXPECT_THAT(Refusal(bad, absl::StatusCode::kDataLoss), HasSubstr("residuals: damaged"));
  EXPECT_THAT(Refusal(good.substr(0, good.size() - 1), absl::StatusCode::kDataLoss),
              HasSubstr("damaged"));
  EXPECT_THAT(Refusal("", absl::StatusCode::kInvalidArgument), HasSubstr("got 0 bytes"));
  EXPECT_THAT(Refusal("SLPSOPTS, and so on", absl::StatusCode::kInvalidArgument),
              HasSubstr("begins with SLPSRESI"));
  ContentBuilder newer("SLPSRESI");
  newer.Add(uint32_t{3});
  EXPECT_THAT(Refusal(std::move(newer).Seal(), absl::StatusCode::kInvalidArgument),
              HasSubstr("expected version 1 or 2, got 3"));
  ContentBuilder hostile("SLPSRESI");
  hostile.Add(uint32_t{1});
  hostile.Add(2.0f);
  hostile.Add(~uint32_t{0});  // the number of keys
  EXPECT_THAT(Refusal(std::move(hostile).Seal(), absl::StatusCode::kDataLoss),
              HasSubstr("a key's name: expected 4 more bytes, got 0"));
}

}  // namespace
}  // namespace slimps
