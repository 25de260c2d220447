// SPDX-License-Identifier: Apache-2.0
// Which answers are samples of a measured pull.
#include "worker/pull/measured_pull.h"

#include <array>
#include <utility>
#include <vector>

#include "compress/format/lanes.h"
#include "compress/kernels/wire_lanes.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

constexpr size_t kElements = 16;

Answer AnswerOf(wire::Format format, std::vector<std::byte> payload) {
  Answer answer{.round_trip = absl::Milliseconds(1)};
  answer.pull.set_version(2);
  answer.pull.set_elements(kElements);
  answer.pull.set_format(format);
  answer.payload = Payload::Copy(payload);
  return answer;
}

bool IsSample(const Answer& answer) {
  TensorPlan tensor{.key = Key("w"), .info = {}, .elements = kElements, .partitions = {}};
  tensor.partitions.push_back({.server = 0, .offset = 0, .elements = kElements});
  MeasuredPull measured(&tensor, /*version=*/2, MachineClock());
  measured.Add(0, answer, MachineClock()->Now(), /*change_codec=*/"");
  return measured.result().has_value();
}

TEST(MeasuredPull, ASumOfIntegersIsASampleOfARawPullAsFloatsAre) {
  EXPECT_TRUE(IsSample(AnswerOf(wire::RAW_F32, std::vector<std::byte>(kElements * sizeof(float)))));
  const LanesLayout layout = {.bits = 4,
                              .largest = kCodeTable[15],
                              .elements = kElements,
                              .table = std::to_array(kCodeTable)};
  std::vector<std::byte> lanes(layout.PayloadBytes());
  BuildLanesHeader(layout, lanes);
  EXPECT_TRUE(IsSample(AnswerOf(wire::ROTATED, lanes)));
  EXPECT_FALSE(
      IsSample(AnswerOf(wire::RAW_F16, std::vector<std::byte>(kElements * sizeof(uint16_t)))));
}

}  // namespace
}  // namespace slimps
