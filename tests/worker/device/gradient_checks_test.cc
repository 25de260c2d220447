// SPDX-License-Identifier: Apache-2.0
#include "worker/device/gradient_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

using testing::ElementsAre;

constexpr std::chrono::seconds kLong(30);  // only a failing test waits this long

// Adds gradients of one value each, whose keys are their places, and notes what is reported.
// Reports run one at a time, so they need no lock.
struct Reports {
  void Add(GradientChecks* checks, std::span<float> value, absl::Status arrived) {
    GradientChecks::Node node;
    node.push_back({.key = added++, .arrived = std::move(arrived), .values = value});
    node.front().done = [this](KeyId key, const absl::StatusOr<float>& largest) {
      said.push_back(absl::StrCat(key, largest.ok()
                                           ? absl::StrCat(": ", *largest)
                                           : absl::StrCat(" ", largest.status().message())));
    };
    checks->Add(&node);
  }
  KeyId added = 0;
  std::vector<std::string> said;
};

TEST(GradientChecks, ReportsComeInTheOrderOfArrivalWhateverTheThreadsDo) {
  Reports reports;
  float values[] = {1, 2, 3};
  std::promise<void> others_checked;
  {
    // The first check ends only after that of the last, so they run at the same time.
    GradientChecks checks(/*threads=*/2, [&](std::span<float> value, ElementType) {
      if (value[0] == 1) {
        EXPECT_EQ(others_checked.get_future().wait_for(kLong), std::future_status::ready);
      }
      if (value[0] == 3) others_checked.set_value();
      return value[0];
    });
    reports.Add(&checks, {&values[0], 1}, absl::OkStatus());
    reports.Add(&checks, {&values[1], 1}, absl::OkStatus());
    reports.Add(&checks, {}, absl::InternalError("was lost"));
    reports.Add(&checks, {&values[2], 1}, absl::OkStatus());
  }
  EXPECT_THAT(reports.said, ElementsAre("0: 1", "1: 2", "2 was lost", "3: 3"));
}

TEST(GradientChecks, AddingWaitsForNoCheck) {
  Reports reports;
  float value = 1;
  std::promise<void> added;
  {
    GradientChecks checks(/*threads=*/1, [&, went_on = added.get_future().share()](
                                             std::span<float> read, ElementType) {
      EXPECT_EQ(went_on.wait_for(kLong), std::future_status::ready);
      return read[0];
    });
    for (int i = 0; i < 100; ++i) reports.Add(&checks, {&value, 1}, absl::OkStatus());
    added.set_value();
  }
  EXPECT_EQ(reports.said.size(), 100u) << "the destructor waits for all";
}

}  // namespace
}  // namespace slimps
