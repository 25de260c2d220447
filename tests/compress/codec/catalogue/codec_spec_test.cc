// SPDX-License-Identifier: Apache-2.0
// Codec specs as text, and the options that codecs take.
#include <string>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/codec/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
  absl::Status status = spec.status();
  if (spec.ok()) status = MakeCodec(*spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(CodecSpec, ReadsBackFromItsText) {
  for (const char* text :
       {"none", "fp16", "bf16", "1bit", "1bit:scaling=two_mean", "1bit:scaling=none,threshold=0.25",
        "2bit:error_feedback=off,threshold=2"}) {
    const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->ToString(), text);
    EXPECT_EQ(*ParseCodecSpec(spec->ToString()), *spec);
    const auto codec = MakeCodec(*spec);
    ASSERT_TRUE(codec.ok()) << codec.status();
    EXPECT_EQ((*codec)->spec(), *spec);
  }
}

TEST(CodecSpec, MisspeltNamesGetTheNearestValidOne) {
  EXPECT_THAT(ErrorOf("1bits"), HasSubstr("unknown codec '1bits': did you mean '1bit'?"));
  EXPECT_THAT(ErrorOf("fp61"), HasSubstr("'fp16'"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("unknown codec ''"));
  EXPECT_THAT(ErrorOf("1BIT"), HasSubstr("none, fp16, bf16, 1bit, 2bit"));
  EXPECT_THAT(ErrorOf("1bit:scailng=l1"),
              HasSubstr("unknown option of codec 1bit 'scailng': did you mean 'scaling'?"));
  EXPECT_THAT(ErrorOf("2bit:scaling=l1"), HasSubstr("option of codec 2bit"));
  EXPECT_THAT(ErrorOf("none:threshold=1"), HasSubstr("takes none"));
  EXPECT_THAT(ErrorOf("1bit:scaling=two_means"), HasSubstr("did you mean 'two_mean'?"));
  EXPECT_THAT(ErrorOf("1bit:error_feedback=yes"), HasSubstr("Valid are off, on"));
}

TEST(CodecSpec, MalformedTextIsRefused) {
  for (const char* text : {"1bit:", "1bit:scaling", "1bit:scaling=", "1bit:=l1", "1bit:scaling=l1,",
                           "1bit:,scaling=l1", "1bit: scaling=l1", " 1bit", "1bit "}) {
    ErrorOf(text);
  }
  EXPECT_THAT(ErrorOf("2bit:threshold=1,threshold=1"), HasSubstr("given twice"));
  EXPECT_LT(ErrorOf(std::string(1 << 20, 'x')).size(), 1000u);
}

TEST(CodecSpec, ThresholdsHaveRanges) {
  for (const char* value : {"0", "-1", "nan", "inf", "1e99", "0.5x", "x", "1e-99"}) {
    EXPECT_THAT(ErrorOf(std::string("2bit:threshold=") + value),
                HasSubstr("expected a finite number over 0, got '"));
  }
  EXPECT_THAT(ErrorOf("1bit:scaling=none,threshold=inf"), HasSubstr("a finite number"));
  EXPECT_THAT(ErrorOf("1bit:threshold=0"), HasSubstr("goes with scaling=none only"));
  EXPECT_THAT(ErrorOf("1bit:scaling=two_mean,threshold=1"), HasSubstr("scaling=two_mean"));
}

TEST(CodecSpec, ErrorFeedbackIsOnForLevelsAndOffForRaw) {
  const auto wants = [](const char* text) {
    return (*MakeCodec(*ParseCodecSpec(text)))->wants_residual();
  };
  EXPECT_TRUE(wants("1bit"));
  EXPECT_TRUE(wants("2bit"));
  EXPECT_FALSE(wants("none"));
  EXPECT_FALSE(wants("fp16"));
  EXPECT_FALSE(wants("1bit:error_feedback=off"));
  EXPECT_TRUE(wants("bf16:error_feedback=on"));
}

TEST(CodecSpec, UnscaledOneBitWithAThresholdWarns) {
  EXPECT_EQ((*MakeCodec(*ParseCodecSpec("1bit:scaling=none")))->Warning(), "");
  EXPECT_THAT((*MakeCodec(*ParseCodecSpec("1bit:scaling=none,threshold=0.5")))->Warning(),
              HasSubstr("biased"));
}

TEST(CodecSpec, MadeByHandIsCheckedToo) {
  EXPECT_FALSE(MakeCodec(CodecSpec{.name = "3bit", .options = {}}).ok());
  EXPECT_FALSE(MakeCodec(CodecSpec{.name = "1bit", .options = {{"k", "1"}}}).ok());
}

TEST(EditDistance, CountsSingleCharacterChanges) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("1bit", "1bits"), 1u);
}

}  // namespace
}  // namespace slimps
