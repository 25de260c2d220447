// SPDX-License-Identifier: Apache-2.0
// The kernels of select.h and sparse.h: every set against "scalar" and against their definitions.
// Outputs end in canaries.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr uint32_t kCanary = 0xA5A5A5A5;
constexpr size_t kSlack = 16;  // kernels that store whole vectors may use it

std::vector<uint32_t> RandomIndices(size_t bound, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::bernoulli_distribution chosen(density);
  std::vector<uint32_t> index;
  for (size_t i = 0; i < bound; ++i) {
    if (chosen(random)) index.push_back(static_cast<uint32_t>(i));
  }
  return index;
}

float KeyBy(SelectBy by, float x) {
  return by == SelectBy::kMagnitude ? std::fabs(x) : by == SelectBy::kPositive ? x : -x;
}

class SparseKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!kernels().runs_here()) GTEST_SKIP() << "this CPU lacks " << kernels().name;
  }
  static const Kernels& kernels() { return *GetParam(); }
  static const Kernels& scalar() { return *FindKernels("scalar"); }
};

INSTANTIATE_TEST_SUITE_P(All, SparseKernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

struct Collected {
  explicit Collected(size_t n) : index(n + kSlack + 1, kCanary), value(n + kSlack + 1, -7.0f) {}
  std::vector<uint32_t> index;
  std::vector<float> value;
};

TEST_P(SparseKernelsTest, CollectListsWhatReachesTheFloorAndLeavesX) {
  for (const SelectBy by : {SelectBy::kMagnitude, SelectBy::kPositive, SelectBy::kNegative}) {
    for (const size_t n : BlockLengths()) {
      for (const float floor : {1e-45f, 1.0f, 3.0f}) {
        const std::vector<float> gradient = AwkwardFloats(n, n), before = RandomFloats(n, n + 1);
        std::vector<float> mine = before, wanted = before;
        Collected a(n), b(n);
        const Candidates found = kernels().select.collect(gradient.data(), mine.data(), 0.5f, by,
                                                          floor, n, a.index.data(), a.value.data());
        const Candidates expected = scalar().select.collect(
            gradient.data(), wanted.data(), 0.5f, by, floor, n, b.index.data(), b.value.data());
        ASSERT_EQ(Difference(mine, wanted), "");
        ASSERT_EQ(found.count, expected.count);
        ASSERT_EQ(BitPattern(found.rest2), BitPattern(expected.rest2));
        ASSERT_EQ(BitPattern(found.magnitude_sum), BitPattern(expected.magnitude_sum));
        ASSERT_EQ(found.magnitude_max, expected.magnitude_max);
        ASSERT_EQ(a.index.back(), kCanary);
        ASSERT_EQ(a.value.back(), -7.0f);
        size_t at = 0;
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(mine[i], gradient[i] * 0.5f + before[i]);
          if (KeyBy(by, mine[i]) < floor) continue;
          ASSERT_EQ(a.index[at], i);
          ASSERT_EQ(a.value[at++], mine[i]);
        }
        ASSERT_EQ(at, found.count);
      }
    }
  }
}

TEST_P(SparseKernelsTest, PickTakesTheSureAndTheFirstThatFill) {
  for (const SelectBy by : {SelectBy::kMagnitude, SelectBy::kPositive, SelectBy::kNegative}) {
    for (const size_t n : BlockLengths()) {
      std::vector<float> x = RandomFloats(n, n);
      for (float& value : x) value = std::round(value * 2) / 2;  // many equal values
      const auto numbers = RandomIndices(2 * n + 40, 0.9, n);
      for (const size_t fill : {size_t{0}, size_t{1}, n / 5, n}) {
        const Choice choice = {.sure = 1.5f, .filler = 0.5f, .fill = fill};
        size_t sure = 0, filler = 0;
        std::vector<uint32_t> wanted;
        for (size_t i = 0; i < n; ++i) {
          const float key = KeyBy(by, x[i]);
          sure += key >= 1.5f ? 1 : 0;
          filler += key >= 0.5f && key < 1.5f ? 1 : 0;
          const bool fills = key >= 0.5f && key < 1.5f && filler <= fill;
          if (key >= 1.5f || fills) wanted.push_back(static_cast<uint32_t>(i));
        }
        const ChoiceCounts counts = kernels().select.count(x.data(), 1, by, choice, n);
        ASSERT_EQ(counts.sure, sure);
        ASSERT_EQ(counts.filler, filler);
        Collected direct(n), listed(n);
        const Picked a = kernels().select.pick(x.data(), nullptr, 1, by, choice, n,
                                               direct.index.data(), direct.value.data());
        const Picked b = kernels().select.pick(x.data(), numbers.data(), 1, by, choice, n,
                                               listed.index.data(), listed.value.data());
        ASSERT_EQ(a.count, wanted.size());
        ASSERT_EQ(b.count, wanted.size());
        Collected expected(n);
        const Picked c = scalar().select.pick(x.data(), nullptr, 1, by, choice, n,
                                              expected.index.data(), expected.value.data());
        ASSERT_EQ(a.left2, c.left2);
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(direct.index[i], wanted[i]);
          ASSERT_EQ(listed.index[i], numbers[wanted[i]]);
          ASSERT_EQ(direct.value[i], x[wanted[i]]);
        }
        ASSERT_EQ(direct.index.back(), kCanary);
      }
    }
  }
}

