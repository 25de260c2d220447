// SPDX-License-Identifier: Apache-2.0
// A partition whose versions are pulled as fp32 weights, in half precision or as encoded changes.
// What workers build from the answers equals, bit for bit, what the server thinks they see,
// whatever they held before.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec/catalogue/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/change_codecs.h"
#include "server/round/partition.h"
#include "tests/server/round/puller.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kElements = 2 * kBlockElements + 300;

class PullCompression : public ::testing::Test {
 protected:
  static PartitionSpec Spec(uint32_t workers, wire::DType dtype = wire::FLOAT32) {
    PartitionSpec spec;
    spec.key = Key("w").id();
    spec.index = 3;
    spec.name = "s:w";
    spec.elements = kElements;
    spec.dtype = dtype;
    spec.num_workers = workers;
    return spec;
  }
  static std::unique_ptr<Partition> Make(const PartitionSpec& spec,
                                         const wire::OptimizerSpec& optimizer = SgdSpec(0.1, 0.9)) {
    return Partition::Create(spec, Raw(RandomValues(spec.elements, 1)), MakeOptimizer(optimizer))
        .value();
  }
  std::shared_ptr<const ChangeCodec> Codec(const std::string& spec) {
    auto codec = codecs_.Find(spec);
    EXPECT_TRUE(codec.ok()) << codec.status();
    return codec.value();
  }

  // Each worker pushes random numbers and asks for pulls encoded by `codec`.
  void Round(Partition& partition, const std::string& codec) {
    const uint64_t round = partition.version() + 1;
    for (uint32_t worker = 0; worker < partition.spec().num_workers; ++worker) {
      ASSERT_TRUE(
          partition.Push(round, worker, kElements, Gradient(round, worker), Codec(codec)).ok());
    }
    ASSERT_TRUE(partition.HasCompleteRound());
    partition.ApplyNextRound();
  }
  static ClaimedPayload Gradient(uint64_t round, uint32_t worker) {
    return Raw(RandomValues(kElements, 100 * round + worker));
  }
  static std::vector<float> Seen(const Partition& partition) {
    return {partition.seen().begin(), partition.seen().end()};
  }
  static std::vector<float> Weights(const Partition& partition) {
    return {partition.weights().begin(), partition.weights().end()};
  }

  FakeClock clock_;
  ChangeCodecs codecs_{&clock_};
};

std::vector<std::string> ChangeCodecNames() {
  std::vector<std::string> names;
  for (const CodecEntry& entry : AllCodecs()) {
    const auto is = [&](auto... name) { return ((entry.name == name) || ...); };
    if (is("dgc", "signsgd", "powersgd")) continue;  // refused
    if (is("fp16", "bf16")) continue;                // weights, not changes
    names.emplace_back(entry.name);
  }
  for (const char* name : {"1bit:scaling=two_mean", "2bit:threshold=0.05", "topk:ratio=0.1",
                           "topk:ratio=0.01,warmup=3", "qsgd:bits=8", "1bit:clip=1"}) {
    names.emplace_back(name);
  }
  return names;
}

class EveryChangeCodec : public PullCompression,
                         public ::testing::WithParamInterface<std::string> {};

