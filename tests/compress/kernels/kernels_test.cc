// SPDX-License-Identifier: Apache-2.0
// Every kernel set against "scalar", bit for bit: all lengths, misaligned starts, awkward and
// non-finite values. Buffers end in canaries, which show a kernel that writes past n.
#include "compress/kernels/kernels.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr float kCanary = -12345.5f;
constexpr uint8_t kByteCanary = 0xA5;
constexpr size_t kSlack = 16;

using FloatSource = std::vector<float> (*)(size_t, uint64_t);

// A vector whose data starts `offset` floats after an aligned address.
class Floats {
 public:
  Floats(const std::vector<float>& values, size_t offset) : n_(values.size()), offset_(offset) {
    storage_.assign(n_ + offset + kSlack, kCanary);
    std::copy(values.begin(), values.end(), storage_.begin() + static_cast<long>(offset));
  }
  float* data() { return storage_.data() + offset_; }
  const std::vector<float>& storage() const { return storage_; }

 private:
  size_t n_, offset_;
  std::vector<float> storage_;
};

std::vector<uint8_t> Bytes(size_t n) { return std::vector<uint8_t>(n + kSlack, kByteCanary); }

// Returns a kernel's sums as numbers to compare bit for bit.
std::vector<float> Numbers(const SignSums& sums) {
  return {sums.positive, sums.negative, sums.input2, static_cast<float>(sums.positives)};
}
std::vector<float> Numbers(const BlockSums& sums) {
  return {sums.input2, sums.decoded2, sums.error2, static_cast<float>(sums.sent)};
}

class KernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!kernels().runs_here()) GTEST_SKIP() << "this CPU lacks " << kernels().name;
  }
  static const Kernels& kernels() { return *GetParam(); }
  static const Kernels& scalar() { return *FindKernels("scalar"); }

  // For each source and length, runs check(n, gradient, residual of the set under test, scalar's
  // copy of it). The residuals may be null.
  template <typename Check>
  static void ForInputs(const std::vector<size_t>& lengths, const Check& check) {
    for (FloatSource source : {&RandomFloats, &AwkwardFloats, &NonFiniteFloats}) {
      for (size_t n : lengths) {
        const size_t offset = n % 4;
        Floats gradient(source(n, n), offset);
        check(n, gradient.data(), nullptr, nullptr);
        Floats mine(source(n, n + 7), (offset + 1) % 4), wanted(source(n, n + 7), (offset + 1) % 4);
        check(n, gradient.data(), mine.data(), wanted.data());
        EXPECT_EQ(Difference(mine.storage(), wanted.storage()), "") << "residual, n " << n;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, KernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Kernels, ScalarIsFirstAndBestRunsHere) {
  EXPECT_EQ(AllKernels().front()->name, "scalar");
  EXPECT_TRUE(BestKernels().runs_here());
  EXPECT_EQ(FindKernels("avx2")->name, "avx2");
  EXPECT_EQ(FindKernels("avx3"), nullptr);
}

TEST_P(KernelsTest, FindsTheFirstUnencodable) {
  for (size_t n : InterestingLengths()) {
    const std::vector<float> gradient = RandomFloats(n, n), residual = RandomFloats(n, n + 1);
    EXPECT_EQ(kernels().raw.find_unencodable(gradient.data(), residual.data(), 2, 100, n), n);
    for (size_t bad = 0; bad < n; bad += 1 + n / 9) {
      for (float value : {NAN, INFINITY, -INFINITY, 101.0f, -101.0f}) {
        std::vector<float> broken = gradient;
        broken[bad] = value;
        broken[n - 1] = NAN;
        EXPECT_EQ(kernels().raw.find_unencodable(broken.data(), nullptr, 1, 100, n), bad);
        EXPECT_EQ(kernels().raw.find_unencodable(gradient.data(), broken.data(), 0.25f, 90, n),
                  bad);
      }
    }
  }
  const float big[] = {0, 3e38f};
  EXPECT_EQ(kernels().raw.find_unencodable(big, nullptr, 2, 3.4e38f, 2), 1u)
      << "2 * 3e38 overflows";
  EXPECT_EQ(kernels().raw.find_unencodable(big, big, 1, 3.4e38f, 2), 1u) << "so does the sum";
}

TEST_P(KernelsTest, RawEncodersEqualScalar) {
  struct Case {
    decltype(RawKernels::encode_f32) mine, wanted;
    size_t bytes;
  };
  for (const Case& c : {Case{kernels().raw.encode_f32, scalar().raw.encode_f32, 4},
                        Case{kernels().raw.encode_f16, scalar().raw.encode_f16, 2},
                        Case{kernels().raw.encode_bf16, scalar().raw.encode_bf16, 2}}) {
    ForInputs(InterestingLengths(), [&](size_t n, const float* g, float* mine, float* wanted) {
      std::vector<uint8_t> out = Bytes(n * c.bytes + 1), expected = Bytes(n * c.bytes + 1);
      const BlockSums sums =
          c.mine(g, mine, 0.75f, n, reinterpret_cast<std::byte*>(out.data() + 1));
      const BlockSums wanted_sums =
          c.wanted(g, wanted, 0.75f, n, reinterpret_cast<std::byte*>(expected.data() + 1));
      EXPECT_EQ(Difference(Numbers(sums), Numbers(wanted_sums)), "") << n;
      if (c.bytes == 2) {
        EXPECT_EQ(out, expected) << n;
        return;
      }
      std::vector<float> a(n), b(n);  // the bits of fp32 NaNs may differ
      if (n > 0) std::memcpy(a.data(), out.data() + 1, n * 4);
      if (n > 0) std::memcpy(b.data(), expected.data() + 1, n * 4);
      EXPECT_EQ(Difference(a, b), "");
      EXPECT_EQ(out.back(), kByteCanary);
    });
  }
}

TEST_P(KernelsTest, EveryHalfAndEveryBfloatDecodesAsScalar) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto* in = reinterpret_cast<const std::byte*>(all.data());
  const std::vector<float> start = RandomFloats(all.size(), 3);
  for (auto kernel : {&RawKernels::decode_f16, &RawKernels::decode_bf16, &RawKernels::add_f16,
                      &RawKernels::add_bf16}) {
    std::vector<float> mine = start, wanted = start;
    (kernels().raw.*kernel)(in, all.size(), mine.data());
    (scalar().raw.*kernel)(in, all.size(), wanted.data());
    EXPECT_EQ(Difference(mine, wanted), "");
  }
}

TEST_P(KernelsTest, HalfRoundsToNearestEvenAtEveryBoundary) {
  // Between each two neighbouring halves: the midpoint, and the fp32 numbers on both sides of it.
  std::vector<float> inputs;
  std::vector<uint16_t> halves(0x7c00);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  kernels().raw.decode_f16(reinterpret_cast<const std::byte*>(halves.data()), halves.size(),
                           values.data());
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const float middle = (values[i] + values[i + 1]) / 2;
    inputs.insert(inputs.end(),
                  {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY)});
  }
  std::vector<uint16_t> out(inputs.size());
  kernels().raw.encode_f16(inputs.data(), nullptr, 1, inputs.size(),
                           reinterpret_cast<std::byte*>(out.data()));
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto even = static_cast<uint16_t>(i + i % 2);
    ASSERT_EQ(out[3 * i], i);
    ASSERT_EQ(out[3 * i + 1], even);
    ASSERT_EQ(out[3 * i + 2], i + 1);
  }
}

