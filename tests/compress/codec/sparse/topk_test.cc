// SPDX-License-Identifier: Apache-2.0
// topk and mstopk keep what their definition says, also for inputs that mislead the sample.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "compress/codec/sparse/select/selection_floor.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

constexpr size_t kLarge = 20 * 4096 + 77;  // sampled, and longer than the list has room for

float Magnitude(float x) { return std::fabs(x); }

struct Input {
  const char* name;
  std::vector<float> x;
};

std::vector<Input> MisleadingInputs(size_t n) {
  std::vector<Input> inputs = {
      {"zeros", std::vector<float>(n)},      {"constant", std::vector<float>(n, -0.5f)},
      {"rising", std::vector<float>(n)},     {"falling", std::vector<float>(n)},
      {"one spike", std::vector<float>(n)},  {"few over zero", std::vector<float>(n)},
      {"two values", std::vector<float>(n)}, {"large end", RandomFloats(n, 3)},
      {"denormals", RandomFloats(n, 4)},     {"awkward", AwkwardFloats(n, 5)},
      {"random", RandomFloats(n, 6)}};
  for (size_t i = 0; i < n; ++i) {
    inputs[2].x[i] = static_cast<float>(i) * (i % 2 == 0 ? 1.0f : -1.0f);
    inputs[3].x[i] = static_cast<float>(n - i);
    inputs[6].x[i] = i % 3 == 0 ? 2.0f : -1.0f;
    if (i >= n - n / 64) inputs[7].x[i] *= 1000;
    inputs[8].x[i] *= 1e-43f;
    if (i % 1000 == 7) inputs[5].x[i] = static_cast<float>(i);
  }
  if (n > 0) inputs[4].x[n / 2] = -1e30f;
  return inputs;
}

TEST(TopK, KeepsWhatASortKeepsTiesIncluded) {
  for (const size_t n : {size_t{1}, size_t{5}, size_t{257}, size_t{4096}, size_t{5000}, kLarge}) {
    for (const Input& input : MisleadingInputs(n)) {
      for (const size_t k : {size_t{1}, n / 100, n / 10, n}) {
        if (k == 0 || k > n) continue;
        const Encoded encoded = EncodeSparse(absl::StrCat("topk:k=", k), input.x);
        ASSERT_EQ(encoded.stats.elements_sent, k);
        const auto wanted = KeepOnly(input.x, LargestBy(input.x, k, Magnitude));
        const auto decoded = DecodeAllSparse(encoded.payload, n);
        // A sent -0 stays -0. Elements that are not sent are +0.
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(decoded[i], wanted[i]) << input.name << " n " << n << " k " << k << " at " << i;
        }
      }
    }
  }
}

TEST(TopK, OfEqualsTheFirstAreSent) {
  const std::vector<float> x = {1, -2, 2, 2, -2, 0.5f};
  EXPECT_EQ(DecodeAllSparse(EncodeSparse("topk:k=3", x).payload, 6),
            (std::vector<float>{0, -2, 2, 2, 0, 0}));
  const std::vector<float> zeros(2 * 4096);
  const Encoded encoded = EncodeSparse("topk:k=4100", zeros);
  uint32_t second_block = 0;
  std::memcpy(&second_block, encoded.payload.data() + 24, 4);
  EXPECT_EQ(second_block, 4096u) << "all of block 0, then four of block 1";
}

