// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/gradient_statistics.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/models/models.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GradientStatistics, AreReadLineByLine) {
  const auto parsed = ParseRecording(
      "# a comment\n"
      "fc.weight 10 20 0.5 0.25 0.1 1.5 0.2 2 0.1 0.2 0.3 0.4 0.5 0.6\n"
      "fc.bias 10 1 0.01 -0.5 0 0.3 0 0\n"
      "fc.unused 4 5 0\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 3u);
  const RecordedTensor& weight = parsed->at("fc.weight");
  EXPECT_EQ(weight.rows, 10u);
  EXPECT_EQ(weight.cols, 20u);
  EXPECT_EQ(weight.gradient.rms, 0.5);
  EXPECT_EQ(weight.gradient.cosine, 0.25);
  EXPECT_EQ(weight.gradient.zero_rows, 0.1);
  EXPECT_EQ(weight.gradient.row_spread, 1.5);
  EXPECT_EQ(weight.gradient.zero_cols, 0.2);
  EXPECT_EQ(weight.gradient.col_spread, 2);
  EXPECT_THAT(weight.gradient.energy, ElementsAre(0.1, 0.2, 0.3, 0.4, 0.5, 0.6));
  EXPECT_THAT(parsed->at("fc.bias").gradient.energy, IsEmpty());
  EXPECT_EQ(parsed->at("fc.unused").gradient.rms, 0);
}

TEST(GradientStatistics, AWrongLineIsRefusedWithItsNumber) {
  for (const char* line : {
           "fc.weight", "fc.weight 10 20", "fc.weight 10 20 0.5", "fc.weight 10 x 0",
           "fc.weight 10 20 0.5 0.25 0.1 1.5 0.2", "fc.weight 10 20 -1 0 0 0 0 0",
           "fc.weight 10 20 1 0 1.5 0 0 0", "fc.weight 10 20 1 0 0 0 nan 0",
           "fc.weight 10 20 0.5 0.25 0.1 1.5 0.2 2 0.2 0.1 0.3 0.4 0.5 0.6"  // energy falls
       }) {
    const auto parsed = ParseRecording(std::string("# first\n") + line);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(parsed.status().message(), HasSubstr("line 2: expected NAME ROWS COLS")) << line;
  }
  EXPECT_THAT(ParseRecording("a 1 1 0\na 1 1 0").status().message(),
              HasSubstr("line 2: a is there twice"));
}

// FindModel checks that a recording has a line for every tensor.
TEST(GradientStatistics, EveryModelHasARecordingThatTellsItsTensorsApart) {
  for (const std::string& name : ModelNames()) {
    EXPECT_FALSE(RecordingOf(name).empty()) << name;
    const auto model = FindModel(name);
    ASSERT_TRUE(model.ok()) << model.status();
    double least = 1e30, most = 0;
    for (const ModelTensor& tensor : model->tensors) {
      if (tensor.cols() == 1) continue;
      ASSERT_EQ(tensor.gradient.energy.size(), 6u) << name << " " << tensor.name;
      least = std::min(least, tensor.gradient.energy[0]);
      most = std::max(most, tensor.gradient.energy[0]);
    }
    EXPECT_GT(most, 1.3 * least) << name;
  }
}

}  // namespace
}  // namespace slimps
