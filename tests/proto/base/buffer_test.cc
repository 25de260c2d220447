// SPDX-License-Identifier: Apache-2.0
// AlignedBuffer: where its bytes come from, and that they go back there.
#include "proto/base/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace slimps {
namespace {

// Counts the bytes that it gives out and takes back.
class CountingMemory final : public PayloadMemory {
 public:
  std::byte* Allocate(size_t bytes) override {
    if (empty) return nullptr;
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, bytes));
    given[data] = bytes;
    return data;
  }
  void Free(std::byte* data, size_t bytes) override {
    EXPECT_EQ(given[data], bytes);
    given.erase(data);
    std::free(data);
  }

  std::map<std::byte*, size_t> given;
  bool empty = false;
};

class BufferTest : public testing::Test {
 protected:
  BufferTest() { SetPayloadMemory(&memory_); }
  ~BufferTest() override { SetPayloadMemory(nullptr); }

  CountingMemory memory_;
};

constexpr size_t kLarge = kMinPayloadMemoryBytes;

TEST_F(BufferTest, LargePayloadBuffersComeFromTheProcessesPayloadMemory) {
  AlignedBuffer buffer(kLarge, BufferUse::kPayload);
  ASSERT_EQ(memory_.given.size(), 1u);
  EXPECT_EQ(memory_.given.begin()->first, buffer.bytes().data());
  EXPECT_EQ(memory_.given.begin()->second, kLarge);
  EXPECT_EQ(buffer.size(), kLarge);
  buffer = AlignedBuffer();
  EXPECT_TRUE(memory_.given.empty());
}

TEST_F(BufferTest, SmallAndPrivateBuffersAreOrdinaryMemory) {
  const AlignedBuffer small(kLarge - kBufferAlignment, BufferUse::kPayload);
  const AlignedBuffer own(kLarge);
  const AlignedBuffer none(0, BufferUse::kPayload);
  EXPECT_TRUE(memory_.given.empty());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.bytes().data()) % kBufferAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(own.bytes().data()) % kBufferAlignment, 0u);
}

TEST_F(BufferTest, OrdinaryMemoryTakesThePlaceOfPayloadMemoryThatIsUsedUp) {
  memory_.empty = true;
  AlignedBuffer buffer(kLarge, BufferUse::kPayload);
  ASSERT_EQ(buffer.bytes().size(), kLarge);
  std::memset(buffer.bytes().data(), 1, kLarge);
  memory_.empty = false;
  buffer = AlignedBuffer();  // frees memory that was never given to it
}

TEST_F(BufferTest, ABufferGoesBackToWhereItCameFrom) {
  auto before = AlignedBuffer(kLarge, BufferUse::kPayload);
  SetPayloadMemory(nullptr);
  auto after = AlignedBuffer(kLarge, BufferUse::kPayload);
  EXPECT_EQ(memory_.given.size(), 1u);
  std::swap(before, after);
  after = AlignedBuffer();
  EXPECT_TRUE(memory_.given.empty());
}

TEST_F(BufferTest, MovingKeepsTheBytesAndTheirSource) {
  AlignedBuffer first(kLarge, BufferUse::kPayload);
  std::byte* const data = first.bytes().data();
  AlignedBuffer second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  {
    const Payload payload = Payload::Adopt(std::move(second), kLarge - 4);
    const std::vector<Payload> copies(2, payload);
    EXPECT_EQ(copies[1].bytes().data(), data);
    EXPECT_EQ(memory_.given.size(), 1u);
  }
  EXPECT_TRUE(memory_.given.empty());
}

TEST_F(BufferTest, CopiedPayloadsLieInPayloadMemory) {
  AlignedBuffer source(kLarge);
  std::memset(source.bytes().data(), 7, kLarge);
  const Payload copy = Payload::Copy(source.bytes());
  EXPECT_EQ(memory_.given.size(), 1u);
  EXPECT_EQ(std::memcmp(copy.bytes().data(), source.bytes().data(), kLarge), 0);
}

}  // namespace
}  // namespace slimps
