// SPDX-License-Identifier: Apache-2.0
// The fake driver finds each misuse that is planted here, whatever the timing, and nothing else.
#include "tests/worker/device/cuda/fake_cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace slimps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kElements = 100;
constexpr size_t kBytes = kElements * sizeof(float);
constexpr size_t kPageBytes = 4096;

// Two GPUs. The context of GPU 0 is current, `copies` is a stream of it, and `pinned` may be copied
// to and from.
class FakeCudaDriverTest : public testing::Test {
 protected:
  // Gives back what is held, beside `copies_` and the events that a test has destroyed.
  void End() {
    driver_.DestroyStream(copies_);
    driver_.Unpin(pinned_);
    current_.reset();
    context_.reset();
    driver_.CheckAllGivenBack();
  }

  // Orders `later` after what `earlier` was given so far.
  void Order(void* earlier, void* later) {
    void* const event = driver_.CreateEvent().value();
    ASSERT_TRUE(driver_.RecordEvent(event, earlier).ok());
    ASSERT_TRUE(driver_.WaitForEvent(later, event).ok());
    driver_.DestroyEvent(event);
  }

  void Fill(void* stream, std::span<float> memory, float value) {
    driver_.Launch(stream, {}, memory, [=] { std::ranges::fill(memory, value); });
  }

  FakeCudaDriver driver_{{.devices = 2, .seed = 3, .longest_delay = absl::Microseconds(100)}};
  std::shared_ptr<const CudaContext> context_ = CudaContext::Retain(&driver_, 0).value();
  std::optional<CudaContext::Scope> current_{std::in_place, *context_};
  void* const copies_ = driver_.CreateStream().value();
  alignas(kPageBytes) std::array<std::byte, 2 * kPageBytes> pages_ = {};
  float* const pinned_ = [this] {
    EXPECT_TRUE(driver_.Pin(pages_.data(), kBytes).ok());
    return reinterpret_cast<float*>(pages_.data());
  }();
  void* const frameworks_ = driver_.MakeStream(0);
  const std::span<float> memory_ = driver_.Allocate(0, kElements);
};

TEST_F(FakeCudaDriverTest, EventsOrderStreamsAndNothingIsNoted) {
  for (int round = 1; round <= 20; ++round) {
    Fill(frameworks_, memory_, static_cast<float>(round));
    Order(frameworks_, copies_);
    ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
    Order(copies_, frameworks_);  // the next kernel overwrites what is copied
    ASSERT_TRUE(driver_.SynchronizeStream(copies_).ok());
    ASSERT_EQ(pinned_[kElements - 1], static_cast<float>(round));
  }
  driver_.Await(frameworks_);
  driver_.Free(memory_);
  End();
  EXPECT_THAT(driver_.TakeMisuses(), IsEmpty());
}

TEST_F(FakeCudaDriverTest, AReadBeforeItsEventIsFoundEvenIfItComesLate) {
  Fill(frameworks_, memory_, 1);
  absl::SleepFor(absl::Milliseconds(5));  // the kernel is over, but nobody has waited for it
  ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("reads what a kernel on stream")));
}

TEST_F(FakeCudaDriverTest, AnEventOfBeforeTheKernelOrdersNothing) {
  Order(frameworks_, copies_);
  Fill(frameworks_, memory_, 1);
  ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("waits for no event")));
}

TEST_F(FakeCudaDriverTest, WeightsThatAreUsedBeforeTheyHaveComeAreFound) {
  ASSERT_TRUE(driver_.CopyToDevice(memory_.data(), pinned_, kBytes, copies_).ok());
  driver_.Launch(frameworks_, memory_, {}, [] {});
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("reads what CopyToDevice on stream")));
}

TEST_F(FakeCudaDriverTest, ASourceThatIsOverwrittenEarlyIsFound) {
  ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  Fill(frameworks_, memory_, 2);
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("writes what CopyToHost on stream")));
}

TEST_F(FakeCudaDriverTest, MemoryThatIsFreedEarlyIsFound) {
  ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  driver_.Free(memory_);
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("GPU freed while CopyToHost may")));
  driver_.Unpin(pinned_);
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("pinned memory freed while CopyToHo")));
  ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(),
              ElementsAre(HasSubstr("memory that was freed"), HasSubstr("that was freed")));
  driver_.Free(memory_);
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("freed twice")));
}

