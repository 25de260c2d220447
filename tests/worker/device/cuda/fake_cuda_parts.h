// SPDX-License-Identifier: Apache-2.0
// What the fake driver is made of: memory, events, and streams that are threads. Its mutex guards
// all of them.
#ifndef SLIMPS_TESTS_WORKER_DEVICE_CUDA_FAKE_CUDA_PARTS_H_
#define SLIMPS_TESTS_WORKER_DEVICE_CUDA_FAKE_CUDA_PARTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/thread.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"

namespace slimps {

inline constexpr uintptr_t kContexts = 0x1000;  // a context's handle is this and its device

inline void* ContextOf(int device) {
  return reinterpret_cast<void*>(kContexts + static_cast<uintptr_t>(device));
}

inline uint64_t ThisThread() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

inline void Join(std::map<int, uint64_t>* clock, const std::map<int, uint64_t>& other) {
  for (const auto& [stream, work] : other) {
    uint64_t& known = (*clock)[stream];
    known = std::max(known, work);
  }
}

struct FakeCudaDriver::Block {
  std::unique_ptr<std::byte, decltype(&std::free)> owned{nullptr, &std::free};  // a device's memory
  std::span<const std::byte> memory;
  std::optional<int> device;  // nullopt: pinned
  bool freed = false;
  const std::byte* begin() const { return memory.data(); }
  const std::byte* end() const { return begin() + memory.size(); }
};

struct FakeCudaDriver::Event {
  int device = 0;
  Stream* stream = nullptr;  // null: never recorded, so nothing to wait for
  uint64_t work = 0;
  Clock clock;
  bool destroyed = false;
};

// Runs its works one after another on a thread.
class FakeCudaDriver::Stream final {
 public:
  Stream(FakeCudaDriver* driver, int device, int number, bool frameworks)
      : device(device),
        number(number),
        frameworks(frameworks),
        driver_(driver),
        thread_(absl::StrCat("fake-stream-", number), [this] { Run(); }) {}
  ~Stream() { thread_.Join(); }

  std::string name() const { return absl::StrCat("stream ", number, " of GPU ", device); }

  const int device;
  const int number;
  const bool frameworks;

  // Guarded by the driver's mutex.
  bool destroyed = false;
  bool capturing = false;
  bool stopping = false;
  uint64_t submitted = 0, finished = 0;
  Clock clock;
  std::deque<std::function<void()>> works;
  CondVar changed;

 private:
  void Run() {
    for (;;) {
      std::function<void()> work;
      absl::Duration delay;
      {
        MutexLock lock(&driver_->mutex_);
        while (works.empty() && !stopping) changed.Wait(&driver_->mutex_);
        if (works.empty()) return;
        work = std::move(works.front());
        works.pop_front();
        delay = driver_->Delay();
      }
      absl::SleepFor(delay);
      work();
      MutexLock lock(&driver_->mutex_);
      ++finished;
      // Who waits for this work does so at this stream.
      changed.NotifyAll();
    }
  }

  FakeCudaDriver* const driver_;
  Thread thread_;  // the last member, since it uses all others
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_DEVICE_CUDA_FAKE_CUDA_PARTS_H_
