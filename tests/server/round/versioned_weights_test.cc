// SPDX-License-Identifier: Apache-2.0
#include "server/round/versioned_weights.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/buffer.h"
#include "proto/base/hash.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

VersionedWeights MakeWeights(float value, PayloadFormat format = PayloadFormat::kRawF32) {
  VersionedWeights weights(2, format);
  std::fill_n(weights.MutableInitial().begin(), 2, value);
  return weights;
}

void Step(VersionedWeights& weights, PreviousVersion previous, float value) {
  const std::span<float> next = weights.BeginNext(previous);
  std::fill(next.begin(), next.end(), value);
  weights.Commit();
}

TEST(VersionedWeights, ASharedVersionKeepsItsValueWhileNewerOnesAreWritten) {
  VersionedWeights weights = MakeWeights(1);
  const WireValue held = weights.Share(0);
  EXPECT_EQ(static_cast<const void*>(held.payload.bytes().data()),
            static_cast<const void*>(weights.current().data()));  // no copy
  for (const auto previous : {PreviousVersion::kKeep, PreviousVersion::kDrop}) {
    for (int i = 0; i < 3; ++i) Step(weights, previous, 5);
  }
  EXPECT_THAT(Floats(held.payload), ElementsAre(1, 1));
  EXPECT_EQ(held.version, 0);
  EXPECT_EQ(weights.version(), 6);
}

TEST(VersionedWeights, TheVersionBeforeIsServedExactlyWhenKept) {
  VersionedWeights weights = MakeWeights(1);
  Step(weights, PreviousVersion::kKeep, 2);
  Step(weights, PreviousVersion::kKeep, 3);
  EXPECT_EQ(weights.Share(1).version, 1);
  EXPECT_THAT(Floats(weights.Share(1).payload), ElementsAre(2, 2));
  EXPECT_FALSE(weights.Holds(0)) << "gone";
  EXPECT_FALSE(weights.Holds(3)) << "to come";
  EXPECT_EQ(weights.Share(2).version, 2);
}

TEST(VersionedWeights, APayloadTravelsAsItIsAndIsDecodedWhereFloatsAreWanted) {
  VersionedWeights weights = MakeWeights(1);
  const std::vector<float> values = {3, 4};
  const auto bytes = std::as_bytes(std::span(values));
  for (int i = 0; i < 3; ++i) {
    weights.BeginNext(PreviousVersion::kKeep);
    std::ranges::copy(bytes, weights.BeginChange(bytes.size()).begin());
    weights.CommitEncoded({.format = PayloadFormat::kRawF32, .bytes = bytes.size()});
    const uint64_t version = weights.version();
    for (const auto held : {std::optional<uint64_t>(), std::optional<uint64_t>(version - 1)}) {
      const WireValue value = weights.Share(version, held);
      EXPECT_FALSE(value.base_version.has_value()) << "no change";
      EXPECT_NE(static_cast<const void*>(value.payload.bytes().data()),
                static_cast<const void*>(weights.current().data()));
      EXPECT_THAT(Floats(value.payload), ElementsAre(3, 4));
      EXPECT_EQ(value.hash, HashBytes(bytes));
    }
    EXPECT_THAT(weights.current(), ElementsAre(3, 4));
    float second = 0;
    weights.CopySeenPart(version, 1, {&second, 1});
    EXPECT_EQ(second, 4);
    Step(weights, PreviousVersion::kKeep, 7);
    EXPECT_THAT(Floats(weights.Share(version + 1, version).payload), ElementsAre(7, 7));
    EXPECT_THAT(Floats(weights.Share(version).payload), ElementsAre(3, 4)) << "still held";
  }
}

TEST(VersionedWeights, UnreadBuffersAreUsedAgain) {
  VersionedWeights weights = MakeWeights(0);
  for (int i = 0; i < 20; ++i) {
    const WireValue sent = weights.Share(weights.version());
    Step(weights, PreviousVersion::kKeep, 1);
  }
  EXPECT_LE(weights.buffer_count(), 3);
}

// Holds each version until there are `held` newer ones, as messages on their way do.
void RunWithReaders(VersionedWeights& weights, size_t held, int rounds) {
  std::deque<WireValue> readers;
  for (int i = 0; i < rounds; ++i) {
    readers.push_back(weights.Share(weights.version()));
    if (readers.size() > held) readers.pop_front();
    Step(weights, PreviousVersion::kKeep, 1);
  }
}

TEST(VersionedWeights, SteadyReadersMakeNoNewBuffers) {
  for (const PayloadFormat format : {PayloadFormat::kRawF32, PayloadFormat::kRawBf16}) {
    for (size_t held = 0; held < 4; ++held) {
      VersionedWeights weights = MakeWeights(0, format);
      RunWithReaders(weights, held, 10);
      const size_t made = weights.buffers_made();
      EXPECT_LE(made, 3 + held);
      RunWithReaders(weights, held, 50);
      // The readers of the first run let go all at once. So at most one more buffer was given back
      // than the second run keeps.
      EXPECT_LE(weights.buffers_made(), made + (held > 2 ? held - 2 : 0)) << held;
    }
  }
}

TEST(VersionedWeights, HalfPrecisionGoesToMemoryThatIsUsedAgain) {
  VersionedWeights weights = MakeWeights(0, PayloadFormat::kRawF16);
  std::set<const void*> places;
  for (int i = 0; i < 50; ++i) {
    places.insert(weights.Share(weights.version()).payload.bytes().data());
    Step(weights, PreviousVersion::kKeep, 1);
  }
  EXPECT_EQ(places.size(), weights.buffers_made());
}

