// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace slimps {
namespace {

class CheckpointFolder : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }

  void Make(size_t step) { std::filesystem::create_directories(CheckpointOf(folder_, step)); }
  void MakeWhole(size_t step) {
    Make(step);
    std::ofstream(CheckpointOf(folder_, step) + "/manifest.json") << "{}";
  }
  bool Has(size_t step) const { return std::filesystem::exists(CheckpointOf(folder_, step)); }

  const std::string folder_ = ::testing::TempDir() + "/run";
};

TEST_F(CheckpointFolder, TheNewestWholeOneIsFound) {
  EXPECT_EQ(FindCheckpoint(folder_).status().code(), absl::StatusCode::kNotFound);
  MakeWhole(5);
  MakeWhole(100);
  Make(200);
  EXPECT_EQ(*FindCheckpoint(folder_), folder_ + "/step-000000100");
  EXPECT_EQ(*FindCheckpoint(CheckpointOf(folder_, 5)), CheckpointOf(folder_, 5));
  EXPECT_EQ(FindCheckpoint(CheckpointOf(folder_, 200)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFolder, ALaterWholeOneIsRefused) {
  MakeWhole(10);
  Make(30);  // one that failed
  EXPECT_TRUE(CheckNoLaterCheckpoint(folder_, 10).ok());
  const absl::Status later = CheckNoLaterCheckpoint(folder_, 9);
  EXPECT_EQ(later.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(later.message().find(CheckpointOf(folder_, 10)), absl::string_view::npos) << later;
}

TEST_F(CheckpointFolder, TwoWholeOnesAreKeptBesideTheOneUnderWay) {
  for (const size_t step : {10, 20, 30}) MakeWhole(step);
  Make(25);  // one that failed
  Make(40);
  RemoveOldCheckpoints(folder_ + "/", 40);
  EXPECT_FALSE(Has(10));
  EXPECT_TRUE(Has(20));
  EXPECT_FALSE(Has(25));
  EXPECT_TRUE(Has(30));
  EXPECT_TRUE(Has(40));
}

}  // namespace
}  // namespace slimps