TEST_P(EveryChangeCodec, WorkersHoldWhatTheServerTakesThemToSee) {
  for (const bool optimizer : {true, false}) {
    const wire::OptimizerSpec spec = optimizer ? SgdSpec(0.01, 0.9) : wire::OptimizerSpec();
    auto partition = Make(Spec(2), spec), uncompressed = Make(Spec(2), spec);
    Puller every, late, missing;
    every.Pull(*partition, 0);
    late.Pull(*partition, 0);
    missing.Pull(*partition, 0);
    std::vector<float> seen_before;
    for (uint64_t version = 1; version <= 50; ++version) {
      Round(*partition, GetParam());
      Round(*uncompressed, "");
      every.Pull(*partition, version);
      ASSERT_EQ(every.weights(), Seen(*partition)) << version;
      // This worker is one version late and still gets exactly the version that it names.
      if (version > 1) {
        late.Pull(*partition, version - 1);
        ASSERT_EQ(late.weights(), seen_before) << version;
      }
      if (version % 7 == 0) {
        EXPECT_FALSE(missing.Pull(*partition, version));
        ASSERT_EQ(missing.weights(), every.weights()) << version;
      }
      seen_before = Seen(*partition);
      // How weights are pulled does not affect how they are stepped.
      ASSERT_EQ(Weights(*partition), Weights(*uncompressed)) << version;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryChangeCodec, ::testing::ValuesIn(ChangeCodecNames()),
                         [](const auto& info) {
                           std::string name = "_" + info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name;
                         });

TEST_F(PullCompression, ChangesAreSmallAndWhatTheyLeaveOutComesLater) {
  auto partition = Make(Spec(2), SgdSpec(0.01));
  Puller worker;
  worker.Pull(*partition, 0);
  for (uint64_t version = 1; version <= 60; ++version) {
    Round(*partition, "1bit");
    EXPECT_TRUE(worker.Pull(*partition, version));
    EXPECT_LT(worker.bytes(), kElements * sizeof(float) / 30);
  }
  const std::vector<float> weights = Weights(*partition), start = RandomValues(kElements, 1);
  double off = 0, moved = 0;
  for (size_t i = 0; i < kElements; ++i) {
    off += std::pow(worker.weights()[i] - weights[i], 2);
    moved += std::pow(start[i] - weights[i], 2);
  }
  EXPECT_GT(off, 0);
  EXPECT_LT(off, moved / 5) << "errors must not pile up";
}

TEST_F(PullCompression, AnythingMayFollowAnything) {
  for (const wire::DType dtype : {wire::FLOAT32, wire::FLOAT16, wire::BFLOAT16}) {
    const char* const plan[] = {"1bit", "1bit",           "",     "",     "2bit:threshold=0.01",
                                "fp16", "topk:ratio=0.1", "bf16", "1bit", "fp16",
                                "fp16", "1bit",           "none", "1bit"};
    auto partition = Make(Spec(3, dtype));
    auto uncompressed = Make(Spec(3, dtype));
    Puller every, late, keyframes;
    every.Pull(*partition, 0);
    late.Pull(*partition, 0);
    std::vector<float> before = every.weights();
    uint64_t version = 0;
    for (const std::string codec : plan) {
      ++version;
      Round(*partition, codec);
      Round(*uncompressed, "");
      const bool changes = codec == "1bit" || codec.find(':') != std::string::npos;
      EXPECT_EQ(every.Pull(*partition, version), changes) << version << " " << codec;
      Puller fresh;  // holds nothing
      EXPECT_FALSE(fresh.Pull(*partition, version));
      ASSERT_EQ(every.weights(), fresh.weights()) << version << " " << codec;
      late.Pull(*partition, version - 1);
      ASSERT_EQ(late.weights(), before) << version << " " << codec;
      before = every.weights();
      const std::vector<float> weights = Weights(*partition);
      ASSERT_EQ(weights, Weights(*uncompressed)) << version << " " << codec;
      // "none", or no codec with fp32 pulls, sends the weights themselves. They make up for all
      // that earlier changes left out.
      if (codec == "none" || (codec.empty() && dtype == wire::FLOAT32)) {
        EXPECT_EQ(every.weights(), weights) << version;
      }
      if (codec == "fp16") {
        EXPECT_EQ(every.bytes(), kElements * 2);
        for (size_t i = 0; i < kElements; ++i) EXPECT_NEAR(every.weights()[i], weights[i], 0.01);
      }
    }
  }
}

TEST_F(PullCompression, TheLowestRankOfTheRoundSaysHowItIsPulled) {
  const auto pull = [&](std::vector<std::pair<uint32_t, std::string>> pushes) {
    auto partition = Make(Spec(3));
    for (const auto& [worker, codec] : pushes) {
      EXPECT_TRUE(partition->Push(1, worker, kElements, Gradient(1, worker), Codec(codec)).ok());
    }
    partition->ApplyNextRound();
    return partition->Share(1, 0).format;
  };
  EXPECT_EQ(pull({{0, "1bit"}, {1, ""}, {2, "topk"}}), PayloadFormat::kLevels);
  EXPECT_EQ(pull({{2, "topk"}, {1, ""}, {0, "1bit"}}), PayloadFormat::kLevels);
  EXPECT_EQ(pull({{1, "1bit"}, {2, "topk"}, {0, ""}}), PayloadFormat::kRawF32);
  EXPECT_EQ(pull({{1, "1bit"}, {0, "fp16"}, {2, "1bit"}}), PayloadFormat::kRawF16);
}

TEST_F(PullCompression, AWorkerThatLeftHasNoSayAndOneWithoutGradientHas) {
  auto partition = Make(Spec(3));
  ASSERT_TRUE(partition->Leave(0, 1).ok());
  ASSERT_TRUE(partition->Push(1, 2, kElements, Gradient(1, 2), Codec("topk:ratio=0.1")).ok());
  ASSERT_TRUE(partition->Push(1, 1, kElements, {}, Codec("1bit")).ok());  // ABSENT
  partition->ApplyNextRound();
  EXPECT_EQ(partition->Share(1, 0).format, PayloadFormat::kLevels);
}

TEST_F(PullCompression, ARoundOfNothingStepsNothingAndStillPassesOnWhatWasLeftOut) {
  auto partition = Make(Spec(1));
  ASSERT_TRUE(partition->Push(1, 0, kElements, Gradient(1, 0), Codec("topk:ratio=0.5")).ok());
  partition->ApplyNextRound();
  const std::vector<float> weights(partition->weights().begin(), partition->weights().end());
  ASSERT_FALSE(std::ranges::equal(partition->seen(), weights)) << "half was left out";
  ASSERT_TRUE(partition->Push(2, 0, kElements, {}, Codec("topk:ratio=0.5")).ok());
  partition->ApplyNextRound();
  EXPECT_TRUE(std::ranges::equal(partition->weights(), weights));
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_NEAR(partition->seen()[i], weights[i], 1e-6) << i;  // seen + (weights - seen) is rounded
  }
}

TEST_F(PullCompression, RoundsAheadKeepTheirOwnChoice) {
  auto partition = Make(Spec(2));
  ASSERT_TRUE(partition->Push(2, 0, kElements, Gradient(2, 0), Codec("1bit")).ok());
  ASSERT_TRUE(partition->Push(1, 0, kElements, Gradient(1, 0), Codec("")).ok());
  ASSERT_TRUE(partition->Push(1, 1, kElements, Gradient(1, 1), Codec("")).ok());
  partition->ApplyNextRound();
  EXPECT_FALSE(partition->Share(1, 0).base_version.has_value());
  ASSERT_TRUE(partition->Push(2, 1, kElements, Gradient(2, 1), Codec("1bit")).ok());
  partition->ApplyNextRound();
  EXPECT_EQ(partition->Share(2, 1).base_version, 1u);
  EXPECT_FALSE(partition->Share(2, 0).base_version.has_value()) << "a version is missing";
}

TEST_F(PullCompression, ARoundWithoutAnyGradientIsAChangeToo) {
  auto partition = Make(Spec(2), SgdSpec(0.1, 0.9));
  Puller worker;
  worker.Pull(*partition, 0);
  Round(*partition, "1bit");
  worker.Pull(*partition, 1);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(partition->Push(2, rank, kElements, {}, Codec("1bit")).ok());
  }
  partition->ApplyNextRound();
  EXPECT_TRUE(worker.Pull(*partition, 2));
  EXPECT_EQ(worker.weights(), Seen(*partition));
}

