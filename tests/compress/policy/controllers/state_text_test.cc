// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/state_text.h"

#include "gtest/gtest.h"

namespace slimps {
namespace {

TEST(StateText, ComesBackExactly) {
  const std::map<KeyId, std::string> codecs = {{7, "none"}, {~KeyId{0}, "topk:ratio=0.1,k=2"}};
  const std::map<KeyId, double> numbers = {{1, 1.0 / 3}, {2, 5e-324}};
  StateWriter writer;
  writer.Add("name").Add(~uint64_t{0}).Add(0.1).Add(codecs).Add(numbers);
  StateReader reader("name", writer.text());
  EXPECT_EQ(reader.Uint(), ~uint64_t{0});
  EXPECT_EQ(reader.Real(), 0.1);
  EXPECT_EQ(reader.Codecs(), codecs);
  EXPECT_EQ(reader.Reals(), numbers);
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(StateText, SaysWhichWordIsWrong) {
  StateReader other("gravac", "lgreco 1");
  EXPECT_EQ(other.Finish().message(),
            "state of policy gravac, word 1: expected gravac, got 'lgreco'");
  StateReader short_of("p", "p 1");
  short_of.Uint();
  EXPECT_EQ(short_of.Uint(), 0u);
  EXPECT_FALSE(short_of.ok());
  EXPECT_EQ(short_of.Finish().message(),
            "state of policy p, word 3: expected a whole number, got ''");
  StateReader infinite("p", "p inf");
  infinite.Real();
  EXPECT_FALSE(infinite.Finish().ok());
  StateReader longer("p", "p 1 2");
  longer.Uint();
  EXPECT_EQ(longer.Finish().message(), "state of policy p, word 2: expected nothing more, got '2'");
}

}  // namespace
}  // namespace slimps
