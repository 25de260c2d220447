// SPDX-License-Identifier: Apache-2.0
// SharedMemory gives out memory and takes it back. SegmentMapping checks all that it is told.
#include "proto/net/shared/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/net/shared/segment_mapping.h"

namespace slimps {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSegment = 16 * kPage;

std::span<const std::byte> At(const std::byte* data, size_t bytes) { return {data, bytes}; }

TEST(SharedMemory, FindsWhatLiesInASegmentAndNothingElse) {
  SharedMemory memory(kSegment);
  ASSERT_TRUE(memory.ok());
  std::byte* const data = memory.Allocate(3 * kPage);
  const auto whole = memory.Find(At(data, 3 * kPage));
  const auto part = memory.Find(At(data + 100, 8));
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->segment.pid, static_cast<uint64_t>(getpid()));
  EXPECT_EQ(whole->segment.id, part->segment.id);
  EXPECT_EQ(part->offset, whole->offset + 100);
  EXPECT_FALSE(memory.Find(At(data, kSegment + kPage)));  // past the segment's end
  std::vector<std::byte> elsewhere(64);
  EXPECT_FALSE(memory.Find(elsewhere));
  memory.Free(data, 3 * kPage);
}

TEST(SharedMemory, BuffersDoNotOverlapAndAreAligned) {
  SharedMemory memory(kSegment);
  std::vector<std::pair<std::byte*, size_t>> buffers;
  for (size_t i = 1; i <= 40; ++i) {
    const size_t bytes = i * 777;
    std::byte* const data = memory.Allocate(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kBufferAlignment, 0u);
    std::memset(data, static_cast<int>(i), bytes);
    buffers.emplace_back(data, bytes);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto [data, bytes] = buffers[i];
    for (size_t at = 0; at < bytes; ++at) ASSERT_EQ(static_cast<size_t>(data[at]), i + 1);
    memory.Free(data, bytes);
  }
  EXPECT_EQ(memory.stats().bytes_in_use, 0u);
}

TEST(SharedMemory, FreedNeighboursBecomeOneHole) {
  SharedMemory memory(kSegment);
  std::vector<std::byte*> quarters;
  for (int i = 0; i < 4; ++i) quarters.push_back(memory.Allocate(kSegment / 4));
  EXPECT_EQ(memory.stats().segments, 1u);
  for (const int i : {1, 3, 2}) memory.Free(quarters[i], kSegment / 4);  // joins on both sides
  std::byte* const joined = memory.Allocate(kSegment / 4 * 3);
  EXPECT_EQ(joined, quarters[1]);
  EXPECT_EQ(memory.stats().segments, 1u);
  memory.Free(joined, kSegment / 4 * 3);
  memory.Free(quarters[0], kSegment / 4);
}

TEST(SharedMemory, GivesEmptySegmentsBackButOne) {
  SharedMemory memory(kSegment);
  std::vector<std::byte*> buffers;
  for (int i = 0; i < 4; ++i) buffers.push_back(memory.Allocate(kSegment));
  EXPECT_EQ(memory.stats().segments, 4u);
  for (std::byte* data : buffers) memory.Free(data, kSegment);
  EXPECT_EQ(memory.stats().segments, 1u);
  EXPECT_EQ(memory.stats().bytes_in_use, 0u);
}

TEST(SharedMemory, ALargerBufferHasASegmentOfItsOwnForItsLife) {
  SharedMemory memory(kSegment);
  std::byte* const data = memory.Allocate(10 * kSegment);
  ASSERT_NE(data, nullptr);
  data[10 * kSegment - 1] = std::byte{1};
  EXPECT_EQ(memory.stats().bytes_reserved, 10 * kSegment + kSegmentHeaderBytes);
  memory.Free(data, 10 * kSegment);
  EXPECT_EQ(memory.stats().segments, 0u);
}

