// SPDX-License-Identifier: Apache-2.0
// How much memory gradients take at once, and which threads wait for it.
#include "worker/push/staging.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
constexpr std::chrono::milliseconds kMoment(50);

// Counts the bytes in live buffers, and keeps the limit that it was given.
class CountingDevice final : public Device {
 public:
  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(size_t elements) override {
    if (--allocations_left < 0) return absl::ResourceExhaustedError("the machine is full");
    live += elements * sizeof(float);
    most = std::max(most.load(), live.load());
    return std::make_unique<Counted>(this, elements);
  }
  absl::StatusOr<std::unique_ptr<HostBuffer>> KeepHost(size_t elements) override {
    return AllocateHost(elements);
  }
  void LimitHost(size_t bytes) override { limit = bytes; }
  void NoteRound(uint64_t) override {}
  absl::Status CheckReachable(std::span<const float>, StreamHandle) override {
    return absl::OkStatus();
  }
  void CopyToHost(KeyId, std::span<const float>, StreamHandle, std::span<float>,
                  CopyDone) override {}
  void CopyGradient(KeyId, std::span<const float>, const Place&, std::span<float>,
                    GradientDone) override {}
  void CopyToDevice(KeyId, std::span<const float>, std::span<float>, StreamHandle,
                    CopyDone) override {}

  std::atomic<size_t> live{0}, most{0};
  std::atomic<int> allocations_left{1 << 20};
  size_t limit = 0;

 private:
  class Counted final : public HostBuffer {
   public:
    Counted(CountingDevice* device, size_t elements) : device_(device), values_(elements) {}
    ~Counted() override { device_->live -= values_.size() * sizeof(float); }
    std::span<float> floats() override { return values_; }

   private:
    CountingDevice* const device_;
    std::vector<float> values_;
  };
};

struct Machine {
  CountingDevice* const host = new CountingDevice;  // the devices own it
  Devices devices{std::unique_ptr<Device>(host), /*make_gpu=*/nullptr};
  CountingDevice& device = *host;
};

// Returns a tensor whose partitions have these numbers of elements.
TensorPlan Tensor(const std::string& name, const std::vector<size_t>& elements) {
  TensorPlan tensor{.key = Key(name), .info = {}, .partitions = {}};
  for (const size_t count : elements) {
    tensor.partitions.push_back({.server = 0, .offset = tensor.elements, .elements = count});
    tensor.elements += count;
  }
  return tensor;
}

std::future<absl::StatusOr<GradientBuffers>> AcquireElsewhere(GradientStaging& staging,
                                                              const Machine& machine,
                                                              const TensorPlan& tensor) {
  return std::async(std::launch::async,
                    [&] { return staging.Acquire(tensor, machine.host, kLong); });
}

template <typename T>
bool Waits(std::future<T>& future) {
  return future.wait_for(kMoment) == std::future_status::timeout;
}

TEST(GradientStaging, EachPartitionHasABufferOfItsOwn) {
  Machine machine;
  GradientStaging staging(&machine.devices, 1000);
  const auto buffers = staging.Acquire(Tensor("w", {100, 100, 3}), machine.host, kLong);
  ASSERT_TRUE(buffers.ok()) << buffers.status();
  ASSERT_EQ(buffers->size(), 3u);
  EXPECT_EQ((*buffers)[1]->floats().size(), 100u);
  EXPECT_EQ((*buffers)[2]->floats().size(), 3u);
  EXPECT_EQ(staging.bytes_in_use(), 812u);
}

TEST(GradientStaging, APartitionsRoomIsFreeOnceItsLastHolderHasDroppedIt) {
  Machine machine;
  GradientStaging staging(&machine.devices, 800);
  const TensorPlan tensor = Tensor("w", {100, 100}), half = Tensor("half", {100});
  GradientBuffers first = *staging.Acquire(tensor, machine.host, kLong);
  auto second = AcquireElsewhere(staging, machine, half);
  EXPECT_TRUE(Waits(second));
  const std::shared_ptr<HostBuffer> payload = first[0];
  first[0].reset();
  EXPECT_TRUE(Waits(second)) << "a payload still lies in it";
  first[1].reset();
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(machine.device.most, 800u);
}

TEST(GradientStaging, MemoryIsFreedBeforeItsRoomIs) {
  Machine machine;
  GradientStaging staging(&machine.devices, 4000);
  const TensorPlan tensor = Tensor("w", {400, 400});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        GradientBuffers buffers = staging.Acquire(tensor, machine.host, kLong).value();
        while (!buffers.empty()) buffers.pop_back();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(machine.device.most, 4000u);
  EXPECT_EQ(staging.bytes_in_use(), 0u);
}

TEST(GradientStaging, ATensorLargerThanAllRoomGoesAlone) {
  Machine machine;
  GradientStaging staging(&machine.devices, 100);
  const TensorPlan large = Tensor("large", {100}), small = Tensor("small", {1});
  GradientBuffers held = *staging.Acquire(large, machine.host, kLong);
  EXPECT_FALSE(staging.HasRoom(4));
  auto next = AcquireElsewhere(staging, machine, small);
  EXPECT_TRUE(Waits(next));
  held.clear();
  EXPECT_TRUE(next.get().ok());
}

