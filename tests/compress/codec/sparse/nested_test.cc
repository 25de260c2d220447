// SPDX-License-Identifier: Apache-2.0
// Multi-level compression: what topk makes of another topk's payload equals what it makes of the
// gradient.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

struct Input {
  std::string name;
  std::vector<float> x;
};

std::vector<Input> Inputs(size_t n) {
  std::vector<Input> inputs = {{"random", RandomFloats(n, 1)},
                               {"zeros", std::vector<float>(n)},
                               {"all equal", std::vector<float>(n, -0.5f)},
                               {"many ties", RandomFloats(n, 2)},
                               {"few over zero", std::vector<float>(n)},
                               {"signed zeros", std::vector<float>(n)},
                               {"large end", RandomFloats(n, 3)},
                               {"denormals", RandomFloats(n, 4)},
                               {"awkward", AwkwardFloats(n, 5)}};
  for (size_t i = 0; i < n; ++i) {
    inputs[3].x[i] = std::round(2 * inputs[3].x[i]);
    if (i % 1000 == 7) inputs[4].x[i] = static_cast<float>(i);
    inputs[5].x[i] = i % 3 == 0 ? -0.0f : 0.0f;
    if (i >= n - n / 64) inputs[6].x[i] *= 1000;
    inputs[7].x[i] *= 1e-43f;
  }
  return inputs;
}

EncodeInput From(const EncodeInput& input, const Codec& codec, const Encoded& made) {
  EncodeInput next = input;
  next.finer = {.codec = &codec, .payload = made.payload, .stats = made.stats};
  return next;
}

void ExpectNear(double got, double wanted, const std::string& what) {
  if (!std::isfinite(wanted)) return;
  EXPECT_NEAR(got, wanted, 1e-5 * std::abs(wanted) + 1e-30) << what;
}

TEST(MultiLevel, PayloadsOfAllLevelsEqualThoseOfTheGradient) {
  const std::vector<std::string> levels = {"ratio=1",    "ratio=0.1",   "ratio=0.1", "ratio=0.05",
                                           "ratio=0.01", "ratio=0.001", "k=1"};
  for (const size_t n : {0, 1, 3, 257, 4096, 5000, 16 * 4096, 20 * 4096 + 77}) {
    for (const Input& input : Inputs(n)) {
      EncodeInput next = {.gradient = input.x, .grad_scale = 0.25f};
      std::vector<std::unique_ptr<Codec>> codecs;
      std::vector<Encoded> made;
      made.reserve(levels.size());
      for (const std::string& level : levels) {
        const std::string what = absl::StrCat(input.name, " n ", n, " ", level);
        codecs.push_back(MakeCodecOrDie(absl::StrCat("topk:", level)));
        const Encoded anew =
            EncodeChecked(*codecs.back(), {.gradient = input.x, .grad_scale = 0.25f});
        made.push_back(EncodeChecked(*codecs.back(), next));
        ASSERT_EQ(made.back().payload, anew.payload) << what;
        EXPECT_EQ(made.back().stats.elements_sent, anew.stats.elements_sent) << what;
        ExpectNear(made.back().stats.input_norm2, anew.stats.input_norm2, what);
        ExpectNear(made.back().stats.decoded_norm2, anew.stats.decoded_norm2, what);
        ExpectNear(made.back().stats.error_norm2, anew.stats.error_norm2, what);
        next = From(next, *codecs.back(), made.back());
      }
    }
  }
}

TEST(MultiLevel, WholeInFp32BecomesHalfPrecision) {
  const std::vector<float> x = RandomFloats(9000, 7);
  const auto wide = MakeCodecOrDie("topk:ratio=0.1");
  const auto narrow = MakeCodecOrDie("topk:ratio=0.05,value=fp16");
  const EncodeInput input = {.gradient = x};
  const Encoded first = EncodeChecked(*wide, input);
  const Encoded anew = EncodeChecked(*narrow, input);
  const Encoded nested = EncodeChecked(*narrow, From(input, *wide, first));
  EXPECT_EQ(nested.payload, anew.payload);
  ExpectNear(nested.stats.error_norm2, anew.stats.error_norm2, "fp16");
}

// Whatever cannot start from the payload encodes the gradient, and sends the same as without it.
TEST(MultiLevel, OthersIgnoreThePayload) {
  const std::vector<float> x = RandomFloats(9000, 9);
  const EncodeInput input = {.gradient = x};
  const struct {
    const char *finer, *codec;
  } cases[] = {{"topk:ratio=0.01", "topk:ratio=0.1"},
               {"topk:ratio=0.1,value=fp16", "topk:ratio=0.01"},
               {"topk:ratio=0.1", "mstopk:ratio=0.01"},
               {"topk:ratio=0.1", "topk:ratio=0.01,clip=0.5"},
               {"topk:ratio=0.1,clip=0.5", "topk:ratio=0.01"},
               {"mstopk:ratio=0.1", "topk:ratio=0.01"},
               {"qsgd", "topk:ratio=0.01"}};
  for (const auto& [finer, codec] : cases) {
    const auto first = MakeCodecOrDie(finer), second = MakeCodecOrDie(codec);
    const Encoded made = EncodeChecked(*first, input);
    EXPECT_EQ(EncodeChecked(*second, From(input, *first, made)).payload,
              EncodeChecked(*second, input).payload)
        << finer << " then " << codec;
  }
}

TEST(MultiLevel, WithAResidualTheGradientIsEncoded) {
  const std::vector<float> x = RandomFloats(9000, 10);
  const auto low = MakeCodecOrDie("topk:ratio=0.1"), high = MakeCodecOrDie("topk:ratio=0.01");
  EncodeInput input = {.gradient = x};
  const Encoded first = EncodeChecked(*low, input);
  std::vector<float> anew = RandomFloats(9000, 11), nested = anew;
  input.residual = anew;
  const Encoded wanted = EncodeChecked(*high, input);
  input.residual = nested;
  EXPECT_EQ(EncodeChecked(*high, From(input, *low, first)).payload, wanted.payload);
  EXPECT_EQ(nested, anew);
}

TEST(MultiLevel, ValuesBeyondHalfPrecisionAreRefused) {
  std::vector<float> x = RandomFloats(5000, 12);
  x[4321] = 1e30f;
  const auto wide = MakeCodecOrDie("topk:ratio=0.1");
  const auto narrow = MakeCodecOrDie("topk:ratio=0.05,value=fp16");
  const EncodeInput input = {.gradient = x};
  const Encoded first = EncodeChecked(*wide, input);
  std::vector<std::byte> payload(narrow->MaxPayloadBytes(x.size()));
  EXPECT_EQ(narrow->Encode(From(input, *wide, first), payload).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slimps
