// SPDX-License-Identifier: Apache-2.0
// The randomised Hadamard transform: every set against "scalar" bit for bit, and against the matrix
// written out.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "compress/format/philox.h"
#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "proto/base/buffer.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr float kCanary = -12345.5f;
constexpr RandomStream kRandom = {1, 2, 3, 4, 5};
constexpr PhiloxStream kStream = {1, 2, 3, 4, 5};
constexpr uint32_t kBlock = 3;
constexpr size_t kSlack = 16;

// A rotated block, which ends in canaries.
class Rotated {
 public:
  explicit Rotated(size_t n) : buffer_(AlignedBuffer::OfFloats(RotatedElements(n) + kSlack)) {
    std::ranges::fill(buffer_.floats(), kCanary);
  }
  float* data() { return buffer_.floats().data(); }
  std::span<float> all() { return buffer_.floats(); }
  std::span<float> values() { return all().first(all().size() - kSlack); }

 private:
  AlignedBuffer buffer_;
};

// Numbers that sums of a block keep exactly.
std::vector<float> SmallIntegers(size_t n, uint64_t seed) {
  std::vector<float> values = RandomFloats(n, seed);
  for (float& value : values) value = std::nearbyint(value * 40);
  return values;
}

float SignOf(size_t i) {
  const uint32_t word = kStream.Word(static_cast<uint32_t>(128 * kBlock + i / 32));
  return (word >> (i % 32) & 1) != 0 ? -1.0f : 1.0f;
}

float EntryOf(size_t i, size_t j) { return std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f; }

class RotateKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->runs_here()) GTEST_SKIP() << "this CPU lacks " << GetParam()->name;
  }
  static const RotateKernels& mine() { return GetParam()->rotate; }
  static const RotateKernels& scalar() { return FindKernels("scalar")->rotate; }
};

INSTANTIATE_TEST_SUITE_P(All, RotateKernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Rotate, BlocksArePaddedToAPowerOfTwoFromSixteenOn) {
  EXPECT_EQ(RotatedElements(0), 0u);
  EXPECT_EQ(RotatedElements(1), 16u);
  EXPECT_EQ(RotatedElements(16), 16u);
  EXPECT_EQ(RotatedElements(17), 32u);
  EXPECT_EQ(RotatedElements(2049), 4096u);
  EXPECT_EQ(RotatedElements(4096), 4096u);
}

TEST_P(RotateKernelsTest, AllFourEqualScalar) {
  for (const size_t n : BlockLengths()) {
    for (const auto source : {&RandomFloats, &AwkwardFloats, &NonFiniteFloats}) {
      std::vector<float> gradient = source(n, n);
      gradient.insert(gradient.begin(), kCanary);  // misaligned
      std::vector<float> a = source(n, n + 7);
      a.resize(n + kSlack, kCanary);
      std::vector<float> b = a;
      for (const bool with : {true, false}) {
        Rotated y(n), wanted(n);
        const float input2 = mine().rotate(gradient.data() + 1, with ? a.data() : nullptr, 0.75f, n,
                                           kRandom, kBlock, y.data());
        const float wanted2 = scalar().rotate(gradient.data() + 1, with ? b.data() : nullptr, 0.75f,
                                              n, kRandom, kBlock, wanted.data());
        ASSERT_EQ(Difference(y.all(), wanted.all()), "") << n;
        ASSERT_EQ(Difference({&input2, 1}, {&wanted2, 1}), "") << n;
        ASSERT_EQ(Difference(a, b), "") << n;
      }
      for (const auto back : {&RotateKernels::restore, &RotateKernels::add}) {
        Rotated y(n), wanted(n);
        std::copy_n(source(y.values().size(), n + 9).begin(), y.values().size(), y.data());
        std::ranges::copy(y.values(), wanted.data());
        (mine().*back)(y.data(), n, kRandom, kBlock, a.data());
        (scalar().*back)(wanted.data(), n, kRandom, kBlock, b.data());
        ASSERT_EQ(Difference(a, b), "") << n;
        ASSERT_EQ(Difference(y.all(), wanted.all()), "") << n;
        const float error2 = mine().subtract(y.data(), n, kRandom, kBlock, a.data());
        const float expected2 = scalar().subtract(wanted.data(), n, kRandom, kBlock, b.data());
        ASSERT_EQ(Difference({&error2, 1}, {&expected2, 1}), "") << n;
        ASSERT_EQ(Difference(a, b), "") << n;
      }
    }
  }
}

