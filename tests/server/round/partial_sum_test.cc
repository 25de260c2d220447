// SPDX-License-Identifier: Apache-2.0
#include "server/round/partial_sum.h"

#include <string>
#include <utility>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/format/lanes.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr size_t kElements = 5000;

using Bytes = std::vector<std::byte>;

// Payloads of thc, all of one gradient, so that their scales are equal.
Bytes Lanes(uint32_t worker) {
  const auto codec = MakeCodec("thc").value();
  const std::vector<float> gradient = RandomFloats(kElements, 1);
  Bytes payload(codec->MaxPayloadBytes(kElements));
  EXPECT_TRUE(
      codec->Encode({.gradient = gradient, .residual = {}, .context = {.worker = worker}}, payload)
          .ok());
  return payload;
}

Bytes Raw(uint64_t seed) {
  const std::vector<float> values = RandomFloats(kElements, seed);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The pushes of one round, in rank order.
struct TestPushes {
  std::vector<PayloadFormat> formats;
  std::vector<Bytes> payloads;

  void Add(PayloadFormat format, Bytes payload) {
    formats.push_back(format);
    payloads.push_back(std::move(payload));
  }
  std::vector<Contribution> Some(size_t first, size_t last) const {
    std::vector<Contribution> some;
    for (size_t i = first; i < last; ++i) {
      some.push_back({.format = formats[i], .payload = Payload::Copy(payloads[i])});
    }
    return some;
  }
  std::vector<PayloadView> Views(size_t first) const {
    std::vector<PayloadView> views;
    for (size_t i = first; i < payloads.size(); ++i) views.push_back({formats[i], payloads[i]});
    return views;
  }
};

std::vector<float> SumOf(const std::vector<PayloadView>& views) {
  std::vector<float> sum(kElements);
  SumPayloads(views, kElements, 0, sum);
  return sum;
}

TEST(PartialSum, IntegersStayIntegersWhereverARoundIsFolded) {
  TestPushes pushes;
  for (uint32_t worker = 0; worker < 4; ++worker) {
    pushes.Add(PayloadFormat::kRotated, Lanes(worker));
  }
  pushes.Add(PayloadFormat::kRawF32, Raw(7));
  pushes.Add(PayloadFormat::kAbsent, {});
  for (uint32_t worker = 6; worker < 17; ++worker) {
    pushes.Add(PayloadFormat::kRotated, Lanes(worker));
  }
  pushes.Add(PayloadFormat::kRawF32, Raw(8));
  const std::vector<float> expected = SumOf(pushes.Views(0));
  for (size_t first = 1; first < pushes.payloads.size(); ++first) {
    for (size_t second = first; second <= pushes.payloads.size(); ++second) {
      PartialSum partial(kElements);
      partial.Add(pushes.Some(0, first));
      partial.Add(pushes.Some(first, second));
      EXPECT_EQ(partial.contributors(), second);
      std::vector<PayloadView> views;
      partial.AppendViews(&views);
      EXPECT_LE(views.size(), PartialSum::kMaxViews);
      const std::vector<PayloadView> rest = pushes.Views(second);
      views.insert(views.end(), rest.begin(), rest.end());
      ASSERT_EQ(Difference(SumOf(views), expected), "") << first << " and " << second;
    }
  }
}

TEST(PartialSum, LanesOfAFoldedRunHaveAByteForEightWorkers) {
  TestPushes pushes;
  for (uint32_t worker = 0; worker < 9; ++worker) {
    pushes.Add(PayloadFormat::kRotated, Lanes(worker));
  }
  PartialSum partial(kElements);
  const size_t lanes = RotatedLength(kElements), rest = kLanesHeaderBytes + 2 * sizeof(float);
  partial.Add(pushes.Some(0, 8));
  EXPECT_EQ(partial.bytes(), lanes + rest);
  partial.Add(pushes.Some(8, 9));
  EXPECT_EQ(partial.bytes(), 2 * lanes + rest);
  partial.Clear();
  EXPECT_EQ(partial.bytes(), 0u);
}

}  // namespace
}  // namespace slimps
