// SPDX-License-Identifier: Apache-2.0
#include "compress/format/sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "compress/format/decode.h"
#include "compress/format/levels.h"
#include "gtest/gtest.h"
#include "tests/compress/format/sum_test_util.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

// The definition: adds each payload in turn to zeros.
std::vector<float> SumInTurn(const std::vector<PayloadView>& payloads, size_t elements) {
  std::vector<float> sum(elements, 0.0f);
  for (const PayloadView& one : payloads) {
    DecodeAddWith(*FindKernels("scalar"), one.format, one.bytes, elements, 0, sum);
  }
  return sum;
}

std::vector<float> SumTogether(const Kernels& kernels, const std::vector<PayloadView>& payloads,
                               size_t elements) {
  std::vector<float> sum(elements, std::numeric_limits<float>::quiet_NaN());
  SumPayloadsWith(kernels, payloads, elements, 0, sum);
  return sum;
}

TEST(SumPayloads, IsTheSumInTurnForAnyMixtureAndNumberOfWorkers) {
  for (const size_t elements : {size_t{100}, size_t{4096}, size_t{2 * 4096 + 77}}) {
    for (size_t workers = 1; workers <= 17; ++workers) {
      const TestRound round(elements, workers, TestRound::kMixed, workers);
      const std::vector<float> expected = SumInTurn(round.views(), elements);
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        EXPECT_EQ(Difference(SumTogether(*kernels, round.views(), elements), expected), "")
            << kernels->name << ", " << workers << " workers";
      }
    }
  }
}

TEST(SumPayloads, RunsOfOneAndTwoBitsAreSummedInTurnAtAnyLength) {
  for (const auto kind : {TestRound::kOneBit, TestRound::kTwoBits}) {
    for (const size_t elements : InterestingLengths()) {
      const TestRound round(elements, 3 + elements % 14, kind, elements);
      const std::vector<float> expected = SumInTurn(round.views(), elements);
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        ASSERT_EQ(Difference(SumTogether(*kernels, round.views(), elements), expected), "")
            << kernels->name << ", " << elements << " elements";
      }
    }
  }
}

TEST(SumPayloads, NobodyGivesZeros) {
  EXPECT_EQ(Difference(SumTogether(BestKernels(), {}, 70), std::vector<float>(70)), "");
  EXPECT_EQ(Difference(SumTogether(BestKernels(), {{}, {}}, 70), std::vector<float>(70)), "");
}

TEST(SumPayloads, ANegativeZeroAloneBecomesZeroAsItDoesOnZeros) {
  const std::vector<float> minus(70, -0.0f);
  const PayloadView raw = {PayloadFormat::kRawF32, std::as_bytes(std::span<const float>(minus))};
  EXPECT_EQ(Difference(SumTogether(BestKernels(), {raw}, 70), std::vector<float>(70)), "");

  std::vector<std::byte> bits = SignBits(70, /*scales=*/0, 1);
  StoreValue(-0.0f, bits);
  const PayloadView levels = {PayloadFormat::kLevels, bits};
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    EXPECT_EQ(Difference(SumTogether(*kernels, {levels}, 70), std::vector<float>(70)), "");
  }
}

TEST(SumPayloads, BlocksMayBeSummedOneByOneOrTogether) {
  constexpr size_t kElements = 3 * kBlockElements + 5;
  const TestRound round(kElements, 9, TestRound::kMixed, 1);
  const std::vector<float> whole = SumTogether(BestKernels(), round.views(), kElements);
  std::vector<float> parts(kElements);
  for (size_t first = 0; first < kElements; first += kBlockElements) {
    const size_t length = std::min(kBlockElements, kElements - first);
    SumPayloads(round.views(), kElements, first, std::span(parts).subspan(first, length));
  }
  EXPECT_EQ(Difference(parts, whole), "");
}

TEST(SumPayloads, NothingPastTheEndIsWrittenOrRead) {
  for (const size_t elements : {size_t{1}, size_t{63}, size_t{65}, size_t{4099}}) {
    const TestRound round(elements, 5, TestRound::kMixed,
                          3);  // the lengths of its payloads are right
    std::vector<float> sum(elements + 16, 7.0f);
    SumPayloads(round.views(), elements, 0, std::span(sum).first(elements));
    for (size_t i = elements; i < sum.size(); ++i) EXPECT_EQ(sum[i], 7.0f);
  }
}

TEST(SignKernel, ZerosAndNotANumberStay) {
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    for (const size_t n : InterestingLengths()) {
      const std::vector<float> sums = NonFiniteFloats(n, n);
      std::vector<float> signs = sums, expected = sums;
      for (float& x : expected) x = x > 0 ? 1.0f : x < 0 ? -1.0f : x;
      kernels->sum.sign(n, signs.data());
      ASSERT_EQ(Difference(signs, expected), "") << kernels->name;
    }
  }
}

}  // namespace
}  // namespace slimps