TEST_P(KernelsTest, RawDecodersEqualScalarAtAllLengths) {
  for (size_t n : InterestingLengths()) {
    std::vector<uint8_t> in(n * 4 + 1);
    std::mt19937 random(static_cast<uint32_t>(n));
    for (uint8_t& byte : in) byte = static_cast<uint8_t>(random());
    const auto* bytes = reinterpret_cast<const std::byte*>(in.data() + 1);
    for (auto kernel : {&RawKernels::decode_f16, &RawKernels::decode_bf16, &RawKernels::add_f32,
                        &RawKernels::add_f16, &RawKernels::add_bf16}) {
      Floats mine(RandomFloats(n, n), n % 3), wanted(RandomFloats(n, n), n % 3);
      (kernels().raw.*kernel)(bytes, n, mine.data());
      (scalar().raw.*kernel)(bytes, n, wanted.data());
      EXPECT_EQ(Difference(mine.storage(), wanted.storage()), "");
    }
  }
}

TEST_P(KernelsTest, SignEncodersEqualScalarSumsIncluded) {
  ForInputs(BlockLengths(), [&](size_t n, const float* g, float* mine, float* wanted) {
    std::vector<uint8_t> bits = Bytes((n + 7) / 8), expected = bits;
    const SignSums sums = kernels().levels.encode_sign(g, mine, 1.25f, n, bits.data());
    const SignSums wanted_sums = scalar().levels.encode_sign(g, wanted, 1.25f, n, expected.data());
    EXPECT_EQ(bits, expected) << n;
    EXPECT_EQ(Difference(Numbers(sums), Numbers(wanted_sums)), "") << n;
  });
  ForInputs(BlockLengths(), [&](size_t n, const float* g, float* mine, float* wanted) {
    std::vector<uint8_t> bits = Bytes((n + 7) / 8), expected = bits;
    const SignSums sums = kernels().levels.encode_sign_split(g, mine, 1.25f, n, bits.data());
    const SignSums wanted_sums =
        scalar().levels.encode_sign_split(g, wanted, 1.25f, n, expected.data());
    EXPECT_EQ(bits, expected) << n;
    EXPECT_EQ(Difference(Numbers(sums), Numbers(wanted_sums)), "") << n;
  });
}

TEST_P(KernelsTest, FixedLevelEncodersEqualScalar) {
  for (float threshold : {0.0f, 0.5f, -0.5f}) {
    ForInputs(BlockLengths(), [&](size_t n, const float* g, float* mine, float* wanted) {
      std::vector<uint8_t> bits = Bytes((n + 7) / 8), expected = bits;
      const BlockSums sums =
          kernels().levels.encode_1bit_fixed(g, mine, 1.25f, threshold, 1.0f, n, bits.data());
      const BlockSums wanted_sums =
          scalar().levels.encode_1bit_fixed(g, wanted, 1.25f, threshold, 1.0f, n, expected.data());
      EXPECT_EQ(bits, expected) << n;
      EXPECT_EQ(Difference(Numbers(sums), Numbers(wanted_sums)), "") << n;
    });
  }
  ForInputs(BlockLengths(), [&](size_t n, const float* g, float* mine, float* wanted) {
    std::vector<uint8_t> p0 = Bytes((n + 7) / 8), p1 = p0, e0 = p0, e1 = p0;
    const BlockSums sums =
        kernels().levels.encode_2bit_fixed(g, mine, 1.0f, 0.5f, n, p0.data(), p1.data());
    const BlockSums wanted_sums =
        scalar().levels.encode_2bit_fixed(g, wanted, 1.0f, 0.5f, n, e0.data(), e1.data());
    EXPECT_EQ(Difference(Numbers(sums), Numbers(wanted_sums)), "") << n;
    EXPECT_EQ(p0, e0) << n;
    EXPECT_EQ(p1, e1) << n;
  });
}

TEST_P(KernelsTest, ThresholdsWhoseSquareOverflowsSendNothingOfNorm0) {
  const std::vector<float> gradient = RandomFloats(100, 7);
  uint8_t plane0[16] = {}, plane1[16] = {};
  const BlockSums sums = kernels().levels.encode_2bit_fixed(gradient.data(), nullptr, 1.0f, 1e30f,
                                                            100, plane0, plane1);
  EXPECT_EQ(sums.sent, 0u);
  EXPECT_EQ(sums.decoded2, 0.0f);
}

