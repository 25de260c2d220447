// SPDX-License-Identifier: Apache-2.0
// Tests that every Device must pass, whatever it copies with. A test file names its device by a
// Fixture:
//
//   struct HostFixture {
//     static absl::StatusOr<std::unique_ptr<Device>> Make();
//     // Memory that the device copies from and to.
//     static std::unique_ptr<DeviceMemory> Allocate(size_t elements);
//     // Called when the device and its buffers are gone.
//     static void Check();
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Host, DeviceTest, HostFixture);
//
// If Make returns FailedPrecondition (no driver, no GPU), each test is skipped and says why.
#ifndef SLIMPS_TESTS_WORKER_DEVICE_DEVICE_TEST_BODY_H_
#define SLIMPS_TESTS_WORKER_DEVICE_DEVICE_TEST_BODY_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"

namespace slimps {

inline constexpr std::nullptr_t kDefaultStream = nullptr;

// Memory on the device's side. Thread-compatible.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::span<float> span() = 0;
};

// Gathers completions by key. Thread-safe.
class Completions final {
 public:
  CopyDone Callback() {
    return [this](KeyId key, absl::Status status) {
      MutexLock lock(&mutex_);
      seen_.emplace(key, std::move(status));
      ++calls_;
      changed_.NotifyAll();
    };
  }

  // Waits for `count` calls. Returns all statuses by key. Fails the test if fewer calls come.
  std::map<KeyId, absl::Status> Await(size_t count) {
    const SteadyTime deadline = MachineClock()->Now() + absl::Seconds(30);
    MutexLock lock(&mutex_);
    while (calls_ < count && MachineClock()->Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - MachineClock()->Now());
    }
    EXPECT_EQ(calls_, count);
    return seen_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<KeyId, absl::Status> seen_ ABSL_GUARDED_BY(mutex_);
  size_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

template <typename Fixture>
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = Fixture::Make();
    if (absl::IsFailedPrecondition(device.status())) GTEST_SKIP() << device.status();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  void TearDown() override {
    device_.reset();
    Fixture::Check();
  }

  std::unique_ptr<HostBuffer> Buffer(size_t elements) {
    auto buffer = device_->AllocateHost(elements);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  std::unique_ptr<Device> device_;
};
TYPED_TEST_SUITE_P(DeviceTest);

TYPED_TEST_P(DeviceTest, BuffersAreAlignedDistinctAndOfTheLengthAskedFor) {
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  std::vector<std::span<float>> spans;
  for (const size_t elements : {1, 1, 16, 1000, 1024, 1025, 100000}) {
    buffers.push_back(this->Buffer(elements));
    const std::span<float> floats = buffers.back()->floats();
    ASSERT_EQ(floats.size(), elements);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data()) % 64, 0u);
    std::ranges::fill(floats, static_cast<float>(spans.size()));
    spans.push_back(floats);
  }
  for (size_t b = 0; b < spans.size(); ++b) {
    EXPECT_TRUE(std::ranges::all_of(spans[b], [&](float x) { return x == static_cast<float>(b); }));
  }
}

TYPED_TEST_P(DeviceTest, AReturnedBufferIsUsedAgain) {
  auto first = this->Buffer(5000);
  const float* const address = first->floats().data();
  first.reset();
  auto second = this->Buffer(5000);
  EXPECT_EQ(second->floats().data(), address);
}

TYPED_TEST_P(DeviceTest, ABufferOutlivesItsDevice) {
  auto buffer = this->Buffer(100);
  this->device_.reset();
  std::ranges::fill(buffer->floats(), 1.0f);
  EXPECT_EQ(buffer->floats()[99], 1.0f);
}

TYPED_TEST_P(DeviceTest, ABufferBeyondMemoryIsRefused) {
  auto buffer = this->device_->AllocateHost(SIZE_MAX / 2);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kInvalidArgument) << buffer.status();
}

