// SPDX-License-Identifier: Apache-2.0
// What the options of all codecs have in common.
#include "compress/codec/catalogue/registry.h"

#include <set>
#include <string>
#include <string_view>

#include "compress/codec/catalogue/decorators.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/catalogue/spec_error.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST(Registry, EveryCodecRefusesAnUnknownOptionWithASuggestion) {
  for (const CodecEntry& entry : AllCodecs()) {
    const std::string name(entry.name);
    EXPECT_THAT(ErrorOf(name + ":no_such_option=1"), HasSubstr("unknown option of codec " + name));
    if (entry.options.empty()) continue;
    if (name != "dgc" && !entry.has_phases) {
      EXPECT_THAT(ErrorOf(name + ":cli=1"), HasSubstr("did you mean 'clip'?")) << name;
    }
    for (const std::string_view option : entry.options) {
      EXPECT_THAT(ErrorOf(name + ":" + std::string(option) + "_=1"),
                  HasSubstr("did you mean '" + std::string(option) + "'?"));
    }
  }
}

// Combinations that some codecs take. Each option of each codec is in one that the codec takes.
constexpr const char* kCombinations[] = {"clip=3",
                                         "clip=2,clip_workers=8",
                                         "clip=2,clip_workers=8,warmup=5",
                                         "warmup=5",
                                         "momentum=nesterov,mu=0.5",
                                         "error_feedback=off",
                                         "seed=7",
                                         "rank=3",
                                         "s=2",
                                         "k=5",
                                         "ratio=0.1",
                                         "value=fp32",
                                         "scaling=l1",
                                         "scaling=none,threshold=0.25",
                                         "threshold=0.25",
                                         "bits=8,bucket=256,norm=max",
                                         "normalize=l2,partition=natural",
                                         "scaled=on",
                                         "passes=5",
                                         "tau=0.25",
                                         "mu=0.5,nesterov=on",
                                         "lt=64",
                                         "lt_conv=60,lt_fc=600",
                                         "scale_factor=3",
                                         "scale=mse",
                                         "scale=previous"};

TEST(Registry, EveryCodecsSpecIsItsText) {
  for (const CodecEntry& entry : AllCodecs()) {
    const std::string name(entry.name);
    const auto plain = MakeCodec(*ParseCodecSpec(name));
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ((*plain)->spec().ToString(), name);
    std::set<std::string> accepted;
    for (const std::string options : kCombinations) {
      std::string text = name;
      text.append(":").append(options);
      const auto spec = ParseCodecSpec(text);
      const auto codec = spec.ok() ? MakeCodec(*spec) : spec.status();
      if (!codec.ok()) continue;
      EXPECT_EQ((*codec)->spec().ToString(), text);
      EXPECT_EQ((*codec)->spec(), *spec);
      for (const auto& [option, value] : spec->options) accepted.insert(option);
    }
    std::set<std::string> wanted(entry.options.begin(), entry.options.end());
    for (const std::string_view option : DecoratorOptions(entry)) wanted.emplace(option);
    EXPECT_EQ(accepted, wanted) << name;
  }
}

}  // namespace
}  // namespace slimps