TEST_F(FakeCudaDriverTest, APageableBufferIsFound) {
  std::vector<float> pageable(kElements);
  ASSERT_TRUE(driver_.CopyToHost(pageable.data(), memory_.data(), kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("pageable memory of the host")));
  driver_.Await(copies_);
}

TEST_F(FakeCudaDriverTest, MemoryThatDoesNotBeginAPageAndAPagePinnedTwiceAreFound) {
  EXPECT_FALSE(driver_.Pin(pages_.data() + kBytes, kBytes).ok());
  EXPECT_THAT(driver_.TakeMisuses(),
              ElementsAre(HasSubstr("does not begin at a page"), "a page pinned twice"));
  EXPECT_TRUE(driver_.Pin(pages_.data() + kPageBytes, kBytes).ok());
  driver_.Unpin(pinned_);
  EXPECT_THAT(driver_.TakeMisuses(), IsEmpty());
  driver_.Unpin(pinned_);
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre("memory unpinned that is not pinned"));
  // What was unpinned may be pinned again.
  ASSERT_TRUE(driver_.Pin(pages_.data(), kBytes).ok());
  ASSERT_TRUE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  driver_.Await(copies_);
  EXPECT_THAT(driver_.TakeMisuses(), IsEmpty());
}

TEST_F(FakeCudaDriverTest, ACallWithoutOrInAnotherContextIsFound) {
  void* const event = driver_.CreateEvent().value();
  current_.reset();
  EXPECT_FALSE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  EXPECT_FALSE(driver_.CreateStream().ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre("CopyToHost without a current context",
                                                 "CreateStream without a current context"));
  const auto other = CudaContext::Retain(&driver_, 1).value();
  current_.emplace(*other);
  EXPECT_FALSE(driver_.CopyToHost(pinned_, memory_.data(), kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("in the context of GPU 1")));
  EXPECT_FALSE(driver_.RecordEvent(event, driver_.MakeStream(1)).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("an event of GPU 0 recorded on")));
  current_.reset();
  driver_.PopContext();
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre("PopContext without a current context"));
}

TEST_F(FakeCudaDriverTest, AStreamOrMemoryOfAnotherDeviceIsFound) {
  EXPECT_FALSE(driver_.IsCapturing(driver_.MakeStream(1)).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("of GPU 1 in the context of GPU 0")));
  const std::span<float> others = driver_.Allocate(1, kElements);
  ASSERT_TRUE(driver_.CopyToHost(pinned_, others.data(), kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("uses memory of GPU 1")));
  ASSERT_TRUE(driver_.CopyToHost(pinned_, pinned_, kBytes, copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("memory that is not a GPU's")));
}

TEST_F(FakeCudaDriverTest, WhatIsNotGivenBackIsFound) {
  (void)driver_.CreateEvent().value();
  driver_.CheckAllGivenBack();
  EXPECT_THAT(
      driver_.TakeMisuses(),
      ElementsAre("1 streams never given back", "1 events never given back",
                  "1 pinned blocks never given back", "1 primary contexts never given back"));
}

TEST_F(FakeCudaDriverTest, WhatIsGoneMayNotBeUsed) {
  void* const event = driver_.CreateEvent().value();
  driver_.DestroyEvent(event);
  EXPECT_FALSE(driver_.RecordEvent(event, copies_).ok());
  driver_.DestroyStream(copies_);
  EXPECT_FALSE(driver_.SynchronizeStream(copies_).ok());
  EXPECT_THAT(driver_.TakeMisuses(), ElementsAre(HasSubstr("an event that does not exist"),
                                                 HasSubstr("a stream that does not exist")));
}

TEST_F(FakeCudaDriverTest, ACallFailsWhereItIsAskedTo) {
  driver_.Fail("CreateEvent", absl::InternalError("broken"), /*successes=*/1);
  driver_.DestroyEvent(driver_.CreateEvent().value());
  EXPECT_EQ(driver_.CreateEvent().status(), absl::InternalError("broken"));
  driver_.DestroyEvent(driver_.CreateEvent().value());
}

TEST_F(FakeCudaDriverTest, MemoryIsFoundByItsAddress) {
  float on_host = 0;
  EXPECT_EQ(driver_.GpuOf(memory_.data() + 10).value(), 0);
  EXPECT_EQ(driver_.GpuOf(driver_.Allocate(1, 1).data()).value(), 1);
  EXPECT_EQ(driver_.GpuOf(pinned_).value(), std::nullopt);
  EXPECT_EQ(driver_.GpuOf(&on_host).value(), std::nullopt);
}

}  // namespace
}  // namespace slimps