TEST_P(RotateKernelsTest, IsTheMatrixTimesTheSignsOfTheStream) {
  for (const size_t n : {1, 15, 16, 30, 64, 100, 256, 700}) {
    const std::vector<float> gradient = SmallIntegers(n, n);
    std::vector<float> residual = SmallIntegers(n, n + 1), x(n);
    for (size_t i = 0; i < n; ++i) x[i] = 2 * gradient[i] + residual[i];
    Rotated y(n);
    const float input2 =
        mine().rotate(gradient.data(), residual.data(), 2, n, kRandom, kBlock, y.data());
    EXPECT_EQ(Difference(residual, x), "");
    const size_t m = y.values().size();
    float squares = 0;
    for (const float value : x) squares += value * value;
    EXPECT_EQ(input2, squares);
    for (size_t i = 0; i < m; ++i) {
      float sum = 0;
      for (size_t j = 0; j < n; ++j) sum += EntryOf(i, j) * SignOf(j) * x[j];
      ASSERT_EQ(y.values()[i], sum / static_cast<float>(m)) << i << " of " << n;
    }
  }
}

TEST_P(RotateKernelsTest, TheWayBackGivesTheBlockAgain) {
  for (const size_t n : BlockLengths()) {
    const std::vector<float> x = SmallIntegers(n, n);
    const auto rotated = [&] {
      Rotated y(n);
      mine().rotate(x.data(), nullptr, 1, n, kRandom, kBlock, y.data());
      return y;
    };
    Rotated y = rotated();
    std::vector<float> back(n);
    mine().restore(y.data(), n, kRandom, kBlock, back.data());
    ASSERT_EQ(back, x) << "exact: every sum is a small integer over m";
    y = rotated();
    mine().add(y.data(), n, kRandom, kBlock, back.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(back[i], 2 * x[i]);
    y = rotated();
    float squares = 0;
    for (const float value : x) squares += value * value;
    EXPECT_EQ(mine().subtract(y.data(), n, kRandom, kBlock, back.data()), squares);
    ASSERT_EQ(back, x);
  }
}

TEST_P(RotateKernelsTest, ASingleElementSpreadsOverTheWholeBlock) {
  std::vector<float> x(4096);
  x[1234] = 3;
  Rotated y(x.size());
  mine().rotate(x.data(), nullptr, 1, x.size(), kRandom, kBlock, y.data());
  for (const float value : y.values()) ASSERT_EQ(std::fabs(value), 3.0f / 4096);
}

TEST_P(RotateKernelsTest, SignsDependOnAllOfTheStreamAndOnTheBlock) {
  const std::vector<float> x(4096, 1.0f);
  const auto rotated = [&](const RandomStream& stream, uint32_t block) {
    Rotated y(x.size());
    mine().rotate(x.data(), nullptr, 1, x.size(), stream, block, y.data());
    return std::vector<float>(y.values().begin(), y.values().end());
  };
  const std::vector<float> usual = rotated(kRandom, kBlock);
  EXPECT_EQ(rotated(kRandom, kBlock), usual);
  EXPECT_NE(rotated(kRandom, kBlock + 1), usual);
  for (const auto field : {&RandomStream::key0, &RandomStream::key1, &RandomStream::round,
                           &RandomStream::worker, &RandomStream::partition}) {
    RandomStream other = kRandom;
    ++(other.*field);
    EXPECT_NE(rotated(other, kBlock), usual);
  }
}

}  // namespace
}  // namespace slimps
