// SPDX-License-Identifier: Apache-2.0
// The kernels that round: every set against "scalar" bit for bit, and against plain loops by their
// definition.
#include <cmath>
#include <string>

#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/format/xoshiro.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr uint8_t kCanary = 0xA5;
constexpr size_t kSlack = 16;
constexpr RandomStream kRandom = {1, 2, 3, 4, 5};
constexpr PhiloxStream kStream = {1, 2, 3, 4, 5};
constexpr uint32_t kBlock = 2;

// A block's input, and the output of a kernel. The arrays start misaligned and end in canaries.
struct Block {
  Block(const std::vector<float>& values, const std::vector<float>& before) : n(values.size()) {
    gradient.assign(n + 1 + kSlack, -12345.5f);
    std::copy(values.begin(), values.end(), gradient.begin() + 1);
    residual.assign(n + 3 + kSlack, -12345.5f);
    std::copy(before.begin(), before.end(), residual.begin() + 3);
    out.assign(n + kSlack, kCanary);
  }
  const float* g() const { return gradient.data() + 1; }
  float* e() { return residual.data() + 3; }

  size_t n;
  std::vector<float> gradient, residual;
  std::vector<uint8_t> out;
};

std::vector<float> Numbers(const BlockSums& sums) {
  return {sums.input2, sums.decoded2, sums.error2, static_cast<float>(sums.sent)};
}

class QuantizeKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->runs_here()) GTEST_SKIP() << "this CPU lacks " << GetParam()->name;
  }
  static const QuantizeKernels& mine() { return GetParam()->quantize; }
  static const QuantizeKernels& scalar() { return FindKernels("scalar")->quantize; }

  // Returns `rounding` with the block's random numbers from their start. Valid until the next call.
  static Rounding Started(const QuantizeKernels& kernels, Rounding rounding) {
    static RandomLanes lanes;
    kernels.start_random(kRandom, kBlock, &lanes);
    rounding.random = &lanes;
    return rounding;
  }

  // Compares `encode` in each kernel set with "scalar", with and without a residual, over all
  // lengths and awkward numbers.
  template <typename Encode>
  static void Compare(const Encode& encode) {
    for (size_t n : BlockLengths()) {
      std::vector<float> gradient = AwkwardFloats(n, n);
      for (float& value : gradient) value = std::clamp(value, -100.0f, 100.0f);
      Block a(gradient, RandomFloats(n, n + 1)), b = a;
      for (float* residual : {a.e(), static_cast<float*>(nullptr)}) {
        const bool with = residual != nullptr;
        const auto sums = Numbers(encode(mine(), a.g(), residual, n, a.out.data()));
        const auto wanted =
            Numbers(encode(scalar(), b.g(), with ? b.e() : nullptr, n, b.out.data()));
        ASSERT_EQ(a.out, b.out) << n;
        ASSERT_EQ(Difference(a.residual, b.residual), "") << n;
        ASSERT_EQ(Difference(sums, wanted), "") << n;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, QuantizeKernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(QuantizeKernelsTest, EncodersEqualScalar) {
  const Rounding linear4 = {
      .grad_scale = 0.75f, .inverse = 7 * 65536 / 103.1f, .scale = 14.7f, .levels = 7};
  Rounding linear8 = linear4, natural4 = linear4, natural8 = linear4, ternary = linear4;
  linear8.inverse = 127 * 65536 / 103.1f;
  natural4.inverse = std::ldexp(1.0f, 7 + 15) / 103.1f;
  natural8.inverse = std::ldexp(1.0f, 32 + 15) / 103.1f;
  natural8.levels = 32;
  ternary.inverse = 65536 / 1.5f;  // most awkward numbers are clipped
  const struct {
    QuantizeLevels QuantizeKernels::*kernel;
    Rounding rounding;
  } cases[] = {{&QuantizeKernels::linear_4bit, linear4},
               {&QuantizeKernels::linear_8bit, linear8},
               {&QuantizeKernels::natural_4bit, natural4},
               {&QuantizeKernels::natural_8bit, natural8}};
  for (const auto& c : cases) {
    Compare([&](const QuantizeKernels& kernels, const float* g, float* e, size_t n, uint8_t* out) {
      return (kernels.*c.kernel)(g, e, Started(kernels, c.rounding), n, out);
    });
  }
  Compare([&](const QuantizeKernels& kernels, const float* g, float* e, size_t n, uint8_t* out) {
    return kernels.ternary(g, e, Started(kernels, ternary), n, out, (n + 7) / 8);
  });
  Compare([&](const QuantizeKernels& kernels, const float* g, float* e, size_t n, uint8_t* out) {
    return kernels.sign(g, e, 0.75f, n, out);
  });
  Compare([&](const QuantizeKernels& kernels, const float* g, float* e, size_t n, uint8_t*) {
    const InputNorms norms = kernels.measure(g, e, 0.75f, n);
    const InputNorms quick = kernels.measure_largest(g, e, 0.75f, n);
    EXPECT_EQ(quick.largest, norms.largest);
    return BlockSums{.input2 = norms.input2, .decoded2 = quick.input2, .error2 = norms.largest};
  });
}

TEST_P(QuantizeKernelsTest, LinearRoundsAsDefinedWithTheStreamsShorts) {
  const size_t n = 1000;
  const std::vector<float> x = RandomFloats(n, 1);
  const Rounding rounding = Started(mine(), {.inverse = 65536 * 1.5f, .scale = 0.67f, .levels = 7});
  std::vector<uint8_t> out(n);
  // Encodes in two calls. The second call goes on where the first stopped.
  mine().linear_8bit(x.data(), nullptr, rounding, 320, out.data());
  mine().linear_8bit(x.data() + 320, nullptr, rounding, n - 320, out.data() + 320);
  for (size_t i = 0; i < n; ++i) {
    const int random = static_cast<int>(RoundingShort(kStream, kBlock, static_cast<uint32_t>(i)));
    const int steps = static_cast<int>(std::lrintf(x[i] * rounding.inverse));
    const int level = static_cast<int>(std::floor((steps + random) / 65536.0));
    ASSERT_EQ(out[i], level + 128) << i;
  }
}

TEST_P(QuantizeKernelsTest, NaturalRoundsToOneOfTheTwoPowersAround) {
  const size_t n = 4096;
  std::vector<float> x = RandomFloats(n, 2);
  for (size_t i = 0; i < n; i += 3) x[i] *= 1e-3f;
  const float norm = 8;
  const Rounding rounding =
      Started(mine(), {.inverse = std::ldexp(1.0f, 10 + 15) / norm, .scale = norm, .levels = 10});
  std::vector<uint8_t> out(n);
  std::vector<float> decoded(n);
  mine().natural_8bit(x.data(), nullptr, rounding, n, out.data());
  mine().decode_natural_8bit(out.data(), norm, 10, n, decoded.data());
  const float smallest = norm * 0x1p-9f;
  for (size_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]), sent = std::fabs(decoded[i]);
    if (magnitude < smallest) {
      ASSERT_TRUE(sent == 0 || sent == smallest) << i;
    } else {
      const float below = std::ldexp(1.0f, std::ilogb(magnitude));
      ASSERT_TRUE(sent == below || sent == 2 * below) << x[i] << " " << decoded[i];
    }
    ASSERT_TRUE(sent == 0 || std::signbit(decoded[i]) == std::signbit(x[i]));
  }
}

TEST_P(QuantizeKernelsTest, LevelsWithinAgreesWithLookingAtEach) {
  for (size_t n : {0, 1, 15, 16, 127, 128, 129, 400}) {
    for (uint32_t levels : {1u, 6u, 7u}) {
      std::vector<uint8_t> nibbles(n / 2 + 1), bytes(n);
      for (size_t bad = 0; bad <= n; bad += 1 + n / 37) {
        for (uint32_t code = 0; code < 16; ++code) {
          std::fill(nibbles.begin(), nibbles.end(), uint8_t{0x88});
          std::fill(bytes.begin(), bytes.end(), uint8_t{128});
          if (bad < n) {
            nibbles[bad / 2] = static_cast<uint8_t>(bad % 2 == 0 ? 0x80 | code : code << 4 | 8);
            bytes[bad] = static_cast<uint8_t>(120 + code);
          }
          const bool wanted = bad == n || (code + levels >= 8 && code <= 8 + levels);
          ASSERT_EQ(mine().levels_within_4bit(nibbles.data(), levels, n), wanted);
          ASSERT_EQ(mine().levels_within_8bit(bytes.data(), levels, n), wanted);
        }
      }
    }
  }
}

TEST_P(QuantizeKernelsTest, DecodersEqualScalarOnAnyBytes) {
  for (size_t n : BlockLengths()) {
    std::vector<uint8_t> in(n + 1);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 37 + n);
    for (auto decode :
         {&QuantizeKernels::decode_linear_4bit, &QuantizeKernels::add_linear_4bit,
          &QuantizeKernels::decode_linear_8bit, &QuantizeKernels::add_linear_8bit,
          &QuantizeKernels::decode_natural_4bit, &QuantizeKernels::add_natural_4bit,
          &QuantizeKernels::decode_natural_8bit, &QuantizeKernels::add_natural_8bit}) {
      std::vector<float> a(n + 2 + kSlack, 0.7f), b = a;
      (mine().*decode)(in.data() + 1, 0.3f, 5, n, a.data() + 2);
      (scalar().*decode)(in.data() + 1, 0.3f, 5, n, b.data() + 2);
      ASSERT_EQ(Difference(a, b), "") << n;
    }
  }
}

}  // namespace
}  // namespace slimps
