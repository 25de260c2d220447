// SPDX-License-Identifier: Apache-2.0
#ifndef SLIMPS_TESTS_SERVER_ROUND_PULLER_H_
#define SLIMPS_TESTS_SERVER_ROUND_PULLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compress/format/format.h"
#include "gtest/gtest.h"
#include "server/round/partition.h"

namespace slimps {

// A worker that builds its weights from answers, using only the wire's rules.
class Puller {
 public:
  // Pulls `version`. Returns true if the answer was a change.
  bool Pull(Partition& partition, uint64_t version) {
    const WireValue answer = partition.Share(version, held_);
    EXPECT_EQ(answer.version, version);
    EXPECT_EQ(answer.hash, HashBytes(answer.payload.bytes()));
    const size_t elements = partition.spec().elements;
    EXPECT_TRUE(ValidatePayload(answer.format, answer.payload.bytes(), elements).ok());
    weights_.resize(elements);
    if (answer.base_version.has_value()) {
      EXPECT_EQ(answer.base_version, held_);
      DecodeAdd(answer.format, answer.payload.bytes(), elements, 0, weights_);
    } else {
      Decode(answer.format, answer.payload.bytes(), elements, 0, weights_);
    }
    held_ = version;
    bytes_ = answer.payload.size();
    return answer.base_version.has_value();
  }
  const std::vector<float>& weights() const { return weights_; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<float> weights_;
  std::optional<uint64_t> held_;
  size_t bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_ROUND_PULLER_H_
