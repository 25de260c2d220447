// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/dictionary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Dictionary = std::map<std::string, std::string>;

std::string SpecOf(const Dictionary& dictionary) {
  const auto codec = CodecSpecFromDictionary(dictionary);
  return codec.ok() ? codec->spec.ToString() : std::string(codec.status().message());
}

std::string ErrorOf(const Dictionary& dictionary) {
  const auto codec = CodecSpecFromDictionary(dictionary);
  EXPECT_EQ(codec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(codec.status().message());
}

TEST(Dictionary, MxnetsMeansWhatMxnetMeans) {
  EXPECT_EQ(SpecOf({{"type", "2bit"}, {"threshold", "0.25"}}), "2bit:threshold=0.25");
  EXPECT_EQ(SpecOf({{"type", "2bit"}}), "2bit:threshold=0.5");
  EXPECT_EQ(SpecOf({{"type", "1bit"}}), "1bit:scaling=none,threshold=0.5") << "MXNet's default";
  EXPECT_EQ(SpecOf({{"type", "1bit"}, {"threshold", "0"}}), "1bit:scaling=none,threshold=0");
  EXPECT_TRUE(CodecSpecFromDictionary({{"type", "2bit"}})->every_key);
}

TEST(Dictionary, BytepssOfEveryCompressor) {
  EXPECT_EQ(SpecOf({{"compressor_type", "onebit"}}), "1bit:error_feedback=off,scaling=none");
  EXPECT_EQ(SpecOf({{"compressor_type", "onebit"},
                    {"compressor_onebit_scaling", "True"},
                    {"ef_type", "vanilla"}}),
            "1bit:error_feedback=on,scaling=l1");
  EXPECT_EQ(SpecOf({{"compressor_type", "onebit"}, {"compressor_onebit_scaling", "false"}}),
            "1bit:error_feedback=off,scaling=none");
  EXPECT_EQ(SpecOf({{"compressor_type", "topk"}, {"compressor_k", "0.01"}, {"ef_type", "vanilla"}}),
            "topk:error_feedback=on,k=0.01");
  EXPECT_EQ(SpecOf({{"compressor_type", "topk"}, {"compressor_k", "1"}}),
            "topk:error_feedback=off,k=1");
  EXPECT_EQ(SpecOf({{"compressor_type", "randomk"}, {"compressor_k", "8"}, {"seed", "2020"}}),
            "randomk:error_feedback=off,k=8,scaled=on,seed=2020")
      << "unbiased without error feedback";
  EXPECT_EQ(SpecOf({{"compressor_type", "randomk"}, {"compressor_k", "8"}, {"ef_type", "vanilla"}}),
            "randomk:error_feedback=on,k=8,scaled=off");
  EXPECT_EQ(SpecOf({{"compressor_type", "dithering"}, {"compressor_k", "4"}}),
            "dithering:error_feedback=off,k=4,normalize=max,partition=linear");
  EXPECT_EQ(SpecOf({{"compressor_type", "dithering"},
                    {"compressor_k", "4"},
                    {"seed", "7"},
                    {"dithering_partition", "1"},
                    {"dithering_normalize", "l2"}}),
            "dithering:error_feedback=off,k=4,normalize=l2,partition=natural,seed=7");
  EXPECT_FALSE(CodecSpecFromDictionary({{"compressor_type", "onebit"}})->every_key);
}

TEST(Dictionary, BytepssWithPrefixMomentumAndShortNames) {
  EXPECT_EQ(SpecOf({{"byteps_compressor_type", "onebit"},
                    {"byteps_compressor_onebit_scaling", "1"},
                    {"byteps_ef_type", "vanilla"},
                    {"byteps_momentum_type", "nesterov"},
                    {"byteps_momentum_mu", "0.9"}}),
            "1bit:error_feedback=on,momentum=nesterov,mu=0.9,scaling=l1");
  EXPECT_EQ(SpecOf({{"byteps_compressor_type", "topk"}, {"compressor_k", "3"}}),
            "topk:error_feedback=off,k=3")
      << "with and without, mixed";
  EXPECT_EQ(SpecOf({{"compressor", "randomk"}, {"k", "0.1"}, {"ef", "vanilla"}, {"seed", "1"}}),
            "randomk:error_feedback=on,k=0.1,scaled=off,seed=1");
  EXPECT_EQ(SpecOf({{"compressor", "onebit"},
                    {"scaling", "true"},
                    {"momentum", "nesterov"},
                    {"momentum_mu", "0.5"}}),
            "1bit:error_feedback=off,momentum=nesterov,mu=0.5,scaling=l1");
  EXPECT_EQ(SpecOf({{"compressor", "dithering"},
                    {"k", "2"},
                    {"partition", "natural"},
                    {"normalize", "max"}}),
            "dithering:error_feedback=off,k=2,normalize=max,partition=natural");
}

TEST(Dictionary, UnknownKeysAndValuesGetTheNearestValidOne) {
  EXPECT_THAT(ErrorOf({{"type", "2bit"}, {"treshold", "1"}}),
              HasSubstr("did you mean 'threshold'"));
  EXPECT_THAT(ErrorOf({{"type", "2bits"}}), HasSubstr("did you mean '2bit'"));
  EXPECT_THAT(ErrorOf({{"tpye", "2bit"}}), HasSubstr("did you mean 'type'"));
  EXPECT_THAT(ErrorOf({{"compresor_type", "topk"}}), HasSubstr("did you mean 'compressor_type'"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topkk"}}), HasSubstr("did you mean 'topk'"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}, {"compressor_n", "1"}}),
              HasSubstr("did you mean 'compressor_k'"));
  EXPECT_THAT(ErrorOf({{"byteps_compressor_type", "topk"}, {"byteps_eftype", "vanilla"}}),
              HasSubstr("did you mean 'ef_type'"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}, {"compressor_k", "1"}, {"ef_type", "vanila"}}),
              HasSubstr("did you mean 'vanilla'"));
  EXPECT_THAT(
      ErrorOf({{"compressor_type", "onebit"}, {"momentum_type", "sgd"}, {"momentum_mu", "0.9"}}),
      HasSubstr("did you mean 'nesterov'"));
  EXPECT_THAT(
      ErrorOf(
          {{"compressor_type", "dithering"}, {"compressor_k", "2"}, {"dithering_partition", "2"}}),
      HasSubstr("Valid are linear, natural"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}, {"type", "2bit"}}), HasSubstr("unknown key"));
}