TEST(VersionedWeights, WhatHalfPrecisionCannotHoldTravelsInFp32) {
  for (const auto& [format, fits, exceeds] :
       {std::tuple(PayloadFormat::kRawF16, 65504.0f, 65520.0f),
        std::tuple(PayloadFormat::kRawBf16, 3.38e38f, 3.4e38f)}) {
    VersionedWeights weights = MakeWeights(fits, format);
    EXPECT_EQ(weights.Share(0).format, format);
    Step(weights, PreviousVersion::kDrop, exceeds);
    for (int again = 0; again < 2; ++again) {
      const WireValue shared = weights.Share(1);
      EXPECT_EQ(shared.format, PayloadFormat::kRawF32);
      EXPECT_THAT(Floats(shared.payload), ElementsAre(exceeds, exceeds));
      EXPECT_EQ(shared.hash, HashBytes(shared.payload.bytes()));
    }
    Step(weights, PreviousVersion::kDrop, fits);
    EXPECT_EQ(weights.Share(2).format, format);
  }
}

TEST(VersionedWeights, AHalfPrecisionValueOnItsWayIsNotWrittenOver) {
  VersionedWeights weights = MakeWeights(1.5f, PayloadFormat::kRawF16);
  const WireValue held = weights.Share(0);
  for (int i = 0; i < 4; ++i) {
    Step(weights, PreviousVersion::kDrop, 2.0f);
    EXPECT_EQ(weights.Share(weights.version()).payload.bytes()[1], std::byte{0x40});
  }
  EXPECT_EQ(held.payload.bytes()[1], std::byte{0x3e});
}

TEST(VersionedWeights, WithoutReadersAndHistoryTheUpdateIsInPlace) {
  VersionedWeights weights = MakeWeights(0);
  const float* const before = weights.current().data();
  Step(weights, PreviousVersion::kDrop, 1);
  EXPECT_EQ(weights.current().data(), before);
  EXPECT_EQ(weights.buffer_count(), 1);
}

TEST(VersionedWeights, BuffersMadeForSlowReadersAreGivenBack) {
  VersionedWeights weights = MakeWeights(0);
  std::vector<WireValue> held;
  for (int i = 0; i < 10; ++i) {
    held.push_back(weights.Share(weights.version()));
    Step(weights, PreviousVersion::kKeep, 1);
  }
  EXPECT_GE(weights.buffer_count(), 10);
  held.clear();
  for (int i = 0; i < 2; ++i) Step(weights, PreviousVersion::kKeep, 1);
  EXPECT_LE(weights.buffer_count(), 4);
}

class CountingMemory final : public PayloadMemory {
 public:
  std::byte* Allocate(size_t bytes) override {
    ++given_;
    return static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, bytes));
  }
  void Free(std::byte* data, size_t) override { std::free(data); }
  int given() const { return given_; }

 private:
  int given_ = 0;
};

TEST(VersionedWeights, ChangesLieWhereWeightsDoInThePayloadsMemory) {
  CountingMemory memory;
  SetPayloadMemory(&memory);
  {
    VersionedWeights weights(kMinPayloadMemoryBytes, PayloadFormat::kRawF32);
    weights.BeginNext(PreviousVersion::kKeep);
    EXPECT_EQ(memory.given(), 2);
    weights.BeginChange(kMinPayloadMemoryBytes);
    EXPECT_EQ(memory.given(), 3);
    weights.CommitChange({.bytes = kMinPayloadMemoryBytes});
  }
  SetPayloadMemory(nullptr);
}

TEST(VersionedWeights, AVersionBegunAndGivenUpChangesNothing) {
  VersionedWeights weights = MakeWeights(1);
  const WireValue held = weights.Share(0);
  const std::span<float> given_up = weights.BeginNext(PreviousVersion::kDrop);
  std::fill(given_up.begin(), given_up.end(), 9.0f);
  Step(weights, PreviousVersion::kDrop, 2);
  EXPECT_THAT(weights.current(), ElementsAre(2, 2));
  EXPECT_THAT(Floats(held.payload), ElementsAre(1, 1));
  EXPECT_EQ(weights.version(), 1);
}

TEST(VersionedWeights, PayloadOutlivesTheWeights) {
  std::optional<VersionedWeights> weights(MakeWeights(4));
  const WireValue held = weights->Share(0);
  weights.reset();
  EXPECT_THAT(Floats(held.payload), ElementsAre(4, 4));
}

TEST(VersionedWeights, HalfPrecisionIsConvertedOncePerVersion) {
  VersionedWeights weights = MakeWeights(1.5f, PayloadFormat::kRawF16);
  const WireValue first = weights.Share(0), second = weights.Share(0);
  EXPECT_EQ(first.format, PayloadFormat::kRawF16);
  EXPECT_EQ(first.payload.size(), 4);
  EXPECT_EQ(first.payload.bytes().data(), second.payload.bytes().data());
  EXPECT_EQ(first.payload.bytes()[1], std::byte{0x3e});  // 1.5 is 0x3e00
  Step(weights, PreviousVersion::kKeep, 2.0f);
  EXPECT_EQ(weights.Share(1).payload.bytes()[1], std::byte{0x40});
  EXPECT_EQ(weights.Share(0).payload.bytes()[1], std::byte{0x3e});
}

TEST(VersionedWeights, HashIsThatOfTheBytesOfEachVersion) {
  VersionedWeights weights = MakeWeights(1);
  Step(weights, PreviousVersion::kKeep, 2);
  Step(weights, PreviousVersion::kKeep, 3);
  for (const uint64_t version : {1, 2}) {
    const WireValue value = weights.Share(version);
    EXPECT_EQ(value.hash, HashBytes(value.payload.bytes()));
  }
}

}  // namespace
}  // namespace slimps
