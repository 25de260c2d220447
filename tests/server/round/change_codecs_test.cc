// SPDX-License-Identifier: Apache-2.0
// The codecs of changes: each is created once, bad ones are refused with reasons, and encoding is
// timed.
#include "server/round/change_codecs.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "server/round/partition.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ChangeCodecsTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ChangeCodec> Codec(const std::string& spec) {
    auto codec = codecs_.Find(spec);
    EXPECT_TRUE(codec.ok()) << codec.status();
    return codec.value();
  }

  FakeClock clock_;
  ChangeCodecs codecs_{&clock_};
};

TEST_F(ChangeCodecsTest, CodecsAreMadeOnceAndRefusedWithReasons) {
  EXPECT_EQ(Codec(""), nullptr);
  EXPECT_EQ(Codec("1bit"), Codec("1bit"));
  EXPECT_NE(Codec("1bit")->by_blocks, nullptr);
  EXPECT_EQ(Codec("topk:ratio=0.1")->by_blocks, nullptr);
  EXPECT_FALSE(Codec("fp16")->encodes_change());
  EXPECT_FALSE(Codec("none")->encodes_change());
  const auto refusal = [&](const std::string& spec) {
    const auto codec = codecs_.Find(spec);
    EXPECT_EQ(codec.status().code(), absl::StatusCode::kInvalidArgument) << spec;
    return std::string(codec.status().message());
  };
  EXPECT_THAT(refusal("dgc"), AllOf(HasSubstr("codec dgc"), HasSubstr("momentum")));
  EXPECT_THAT(refusal("1bit:momentum=nesterov"), HasSubstr("momentum"));
  EXPECT_THAT(refusal("signsgd"), HasSubstr("vote"));
  EXPECT_THAT(refusal("9bit"), HasSubstr("9bit"));
  EXPECT_THAT(refusal("1bit:"), HasSubstr("1bit:"));
}

TEST_F(ChangeCodecsTest, APeerCannotMakeTheCacheOfCodecsGrowWithoutEnd) {
  const auto kept = Codec("topk:k=1000");
  for (int k = 1; k <= 300; ++k) Codec("topk:k=" + std::to_string(k));
  EXPECT_LE(codecs_.size(), ChangeCodecs::kMaxKept);
  EXPECT_EQ(kept->codec->spec().ToString(), "topk:k=1000");
}

// Moves on by three microseconds at each reading.
class TickingClock final : public Clock {
 public:
  SteadyTime Now() const override {
    now_ += absl::Microseconds(3);
    return now_;
  }

  absl::Time WallNow() const override { return absl::UnixEpoch(); }

 private:
  mutable SteadyTime now_ = SteadyTime();
};

TEST(ChangeCodecs, AChangeSaysHowLongItsEncodingTook) {
  const TickingClock clock;
  ChangeCodecs timed(&clock);
  for (const char* codec : {"1bit", "topk:ratio=0.1"}) {
    PartitionSpec spec;
    spec.key = Key("w").id();
    spec.name = "s:w";
    spec.elements = 2 * kBlockElements + 300;
    spec.num_workers = 1;
    auto partition =
        Partition::Create(spec, Raw(RandomValues(spec.elements, 1)), MakeOptimizer(SgdSpec(0.1)))
            .value();
    ASSERT_TRUE(partition
                    ->Push(1, 0, spec.elements, Raw(RandomValues(spec.elements, 2)),
                           timed.Find(codec).value())
                    .ok());
    partition->ApplyNextRound();
    // 1bit encodes three blocks. The first one is timed and counts three times: 3 * 3 us. topk runs
    // once over all elements: 3 us.
    EXPECT_EQ(partition->Share(1, 0).encode_ns, codec[0] == '1' ? 9000 : 3000) << codec;
    EXPECT_EQ(partition->Share(1).encode_ns, 0) << "of the weights themselves";
  }
}

}  // namespace
}  // namespace slimps