TEST(Dictionary, WhatIsMissingOrDoesNotGoTogetherIsSaid) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("expected a key type"));
  EXPECT_THAT(ErrorOf({{"threshold", "1"}}), HasSubstr("expected a key type"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}}), HasSubstr("topk needs compressor_k"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "onebit"}, {"compressor_k", "1"}}),
              HasSubstr("compressor_k goes with"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}, {"compressor_k", "1"}, {"seed", "1"}}),
              HasSubstr("seed goes with"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "onebit"}, {"momentum_type", "nesterov"}}),
              HasSubstr("go together"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "onebit"}, {"momentum_mu", "0.9"}}),
              HasSubstr("go together"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}, {"byteps_compressor_type", "topk"}}),
              HasSubstr("given twice"));
}

TEST(Dictionary, ValuesHaveRanges) {
  EXPECT_THAT(ErrorOf({{"type", "2bit"}, {"threshold", "0"}}), HasSubstr("over 0"));
  EXPECT_THAT(ErrorOf({{"type", "2bit"}, {"threshold", "x"}}), HasSubstr("option threshold"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "topk"}, {"compressor_k", "-1"}}),
              HasSubstr("option k"));
  EXPECT_THAT(ErrorOf({{"compressor_type", "randomk"}, {"compressor_k", "1"}, {"seed", "0"}}),
              HasSubstr("seed: expected a number over 0"));
  EXPECT_THAT(
      ErrorOf(
          {{"compressor_type", "onebit"}, {"momentum_type", "nesterov"}, {"momentum_mu", "1.5"}}),
      HasSubstr("option mu"));
}

}  // namespace
}  // namespace slimps