TEST_P(SparseKernelsTest, HistogramCountsKeysByTheirBits) {
  const std::vector<float> x = AwkwardFloats(4001, 2);
  for (const SelectBy by : {SelectBy::kMagnitude, SelectBy::kNegative}) {
    for (const auto& [shift, prefix] :
         {std::pair{20u, 0u}, {9u, 0x3f8u}, {0u, 0x3f800000u >> 11}}) {
      std::vector<uint32_t> counts(kHistogramCounts), wanted(kHistogramCounts);
      kernels().select.histogram(x.data(), 1, by, shift, prefix, x.size(), counts.data());
      for (const float value : x) {
        const float key = KeyBy(by, value);
        const uint32_t bits = key > 0 ? BitPattern(key) : 0;
        if (bits >> shift >> 11 == prefix) ++wanted[bits >> shift & 2047];
      }
      EXPECT_EQ(counts, wanted);
    }
  }
}

TEST_P(SparseKernelsTest, IndicesComeBackFromPackedAndDelta) {
  const SparseKernels& sparse = kernels().sparse;
  for (const double density : {0.0, 0.001, 0.01, 0.2, 1.0}) {
    for (const size_t bound : {1, 100, 4096}) {
      const auto index = RandomIndices(bound, density, bound);
      const size_t n = index.size();
      std::vector<uint32_t> out(n + kSlack + 18);
      for (const size_t start : {0, 1}) {
        std::vector<uint8_t> packed((3 * n + start + 1) / 2 + 1, 0xA5);
        sparse.encode_packed(index.data(), n, start, packed.data());
        EXPECT_EQ(packed.back(), 0xA5);
        packed.pop_back();  // lets the sanitizer see a read past the end
        sparse.decode_packed(packed.data(), start, n, 77, out.data());
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], index[i] + 77);
      }
      std::vector<uint8_t> delta(sparse.delta_bytes(index.data(), n) + 1, 0xA5);
      ASSERT_EQ(sparse.encode_delta(index.data(), n, delta.data()), delta.size() - 1);
      EXPECT_EQ(delta.back(), 0xA5);
      ASSERT_EQ(sparse.decode_delta(delta.data(), delta.size() - 1, 5, out.data()), n);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], index[i] + 5);
    }
  }
}

TEST_P(SparseKernelsTest, SignsComeBackFromAnyBit) {
  for (const size_t n : {0, 1, 7, 8, 9, 16, 17, 31, 32, 33, 300, 4096}) {
    const std::vector<float> values = RandomFloats(n, n);
    for (size_t start = 0; start < 8; ++start) {
      std::vector<uint8_t> bits((start + n + 7) / 8 + 1, 0xA5);
      kernels().sparse.encode_signs(values.data(), n, start, bits.data());
      if (n == 0) continue;
      EXPECT_EQ(bits.back(), 0xA5);
      EXPECT_EQ(bits[0] & ((1u << start) - 1), 0u);
      std::vector<float> out(n);
      kernels().sparse.decode_signs(bits.data(), start, 2, -3, n, out.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], values[i] >= 0 ? 2.0f : -3.0f);
    }
  }
}

TEST_P(SparseKernelsTest, RisingAndFiniteFindAnyOneThatIsNot) {
  for (const size_t n : BlockLengths()) {
    std::vector<uint32_t> index(n);
    std::iota(index.begin(), index.end(), 3u);
    std::vector<float> values = AwkwardFloats(n, n);
    const auto bound = static_cast<uint32_t>(n + 3);
    EXPECT_TRUE(kernels().sparse.rising(index.data(), n, bound));
    EXPECT_TRUE(kernels().sparse.finite(values.data(), n));
    EXPECT_EQ(kernels().sparse.rising(index.data(), n, bound - 1), n == 0);
    for (size_t at = 0; at < n; at += 1 + n / 40) {
      std::vector<uint32_t> wrong = index;
      if (at > 0) {
        wrong[at] = wrong[at - 1];
        ASSERT_FALSE(kernels().sparse.rising(wrong.data(), n, bound)) << at;
      }
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> broken = values;
        broken[at] = bad;
        ASSERT_FALSE(kernels().sparse.finite(broken.data(), n)) << at;
      }
    }
  }
}

TEST_P(SparseKernelsTest, EntriesAreAddedPutAndSubtractedWhereTheyBelong) {
  for (const double density : {0.003, 0.1, 1.0}) {
    const auto index = RandomIndices(4096, density, 1);
    const size_t n = index.size();
    const std::vector<float> values = RandomFloats(n, 2), decoded = RandomFloats(n, 3);
    const std::vector<float> start = RandomFloats(4096, 4);
    std::vector<float> added = start, put = start, error = start, gathered(n);
    kernels().sparse.add(index.data(), values.data(), n, added.data());
    kernels().sparse.put(index.data(), values.data(), n, put.data());
    kernels().sparse.gather(index.data(), start.data(), n, gathered.data());
    const SentSums sums =
        kernels().sparse.put_error(index.data(), values.data(), decoded.data(), n, error.data());
    const SentSums wanted =
        scalar().sparse.put_error(index.data(), values.data(), decoded.data(), n, nullptr);
    EXPECT_EQ(sums.sent2, wanted.sent2);
    EXPECT_EQ(sums.decoded2, wanted.decoded2);
    EXPECT_EQ(sums.error2, wanted.error2);
    for (size_t i = 0, at = 0; i < 4096; ++i) {
      const bool sent = at < n && index[at] == i;
      ASSERT_EQ(added[i], sent ? start[i] + values[at] : start[i]);
      ASSERT_EQ(put[i], sent ? values[at] : start[i]);
      ASSERT_EQ(error[i], sent ? values[at] - decoded[at] : start[i]);
      if (!sent) continue;
      ASSERT_EQ(gathered[at++], start[i]);
    }
  }
}

}  // namespace
}  // namespace slimps