TEST_P(KernelsTest, SubtractingWhatWasSentEqualsScalar) {
  for (size_t n : BlockLengths()) {
    Floats mine(AwkwardFloats(n, n), n % 4), wanted(AwkwardFloats(n, n), n % 4);
    const float error2 = kernels().levels.subtract_sign(0.75f, -0.25f, n, mine.data());
    const float wanted2 = scalar().levels.subtract_sign(0.75f, -0.25f, n, wanted.data());
    EXPECT_EQ(Difference(mine.storage(), wanted.storage()), "") << n;
    EXPECT_EQ(Difference({&error2, 1}, {&wanted2, 1}), "") << n;
  }
}

TEST_P(KernelsTest, CopyGivesTheLargestMagnitudeAndInfinityForWhatIsNotFinite) {
  for (size_t n : InterestingLengths()) {
    std::vector<float> from = RandomFloats(n, n);
    Floats to(std::vector<float>(n), n % 4);
    float largest = 0;
    for (float value : from) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(kernels().raw.copy_bounded(from.data(), to.data(), n), largest) << n;
    EXPECT_EQ(Difference({to.data(), n}, from), "");
    EXPECT_EQ(to.storage().back(), kCanary);
    EXPECT_EQ(kernels().raw.largest(from.data(), n), largest) << n;
    for (float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      if (n == 0) continue;
      from[n / 2] = bad;
      EXPECT_EQ(kernels().raw.copy_bounded(from.data(), to.data(), n), INFINITY) << n;
      EXPECT_EQ(kernels().raw.largest(from.data(), n), INFINITY) << n;
    }
  }
}

TEST_P(KernelsTest, LevelDecodersEqualScalar) {
  for (size_t n : BlockLengths()) {
    std::vector<uint8_t> p0((n + 7) / 8), p1((n + 7) / 8);
    std::mt19937 random(static_cast<uint32_t>(n));
    for (uint8_t& byte : p0) byte = static_cast<uint8_t>(random());
    for (uint8_t& byte : p1) byte = static_cast<uint8_t>(random());
    for (auto kernel : {&LevelsKernels::decode_1bit, &LevelsKernels::add_1bit}) {
      Floats mine(AwkwardFloats(n, n), n % 4), wanted(AwkwardFloats(n, n), n % 4);
      (kernels().levels.*kernel)(p0.data(), 0.75f, -1e-40f, n, mine.data());
      (scalar().levels.*kernel)(p0.data(), 0.75f, -1e-40f, n, wanted.data());
      EXPECT_EQ(Difference(mine.storage(), wanted.storage()), "");
    }
    for (auto kernel : {&LevelsKernels::decode_2bit, &LevelsKernels::add_2bit}) {
      Floats mine(AwkwardFloats(n, n), n % 4), wanted(AwkwardFloats(n, n), n % 4);
      (kernels().levels.*kernel)(p0.data(), p1.data(), 0.75f, -0.25f, n, mine.data());
      (scalar().levels.*kernel)(p0.data(), p1.data(), 0.75f, -0.25f, n, wanted.data());
      EXPECT_EQ(Difference(mine.storage(), wanted.storage()), "");
    }
  }
}

// Compares with the definition of kernels.h, written out, because scalar has no other set to
// compare with.
TEST_P(KernelsTest, SumsFollowTheDocumentedLanes) {
  const size_t n = 1003;
  const std::vector<float> gradient = RandomFloats(n, 11);
  float lanes[16] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % 16] += std::abs(gradient[i]);
  for (size_t width : {8, 4, 2, 1}) {
    for (size_t j = 0; j < width; ++j) lanes[j] = lanes[j] + lanes[j + width];
  }
  std::vector<uint8_t> bits((n + 7) / 8);
  EXPECT_EQ(kernels().levels.encode_sign(gradient.data(), nullptr, 1, n, bits.data()).positive,
            lanes[0]);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ((bits[i / 8] >> (i % 8)) & 1, gradient[i] >= 0 ? 1 : 0) << i;
  }
}

}  // namespace
}  // namespace slimps