TEST(SharedMemory, HasNothingForNoneAndForTooMuch) {
  SharedMemory memory(kSegment);
  EXPECT_EQ(memory.Allocate(0), nullptr);
  EXPECT_EQ(memory.Allocate(~size_t{0}), nullptr);
  EXPECT_EQ(memory.Allocate(size_t{1} << 60), nullptr);
}

TEST(SharedMemory, ThreadsShareIt) {
  SharedMemory memory(kSegment);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&memory, thread] {
      for (size_t i = 0; i < 300; ++i) {
        const size_t bytes = (i % 7 + 1) * kPage;
        std::byte* const data = memory.Allocate(bytes);
        std::memset(data, thread, bytes);
        EXPECT_TRUE(memory.Find(At(data, bytes)));
        for (size_t at = 0; at < bytes; at += 512) EXPECT_EQ(data[at], std::byte(thread));
        memory.Free(data, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.stats().bytes_in_use, 0u);
}

// ---- mapping ------------------------------------------------------------------------------------

TEST(SegmentMapping, ShowsTheOwnersBytesAtAnotherPlace) {
  SharedMemory memory(kSegment);
  std::byte* const data = memory.Allocate(kPage);
  const auto range = memory.Find(At(data, kPage));
  const auto mapping = SegmentMapping::Open(range->segment);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  const auto bytes = (*mapping)->Bytes(range->offset, kPage);
  ASSERT_TRUE(bytes.ok());
  EXPECT_NE(bytes->data(), data);
  std::memset(data, 5, kPage);
  EXPECT_EQ((*bytes)[kPage - 1], std::byte{5});
  memory.Free(data, kPage);
}

TEST(SegmentMapping, IsReadableThoughTheOwnerGaveTheSegmentBack) {
  SharedMemory memory(kSegment);
  std::byte* const data = memory.Allocate(2 * kSegment);
  const auto range = memory.Find(At(data, 1));
  const auto mapping = SegmentMapping::Open(range->segment);
  ASSERT_TRUE(mapping.ok());
  std::memset(data, 5, 2 * kSegment);
  EXPECT_FALSE((*mapping)->retired());
  memory.Free(data, 2 * kSegment);
  EXPECT_TRUE((*mapping)->retired());
  // The segment's pages went back to the system, so they read as zeros.
  const auto bytes = *(*mapping)->Bytes(range->offset, 2 * kSegment);
  EXPECT_EQ(bytes[kSegment], std::byte{0});
  EXPECT_EQ(SegmentMapping::Open(range->segment).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SegmentMapping, RefusesRangesOutsideTheBuffers) {
  SharedMemory memory(kSegment);
  std::byte* const data = memory.Allocate(kPage);
  const auto range = memory.Find(At(data, kPage));
  const auto mapping = *SegmentMapping::Open(range->segment);
  constexpr uint64_t kEnd = kSegment + kSegmentHeaderBytes;
  EXPECT_TRUE(mapping->Bytes(kEnd - 4, 4).ok());
  const std::pair<uint64_t, uint64_t> outside[] = {{0, 8},
                                                   {kSegmentHeaderBytes - 4, 8},
                                                   {kEnd, 1},
                                                   {kEnd - 4, 5},
                                                   {kEnd + 4, 4},
                                                   {kSegmentHeaderBytes, kEnd},
                                                   {~uint64_t{0}, 2},
                                                   {kSegmentHeaderBytes, ~uint64_t{0}},
                                                   {kSegmentHeaderBytes, 0},
                                                   {kSegmentHeaderBytes + 2, 4}};
  for (const auto& [offset, bytes] : outside) {
    EXPECT_EQ(mapping->Bytes(offset, bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << offset << " " << bytes;
  }
  memory.Free(data, kPage);
}

class StrangeSegment : public testing::Test {
 protected:
  ~StrangeSegment() override {
    for (const int fd : fds_) close(fd);
  }
  SegmentName Name(int fd, uint64_t id = 7) {
    fds_.push_back(fd);
    return {static_cast<uint64_t>(getpid()), static_cast<uint32_t>(fd), id};
  }

  // Creates a memfd that begins as a segment does.
  int Memfd(size_t bytes, int seals, uint64_t id = 7) {
    const int fd = memfd_create("strange", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(pwrite(fd, kSegmentMagic, sizeof(kSegmentMagic), 0), 8);
    EXPECT_EQ(pwrite(fd, &id, sizeof(id), 8), 8);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);  // the writes made a short one longer
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  }
  static void ExpectRefused(const SegmentName& name, absl::StatusCode code,
                            const std::string& words) {
    const absl::Status status = SegmentMapping::Open(name).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  }

  std::vector<int> fds_;
};

TEST_F(StrangeSegment, AWellMadeOneIsTaken) {
  EXPECT_TRUE(SegmentMapping::Open(Name(Memfd(2 * kPage, F_SEAL_SHRINK))).ok());
}

TEST_F(StrangeSegment, OneThatCouldShrinkUnderItsReaderIsRefused) {
  ExpectRefused(Name(Memfd(2 * kPage, F_SEAL_GROW)), absl::StatusCode::kInvalidArgument,
                "not sealed against shrinking");
}

TEST_F(StrangeSegment, OneThatWasTruncatedBeforeIsRefused) {
  ExpectRefused(Name(Memfd(100, F_SEAL_SHRINK)), absl::StatusCode::kInvalidArgument,
                "too small for its header");
}

TEST_F(StrangeSegment, AnotherIdAndOtherContentsAreRefused) {
  ExpectRefused(Name(Memfd(2 * kPage, F_SEAL_SHRINK, 8)), absl::StatusCode::kInvalidArgument,
                "another segment is there");
  const int fd = Memfd(2 * kPage, F_SEAL_SHRINK);
  ASSERT_EQ(pwrite(fd, "x", 1, 0), 1);
  ExpectRefused(Name(fd), absl::StatusCode::kInvalidArgument, "does not begin as a segment");
}

TEST_F(StrangeSegment, AnUnknownDescriptorOrProcessIsUnavailable) {
  ExpectRefused({static_cast<uint64_t>(getpid()), 999999, 7}, absl::StatusCode::kUnavailable,
                "/fd/999999");
  ExpectRefused({uint64_t{1} << 29, 3, 7}, absl::StatusCode::kUnavailable, "cannot find it");
}

TEST_F(StrangeSegment, WhatIsNoMemfdIsRefusedAndNotEvenOpened) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // opening it without a writer would wait
  fds_.push_back(ends[1]);
  ExpectRefused(Name(ends[0]), absl::StatusCode::kInvalidArgument, "no memfd");
  ExpectRefused(Name(open("/dev/null", O_RDONLY)), absl::StatusCode::kInvalidArgument, "no memfd");
  ExpectRefused(Name(open("/proc/self/exe", O_RDONLY)), absl::StatusCode::kInvalidArgument,
                "no memfd");
}

TEST_F(StrangeSegment, TheCacheMapsEachOnceLetsRetiredOnesGoAndEnds) {
  SegmentCache cache;
  SharedMemory memory(kSegment);
  std::byte* const data = memory.Allocate(2 * kSegment);
  const SegmentName name = memory.Find(At(data, 1))->segment;
  const auto first = *cache.Get(name);
  EXPECT_EQ(*cache.Get(name), first);
  EXPECT_EQ(cache.size(), 1u);
  memory.Free(data, 2 * kSegment);
  ASSERT_TRUE(cache.Get(memory.greeting()).ok());
  EXPECT_EQ(cache.size(), 1u);  // the retired mapping was dropped
  uint64_t id = 100;
  absl::Status last;
  while (last.ok() && id < 10000) {
    const int fd = Memfd(kPage, F_SEAL_SHRINK, id);
    last = cache.Get({static_cast<uint64_t>(getpid()), static_cast<uint32_t>(fd), id}).status();
    close(fd);
    ++id;
  }
  EXPECT_EQ(last.code(), absl::StatusCode::kResourceExhausted) << last;
  EXPECT_EQ(cache.size(), 4096u);
}

}  // namespace
}  // namespace slimps
