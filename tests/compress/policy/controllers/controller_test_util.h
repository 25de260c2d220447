// SPDX-License-Identifier: Apache-2.0
// Reports for the tests of controllers.
#ifndef SLIMPS_TESTS_COMPRESS_POLICY_CONTROLLERS_CONTROLLER_TEST_UTIL_H_
#define SLIMPS_TESTS_COMPRESS_POLICY_CONTROLLERS_CONTROLLER_TEST_UTIL_H_

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "compress/policy/controllers/controller.h"
#include "gtest/gtest.h"

namespace slimps {

inline std::unique_ptr<Controller> Make(const std::string& text) {
  auto controller = MakeController(text);
  EXPECT_TRUE(controller.ok()) << controller.status();
  return controller.ok() ? *std::move(controller) : nullptr;
}

inline std::string RefusalOf(const std::string& text) {
  const auto controller = MakeController(text);
  EXPECT_EQ(controller.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(controller.status().message());
}

inline std::vector<std::string> CodecsOf(const PolicyDecision& decision) {
  std::vector<std::string> codecs;
  for (const auto& [key, tensor] : decision.tensors) codecs.push_back(tensor.steps[0].codec);
  return codecs;
}

// Returns the number behind `option=` in a codec spec; 0: it has none.
inline double NumberIn(const std::string& codec, const std::string& option) {
  const size_t at = codec.find(option + "=");
  if (at == std::string::npos) return 0;
  double value = 0;
  const std::string text = codec.substr(at + option.size() + 1);
  EXPECT_TRUE(absl::SimpleAtod(text.substr(0, text.find(',')), &value)) << codec;
  return value;
}

// A tensor whose top-k error falls as exp(-steepness * ratio): a steep one has few large elements.
inline TensorReport TopKTensor(const Controller& controller, const TensorInfo& info,
                               double input_norm2, double steepness) {
  TensorReport report{.tensor = info, .input_norm2 = input_norm2};
  for (const std::string& codec : controller.Candidates(info)) {
    const double ratio = NumberIn(codec, "ratio");
    report.levels.push_back(
        {.codec = codec,
         .error_norm2 = input_norm2 * std::exp(-steepness * ratio),
         .payload_bytes = static_cast<uint64_t>(8 * ratio * static_cast<double>(info.elements))});
  }
  return report;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_POLICY_CONTROLLERS_CONTROLLER_TEST_UTIL_H_