TEST(TopK, CountsAreRatiosOrNumbers) {
  const std::vector<float> x = RandomFloats(1000, 1);
  const auto sent = [&](const std::string& spec) {
    return EncodeSparse(spec, x).stats.elements_sent;
  };
  EXPECT_EQ(sent("topk"), 10u);
  EXPECT_EQ(sent("topk:ratio=0.0159"), 15u);
  EXPECT_EQ(sent("topk:k=0.25"), 250u);
  EXPECT_EQ(sent("topk:k=1"), 1u);
  EXPECT_EQ(sent("topk:k=2000"), 1000u);
  EXPECT_EQ(sent("topk:ratio=0.0001"), 1u);
  EXPECT_EQ(sent("topk:ratio=1"), 1000u);
  for (const char* bad : {"topk:ratio=0", "topk:ratio=1.5", "topk:k=0", "topk:k=-1", "topk:k=2.5",
                          "topk:k=x", "topk:ratio=nan", "topk:ratio=0.1,k=3", "topk:value=fp8"}) {
    const auto spec = ParseCodecSpec(bad);
    const auto codec = spec.ok() ? MakeCodec(*spec) : spec.status();
    EXPECT_EQ(codec.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

// Algorithm 1 of the paper as mstopk.h states it, over all elements in every pass.
std::vector<size_t> MsTopKReference(std::span<const float> x, size_t k, int passes) {
  const size_t n = x.size();
  double total = 0;
  for (size_t begin = 0; begin < n; begin += 4096) {
    float lanes[16] = {};
    for (size_t i = begin; i < std::min(n, begin + 4096); ++i) {
      lanes[(i - begin) % 16] += std::fabs(x[i]);
    }
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    }
    total += static_cast<double>(lanes[0]);
  }
  const float mean = static_cast<float>(total / static_cast<double>(n));
  float top = 0;
  for (const float value : x) top = std::max(top, std::fabs(value));
  float low = 0, high = 1, few = std::numeric_limits<float>::infinity(), many = 0;
  size_t few_count = 0, many_count = n;
  for (int pass = 0; pass < passes; ++pass) {
    const float ratio = low + (high - low) / 2;
    const float threshold = mean + ratio * (top - mean);
    size_t count = 0;
    for (const float value : x) count += std::fabs(value) >= threshold ? 1 : 0;
    if (count <= k) {
      high = ratio;
      if (count > few_count) few_count = count, few = threshold;
    } else {
      low = ratio;
      if (count < many_count) many_count = count, many = threshold;
    }
  }
  std::vector<size_t> chosen, rest;
  for (size_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) >= few) {
      chosen.push_back(i);
    } else if (std::fabs(x[i]) >= many) {
      rest.push_back(i);
    }
  }
  for (size_t i = 0; i < rest.size() && chosen.size() < k; ++i) chosen.push_back(rest[i]);
  return chosen;
}

TEST(MsTopK, KeepsWhatTheAlgorithmKeeps) {
  for (const size_t n : {size_t{1}, size_t{200}, size_t{4097}, kLarge}) {
    for (const Input& input : MisleadingInputs(n)) {
      for (const size_t k : {size_t{1}, n / 100, n - 1, n}) {
        if (k == 0 || k > n) continue;
        for (const int passes : {0, 3, 30}) {
          const Encoded encoded =
              EncodeSparse(absl::StrCat("mstopk:k=", k, ",passes=", passes), input.x);
          ASSERT_EQ(encoded.stats.elements_sent, k) << input.name;
          const auto wanted = KeepOnly(input.x, MsTopKReference(input.x, k, passes));
          const auto decoded = DecodeAllSparse(encoded.payload, n);
          for (size_t i = 0; i < n; ++i) {
            ASSERT_EQ(decoded[i], wanted[i])
                << input.name << " n " << n << " k " << k << " passes " << passes << " at " << i;
          }
        }
      }
    }
  }
}

TEST(MsTopK, WithManyPassesItKeepsTheLargest) {
  const std::vector<float> x = RandomFloats(kLarge, 9);
  const auto kept = DecodeAllSparse(EncodeSparse("mstopk:passes=40", x).payload, kLarge);
  EXPECT_EQ(kept, KeepOnly(x, LargestBy(x, kLarge / 100, Magnitude)));
}

TEST(SelectionFloor, RankedKeyIsTheSortedOnesKey) {
  for (const size_t n : {1, 100, 5000, 40000}) {
    for (const float scale : {1.0f, 1e-42f}) {
      std::vector<float> keys;
      for (const float value : RandomFloats(n, n)) {
        keys.push_back(std::max(std::fabs(value) * scale, 1e-45f));
      }
      std::vector<float> sorted = keys;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      for (const size_t rank : {size_t{1}, n / 3 + 1, n}) {
        std::vector<float> scratch = keys;
        EXPECT_EQ(RankedKey(scratch, rank), sorted[rank - 1]);
      }
    }
  }
}

TEST(SelectionFloor, SampleElementsLieInTheTensor) {
  for (const size_t n : {0, 4095, 4096, 100'000, 1'000'003}) {
    const SamplePlan plan(n);
    for (size_t i = 0; i < plan.Size(); ++i) ASSERT_LT(plan.Element(i), n);
  }
  EXPECT_EQ(SamplePlan(4095).Size(), 0u);
  EXPECT_EQ(SamplePlan(1'000'003).Size(), 8192u);
}

}  // namespace
}  // namespace slimps
