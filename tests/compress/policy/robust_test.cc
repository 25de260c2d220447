// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/robust.h"

#include "gtest/gtest.h"

namespace slimps {
namespace {

TEST(TrimmedMean, IsTheMeanOfTheMiddleHalf) {
  EXPECT_EQ(TrimmedMean({}), 0);
  EXPECT_EQ(TrimmedMean({7}), 7);
  EXPECT_EQ(TrimmedMean({7, 9}), 8);
  EXPECT_EQ(TrimmedMean({1000, 7, 9}), 9);
  EXPECT_EQ(TrimmedMean({-1000, 9, 1000, 7}), 8);
  EXPECT_EQ(TrimmedMean({1, 2, 3, 4, 5, 6, 7, 1000}), 4);  // the mean of 3, 4, 5, 6
}

TEST(SampleWindow, KeepsTheNewest) {
  SampleWindow window(3);
  EXPECT_TRUE(window.empty());
  EXPECT_EQ(window.average(), 0);
  for (const int64_t value : {100, 100, 100, 1, 1}) window.Add(value);
  EXPECT_EQ(window.size(), 3u);
  EXPECT_EQ(window.average(), 1);
  for (const int64_t value : {5, 5, 5}) window.Add(value);
  EXPECT_EQ(window.average(), 5);
}

}  // namespace
}  // namespace slimps