TEST(GradientStaging, WhoAskedFirstIsServedFirst) {
  Machine machine;
  GradientStaging staging(&machine.devices, 1000);
  const TensorPlan large = Tensor("large", {200}), small = Tensor("small", {1});
  GradientBuffers held = *staging.Acquire(large, machine.host, kLong);
  EXPECT_TRUE(staging.HasRoom(200));
  EXPECT_FALSE(staging.HasRoom(201));
  auto first = AcquireElsewhere(staging, machine, large);
  EXPECT_TRUE(Waits(first));
  EXPECT_FALSE(staging.HasRoom(4)) << "a push waits";
  auto second = AcquireElsewhere(staging, machine, small);
  EXPECT_TRUE(Waits(second))
      << "it would fit, but small tensors could keep a large one waiting for ever";
  held.clear();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST(GradientStaging, WhoGivesUpLetsTheNextOnePass) {
  Machine machine;
  GradientStaging staging(&machine.devices, 1000);
  const TensorPlan large = Tensor("large", {200}), small = Tensor("small", {1});
  const GradientBuffers held = *staging.Acquire(large, machine.host, kLong);
  const absl::Status late = staging.Acquire(large, machine.host, absl::Milliseconds(20)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_EQ(
      late.message(),
      "push of key s:large: 800 bytes of gradients still wait for the servers after 20ms; its "
      "800 bytes would make more than the 1000 that may");
  EXPECT_TRUE(staging.Acquire(small, machine.host, kLong).ok());
  EXPECT_EQ(staging.bytes_in_use(), 800u);
}

TEST(GradientStaging, OneRoundOfAllKeysFitsUnlessSaidOtherwise) {
  Machine machine;
  GradientStaging staging(&machine.devices, 0);
  EXPECT_EQ(staging.max_bytes(), GradientStaging::kLeastBytes);
  staging.AddKeys(50 << 20);
  EXPECT_EQ(staging.max_bytes(), GradientStaging::kLeastBytes);
  staging.AddKeys(50 << 20);
  EXPECT_EQ(staging.max_bytes(), size_t{100} << 20);
  EXPECT_EQ(machine.device.limit, size_t{100} << 20) << "idle memory counts too";
  GradientStaging fixed(&machine.devices, 12345);
  fixed.AddKeys(1 << 20);
  EXPECT_EQ(fixed.max_bytes(), 12345u);
  EXPECT_EQ(machine.device.limit, 12345u);
}

TEST(GradientStaging, KeysThatAreAddedMakeRoomForWhoWaits) {
  Machine machine;
  GradientStaging staging(&machine.devices, 0);
  const TensorPlan all = Tensor("all", {GradientStaging::kLeastBytes / sizeof(float)});
  const TensorPlan more = Tensor("more", {1000});
  const GradientBuffers held = *staging.Acquire(all, machine.host, kLong);
  auto waits = AcquireElsewhere(staging, machine, more);
  EXPECT_TRUE(Waits(waits));
  staging.AddKeys(GradientStaging::kLeastBytes + 4000);
  EXPECT_TRUE(waits.get().ok());
}

TEST(GradientStaging, FailureEndsEveryWait) {
  Machine machine;
  GradientStaging staging(&machine.devices, 400);
  const TensorPlan tensor = Tensor("w", {100});
  const GradientBuffers held = *staging.Acquire(tensor, machine.host, kLong);
  auto waits = AcquireElsewhere(staging, machine, tensor);
  EXPECT_TRUE(Waits(waits));
  staging.Fail(absl::AbortedError("the server died"));
  staging.Fail(absl::CancelledError("later"));
  EXPECT_TRUE(absl::IsAborted(waits.get().status()));
  EXPECT_TRUE(absl::IsAborted(staging.Acquire(tensor, machine.host, kLong).status()));
}

TEST(GradientStaging, RoomOfATensorThatFoundNoMemoryIsFreeAgain) {
  Machine machine;
  GradientStaging staging(&machine.devices, 800);
  const TensorPlan tensor = Tensor("w", {100, 100});
  machine.device.allocations_left = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(staging.Acquire(tensor, machine.host, kLong).status()));
  EXPECT_EQ(staging.bytes_in_use(), 0u);
  EXPECT_EQ(machine.device.live, 0u);
}

TEST(GradientStaging, BuffersMayOutliveIt) {
  Machine machine;
  GradientBuffers held;
  {
    GradientStaging staging(&machine.devices, 400);
    held = *staging.Acquire(Tensor("w", {100}), machine.host, kLong);
  }
  held[0]->floats()[99] = 1;
  held.clear();
  EXPECT_EQ(machine.device.live, 0u);
}

}  // namespace
}  // namespace slimps
