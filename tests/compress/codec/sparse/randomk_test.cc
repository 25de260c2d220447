// SPDX-License-Identifier: Apache-2.0
// randomk: which elements it draws. sparse_codecs_test.cc has the other tests.
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "compress/format/philox.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

// Draws as sparse.h describes it, one draw at a time.
std::vector<size_t> DrawReference(const PhiloxStream& stream, size_t n, size_t k) {
  const uint64_t word = Philox({0xffffffff, stream.round, stream.worker, stream.partition},
                               {stream.key0, stream.key1})[0];
  const uint64_t offset = word * n >> 32;
  const auto before = [&](size_t element) { return (element * k + offset) / n; };
  std::set<size_t> drawn;
  for (size_t begin = 0; begin < n; begin += 4096) {
    const size_t end = std::min(n, begin + 4096), m = end - begin;
    const size_t c = before(end) - before(begin);
    const auto w = [&](size_t j) {
      return uint64_t{stream.Word(static_cast<uint32_t>(begin + j))};
    };
    for (size_t j = 0; j < c; ++j) {
      const size_t f = (m << 16) / c, low = j * f >> 16, high = (j + 1) * f >> 16;
      const size_t at = low + ((w(j + 1) >> 16) * (high - low) >> 16);
      drawn.insert(begin + (at + (w(0) * m >> 32)) % m);
    }
  }
  return {drawn.begin(), drawn.end()};
}

TEST(RandomK, DrawsWhatTheFormatDescribesExactlyK) {
  for (const size_t n : {1, 5, 64, 257, 4095, 4096, 4097, 3 * 4096 + 5}) {
    for (const size_t k : {size_t{1}, n / 7, n / 2, n - 1, n}) {
      if (k == 0) continue;
      const std::vector<float> x = RandomFloats(n, n);
      const Encoded encoded = EncodeChecked(
          *MakeCodecOrDie(absl::StrCat("randomk:seed=12345678901,k=", k)),
          {.gradient = x, .context = {.key = 77, .partition = 4, .round = 9, .worker = 3}});
      const auto stream = PhiloxStream::Of(12345678901, 77, 9, kAnyWorker, 4);
      const auto drawn = DrawReference(stream, n, k);
      ASSERT_EQ(drawn.size(), k);
      EXPECT_EQ(encoded.stats.elements_sent, k);
      EXPECT_EQ(DecodeAllSparse(encoded.payload, n), KeepOnly(x, drawn)) << n << " " << k;
    }
  }
}

TEST(RandomK, WorkersAgreeAndRoundsKeysPartitionsAndSeedsDiffer) {
  const std::vector<float> x(4096, 1.0f);
  const auto encode = [&](const EncodeContext& context, const char* spec = "randomk:k=100") {
    return DecodeAllSparse(
        EncodeChecked(*MakeCodecOrDie(spec), {.gradient = x, .context = context}).payload,
        x.size());
  };
  const auto base = encode({.key = 1, .partition = 2, .round = 3, .worker = 4});
  EXPECT_EQ(encode({.key = 1, .partition = 2, .round = 3, .worker = 5}), base);
  EXPECT_NE(encode({.key = 2, .partition = 2, .round = 3, .worker = 4}), base);
  EXPECT_NE(encode({.key = 1, .partition = 3, .round = 3, .worker = 4}), base);
  EXPECT_NE(encode({.key = 1, .partition = 2, .round = 4, .worker = 4}), base);
  EXPECT_NE(encode({.key = 1, .partition = 2, .round = 3, .worker = 4}, "randomk:k=100,seed=1"),
            base);
}

// A count of m independent draws of probability p lies within 6 deviations, sqrt(m p (1 - p)), of m
// * p, except once in 5e8. There are 4200 of these counts.
TEST(RandomK, EveryElementIsDrawnEquallyOften) {
  constexpr size_t kElements = 4200, kSent = 30;  // a whole block and a short one
  constexpr int kRounds = 10'000;
  const auto codec = MakeCodecOrDie("randomk:k=30,value=fp16");
  const std::vector<float> x(kElements, 1.0f);
  std::vector<int> drawn(kElements);
  int in_short_block = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
    ASSERT_TRUE(codec->Encode({.gradient = x, .context = {.round = round}}, payload).ok());
    const auto decoded = DecodeAllSparse(payload, kElements);
    for (size_t i = 0; i < kElements; ++i) drawn[i] += decoded[i] != 0 ? 1 : 0;
  }
  const double p = static_cast<double>(kSent) / kElements;
  const double bound = 6 * std::sqrt(kRounds * p * (1 - p));
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(drawn[i], kRounds * p, bound) << i;
    if (i >= 4096) in_short_block += drawn[i];
  }
  // In each round the short block's count is 0 or 1.
  const double q = 104 * p;
  EXPECT_NEAR(in_short_block, kRounds * q, 6 * std::sqrt(kRounds * q * (1 - q)));
}

// Each decoded element is n / k * x with probability k / n. So its mean over m draws has the
// deviation |x| * sqrt((n / k - 1) / m).
TEST(RandomK, ScaledIsUnbiased) {
  constexpr size_t kElements = 300;
  constexpr int kRounds = 10'000;
  const auto codec = MakeCodecOrDie("randomk:k=60,scaled=on");
  const std::vector<float> x = RandomFloats(kElements, 3);
  std::vector<double> sum(kElements);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
    ASSERT_TRUE(codec->Encode({.gradient = x, .context = {.round = round}}, payload).ok());
    const auto decoded = DecodeAllSparse(payload, kElements);
    for (size_t i = 0; i < kElements; ++i) sum[i] += static_cast<double>(decoded[i]);
  }
  for (size_t i = 0; i < kElements; ++i) {
    const double deviation = std::fabs(x[i]) * std::sqrt((5.0 - 1) / kRounds);
    EXPECT_NEAR(sum[i] / kRounds, x[i], 6 * deviation) << i;
  }
}

TEST(RandomK, ScaledGoesWithFullPrecisionOnly) {
  EXPECT_FALSE(MakeCodec(*ParseCodecSpec("randomk:scaled=on,value=fp16")).ok());
}

}  // namespace
}  // namespace slimps