TEST_F(PullCompression, AMajorityOfSignsIsSteppedThenEncoded) {
  PartitionSpec spec = Spec(3);
  spec.combine = Combine::kMajority;
  auto partition = Make(spec, SgdSpec(0.01));
  Puller worker;
  worker.Pull(*partition, 0);
  for (uint64_t version = 1; version <= 5; ++version) {
    Round(*partition, "1bit");
    EXPECT_TRUE(worker.Pull(*partition, version));
    EXPECT_EQ(worker.weights(), Seen(*partition));
  }
}

TEST_F(PullCompression, WhatCannotBeEncodedIsPulledAsItIsAndChangesGoOnFromThere) {
  for (const char* codec : {"1bit", "topk:ratio=0.1"}) {
    auto partition = Make(Spec(1), {});
    Puller worker;
    worker.Pull(*partition, 0);
    std::vector<float> values(kElements, 1.0f);
    values[kBlockElements + 7] = std::numeric_limits<float>::infinity();
    ASSERT_TRUE(partition->Push(1, 0, kElements, Raw(values), Codec(codec)).ok());
    partition->ApplyNextRound();
    EXPECT_FALSE(worker.Pull(*partition, 1));
    EXPECT_EQ(worker.weights(), values);
    // The change from infinity back to a number cannot be encoded either.
    values[kBlockElements + 7] = 2;
    for (uint64_t version = 2; version <= 4; ++version) {
      ASSERT_TRUE(partition->Push(version, 0, kElements, Raw(values), Codec(codec)).ok());
      partition->ApplyNextRound();
      EXPECT_EQ(worker.Pull(*partition, version), version > 2) << version;
      EXPECT_EQ(worker.weights(), Seen(*partition));
      values[3] += 1;
    }
  }
}