TYPED_TEST_P(DeviceTest, EveryCopyArrivesUnderItsKey) {
  constexpr size_t kCopies = 50;
  Completions completions;
  std::vector<std::unique_ptr<HostBuffer>> sources, results;
  std::vector<std::unique_ptr<DeviceMemory>> on_device;
  for (size_t k = 0; k < kCopies; ++k) {
    const size_t elements = 1 + 997 * k;
    sources.push_back(this->Buffer(elements));
    results.push_back(this->Buffer(elements));
    on_device.push_back(TypeParam::Allocate(elements));
    std::iota(sources[k]->floats().begin(), sources[k]->floats().end(), static_cast<float>(k));
    this->device_->CopyToDevice(k, sources[k]->floats(), on_device[k]->span(), kDefaultStream,
                                completions.Callback());
  }
  completions.Await(kCopies);
  for (size_t k = 0; k < kCopies; ++k) {
    this->device_->CopyToHost(1000 + k, on_device[k]->span(), kDefaultStream, results[k]->floats(),
                              completions.Callback());
  }
  const auto seen = completions.Await(2 * kCopies);
  EXPECT_EQ(seen.size(), 2 * kCopies);
  for (const auto& [key, status] : seen) EXPECT_TRUE(status.ok()) << key << ": " << status;
  for (size_t k = 0; k < kCopies; ++k) {
    EXPECT_TRUE(std::ranges::equal(sources[k]->floats(), results[k]->floats())) << k;
  }
}

TYPED_TEST_P(DeviceTest, ACopyBetweenDifferentLengthsIsRefusedByKey) {
  Completions completions;
  auto buffer = this->Buffer(10);
  auto memory = TypeParam::Allocate(11);
  this->device_->CopyToHost(7, memory->span(), kDefaultStream, buffer->floats(),
                            completions.Callback());
  this->device_->CopyToDevice(8, buffer->floats(), memory->span(), kDefaultStream,
                              completions.Callback());
  const auto seen = completions.Await(2);
  for (const KeyId key : {7, 8}) {
    ASSERT_TRUE(seen.contains(key));
    EXPECT_EQ(seen.at(key).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_NE(seen.at(7).message().find("0000000000000007"), absl::string_view::npos) << seen.at(7);
}

TYPED_TEST_P(DeviceTest, AnEmptyCopyCompletes) {
  Completions completions;
  this->device_->CopyToHost(1, std::span<const float>(), kDefaultStream, std::span<float>(),
                            completions.Callback());
  EXPECT_TRUE(completions.Await(1).at(1).ok());
}

TYPED_TEST_P(DeviceTest, AGradientArrivesWithItsLargestMagnitude) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const size_t elements : {1, 15, 16, 17, 5000}) {
    auto source = this->Buffer(elements);
    auto memory = TypeParam::Allocate(elements);
    for (const auto& [value, largest] :
         {std::pair(0.5f, 1.0f), std::pair(-3.0f, 3.0f), std::pair(-kInfinity, kInfinity),
          std::pair(std::nanf(""), kInfinity)}) {
      std::ranges::fill(source->floats(), -1.0f);
      source->floats()[elements - 1] = value;
      const float expected = elements == 1 && largest == 1.0f ? 0.5f : largest;
      Completions copied;
      this->device_->CopyToDevice(1, source->floats(), memory->span(), kDefaultStream,
                                  copied.Callback());
      copied.Await(1);
      auto buffer = this->Buffer(elements);
      Completions arrived;
      float seen = -1;
      this->device_->CopyGradient(
          2, memory->span(), Place(), buffer->floats(),
          [&, done = arrived.Callback()](KeyId key, absl::StatusOr<float> found) {
            seen = found.value_or(-1);
            done(key, found.status());
          });
      EXPECT_TRUE(arrived.Await(1).at(2).ok());
      EXPECT_EQ(seen, expected) << elements << " elements, " << value;
      EXPECT_EQ(std::memcmp(buffer->floats().data(), source->floats().data(), elements * 4), 0);
    }
  }
}

TYPED_TEST_P(DeviceTest, DestructionCompletesWhatWasStarted) {
  Completions completions;
  auto memory = TypeParam::Allocate(1 << 18);
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  for (KeyId key = 0; key < 8; ++key) {
    buffers.push_back(this->Buffer(1 << 18));
    this->device_->CopyToHost(key, memory->span(), kDefaultStream, buffers.back()->floats(),
                              completions.Callback());
  }
  this->device_.reset();
  EXPECT_EQ(completions.Await(8).size(), 8u);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceTest, BuffersAreAlignedDistinctAndOfTheLengthAskedFor,
                            AReturnedBufferIsUsedAgain, ABufferOutlivesItsDevice,
                            ABufferBeyondMemoryIsRefused, EveryCopyArrivesUnderItsKey,
                            ACopyBetweenDifferentLengthsIsRefusedByKey, AnEmptyCopyCompletes,
                            AGradientArrivesWithItsLargestMagnitude,
                            DestructionCompletesWhatWasStarted);

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_DEVICE_DEVICE_TEST_BODY_H_