TEST_F(PullCompression, AnEncodingWorseThanNoneIsNotSent) {
  // MXNet's unscaled 1bit moves every weight by 1, however small its change is.
  auto partition = Make(Spec(1), SgdSpec(1e-3));
  Puller worker;
  worker.Pull(*partition, 0);
  for (uint64_t version = 1; version <= 3; ++version) {
    Round(*partition, "1bit:scaling=none");
    EXPECT_FALSE(worker.Pull(*partition, version));
    EXPECT_EQ(worker.weights(), Weights(*partition));
  }
}

TEST_F(PullCompression, AChangeThatIsNoSmallerThanTheWeightsIsNotSent) {
  auto partition = Make(Spec(1));
  Puller worker;
  worker.Pull(*partition, 0);
  for (const char* codec :
       {"topk:ratio=0.1", "topk:ratio=0.9", "topk:ratio=0.1", "topk:ratio=0.9"}) {
    Round(*partition, codec);
    const bool small = std::string(codec) == "topk:ratio=0.1";
    EXPECT_EQ(worker.Pull(*partition, partition->version()), small) << codec;
    EXPECT_EQ(worker.weights(), Seen(*partition));
    EXPECT_EQ(worker.weights() == Weights(*partition), !small) << "nothing is left out";
    EXPECT_LE(worker.bytes(), kElements * sizeof(float));
  }
}

// If the server drew from a worker's random stream, its rounding errors would repeat those of that
// worker's push.
TEST_F(PullCompression, ARandomCodecsStreamIsNoWorkers) {
  for (const char* codec : {"qsgd:bits=8", "terngrad", "drive"}) {
    PartitionSpec spec = Spec(2);
    auto partition =
        Partition::Create(spec, Raw(std::vector<float>(kElements)), MakeOptimizer({})).value();
    const std::vector<float> values = RandomValues(kElements, 5);
    ASSERT_TRUE(partition->Push(1, 0, kElements, Raw(values), Codec(codec)).ok());
    ASSERT_TRUE(partition->Push(1, 1, kElements, {}, Codec(codec)).ok());
    partition->ApplyNextRound();  // the change is `values`
    const WireValue change = partition->Share(1, 0);
    if (!change.base_version.has_value()) continue;  // the change would be worse than none
    for (const uint32_t worker : {0u, 1u}) {
      const slimps::Codec& encoder = *Codec(codec)->codec;
      std::vector<std::byte> payload(encoder.MaxPayloadBytes(kElements));
      EncodeWorkspace workspace;
      const EncodeContext context = {
          .key = spec.key, .partition = spec.index, .round = 1, .worker = worker};
      const auto encoded = encoder.Encode({.gradient = values, .residual = {}, .context = context},
                                          payload, workspace);
      ASSERT_TRUE(encoded.ok()) << encoded.status();
      ASSERT_EQ(encoded->payload_bytes, change.payload.size());
      EXPECT_FALSE(
          std::equal(change.payload.bytes().begin(), change.payload.bytes().end(), payload.begin()))
          << codec << " worker " << worker;
    }
  }
}

TEST_F(PullCompression, ASharedChangeKeepsItsBytesWhileNewerOnesAreWritten) {
  auto partition = Make(Spec(1));
  Round(*partition, "1bit");
  const WireValue first = partition->Share(1, 0);
  const WireValue again = partition->Share(1, 0);
  EXPECT_EQ(first.payload.bytes().data(), again.payload.bytes().data()) << "one buffer for all";
  const std::vector<std::byte> bytes(first.payload.bytes().begin(), first.payload.bytes().end());
  for (int i = 0; i < 5; ++i) Round(*partition, "1bit");
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), first.payload.bytes().begin()));
  EXPECT_EQ(first.hash, HashBytes(first.payload.bytes()));
}

TEST_F(PullCompression, AsynchronousPushesCannotAskForChanges) {
  PartitionSpec spec = Spec(1);
  spec.mode = wire::DIST_ASYNC;
  auto partition = Make(spec);
  const auto pushed = partition->Push(1, 0, kElements, Gradient(1, 0), Codec("1bit"));
  EXPECT_EQ(pushed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pushed.status().message()),
              AllOf(HasSubstr("s:w"), HasSubstr("1bit"), HasSubstr("dist_sync")));
  EXPECT_EQ(partition->version(), 0) << "and are not counted";
  EXPECT_TRUE(partition->Push(1, 0, kElements, Gradient(1, 0)).ok());
}

}  // namespace
}  // namespace slimps
