// SPDX-License-Identifier: Apache-2.0
// FakeCudaDriver: a CUDA driver on host memory. Each stream is a thread that runs what it is given
// in order, after seeded delays. It notes every misuse that a real GPU would answer with wrong bits
// now and then:
//   memory used before the event that says it is ready, in any order of the threads: each stream
//     has a vector clock, so that a missing event is found even when the timing hides it
//   device or pinned memory freed while a copy or a kernel may still use it, or used after
//   a pageable buffer of the host in an asynchronous copy
//   a call without the right context, a stream or memory of another device
//   streams, events, pinned memory and contexts that are never given back
//
//   FakeCudaDriver driver({.devices = 2, .seed = 7});
//   const std::span<float> gradient = driver.Allocate(/*device=*/0, 1000);
//   driver.Launch(stream, {}, gradient, [=] { ... write gradient ... });
//   ... the code under test, with `driver` as its CudaDriver ...
//   EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
//
// A null stream is the device's legacy default stream, which here is a stream as any other: the
// code under test makes non-blocking ones only. Thread-safe.
#ifndef SLIMPS_TESTS_WORKER_DEVICE_CUDA_FAKE_CUDA_DRIVER_H_
#define SLIMPS_TESTS_WORKER_DEVICE_CUDA_FAKE_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "worker/device/cuda/cuda_driver.h"

namespace slimps {

class FakeCudaDriver final : public CudaDriver {
 public:
  struct Options {
    int devices = 1;
    size_t page_bytes = 4096;
    uint32_t seed = 1;
    absl::Duration longest_delay = absl::Milliseconds(1);  // before each work of a stream
  };

  explicit FakeCudaDriver(const Options& options);
  // Waits for all streams.
  ~FakeCudaDriver() override;

  // ---- what a framework does ----
  // Returns memory of a GPU; the rest of the code may not touch it but through copies and kernels.
  std::span<float> Allocate(int device, size_t elements);
  // The memory itself stays until the driver is destroyed, so that a misuse breaks nothing else.
  void Free(std::span<float> memory);
  // A stream of a GPU, which the driver owns.
  void* MakeStream(int device);
  // Runs `kernel` on the stream.
  void Launch(void* stream, std::span<const float> reads, std::span<float> writes,
              std::function<void()> kernel, int device_of_null = 0);
  void SetCapturing(void* stream, bool capturing);
  // Waits until the stream has run all that it was given.
  void Await(void* stream, int device_of_null = 0);

  // ---- what a test wants to know or to break ----
  // Lets the call of this name (as in CudaDriver) fail with `why`, so many times, after `successes`
  // more.
  void Fail(absl::string_view call, absl::Status why, int successes = 0, int times = 1);
  // Notes what a test's own C functions have found.
  void NoteMisuse(std::string misuse) {
    MutexLock lock(&mutex_);
    Note(std::move(misuse));
  }
  // Returns what was misused since the last call, and forgets it.
  std::vector<std::string> TakeMisuses();
  size_t pinned_bytes();
  // Returns how often memory was pinned.
  int64_t pins();
  // Notes what is still held: to be called when the code under test has given everything back.
  void CheckAllGivenBack();

  // ---- CudaDriver ----
  absl::StatusOr<int> DeviceCount() override;
  absl::StatusOr<void*> RetainPrimaryContext(int ordinal) override;
  void ReleasePrimaryContext(int ordinal) override;
  absl::Status PushContext(void* context) override;
  void PopContext() override;
  absl::StatusOr<void*> CreateStream() override;
  void DestroyStream(void* stream) override;
  absl::Status WaitForEvent(void* stream, void* event) override;
  absl::Status SynchronizeStream(void* stream) override;
  absl::StatusOr<bool> IsCapturing(void* stream) override;
  absl::StatusOr<void*> CreateEvent() override;
  void DestroyEvent(void* event) override;
  absl::Status RecordEvent(void* event, void* stream) override;
  absl::Status SynchronizeEvent(void* event) override;
  size_t page_bytes() const override { return options_.page_bytes; }
  absl::Status Pin(void* memory, size_t bytes) override;
  void Unpin(void* memory) override;
  absl::Status CopyToHost(void* host, const void* device, size_t bytes, void* stream) override;
  absl::Status CopyToDevice(void* device, const void* host, size_t bytes, void* stream) override;
  absl::StatusOr<std::optional<int>> GpuOf(const void* memory) override;

 private:
  // How many works of each stream are known to be over, by the stream's number.
  using Clock = std::map<int, uint64_t>;
  struct Use {  // of memory, by one work of a stream
    const std::byte* begin;
    const std::byte* end;
    bool writes;
  };
  struct Access {
    Use use;
    int stream;
    uint64_t work;
    std::string what;
  };
  struct Failure {
    absl::Status why;
    int successes;
    int times;
  };
  struct Block;  // memory of a device, or pinned
  class Stream;
  struct Event;

  static Use Reads(const void* memory, size_t bytes);
  static Use Writes(const void* memory, size_t bytes);

  // All of these note what is wrong.
  Stream* Find(void* stream, int device_of_null) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Event* FindEvent(void* event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<int> CurrentDevice(absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the stream that a call names, if the current context is that of its device.
  absl::StatusOr<Stream*> Current(void* stream, absl::string_view call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckMemory(const Use& use, const Stream& stream, bool on_device, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckUnused(const Block& block, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Note(std::string misuse) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeFailure(absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stream* AddStream(int device, bool frameworks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the stream a work that uses memory, and notes every earlier use that it conflicts with
  // and does not wait for.
  void Submit(Stream* stream, std::vector<Use> uses, std::string what, std::function<void()> run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Delay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Copy(const Use& device, const Use& host, void* stream, absl::string_view call);

  const Options options_;
  mutable Mutex mutex_;
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> misuses_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Failure> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<int, int> retained_ ABSL_GUARDED_BY(mutex_);  // primary contexts, by device
  std::map<uint64_t, std::vector<int>> current_ ABSL_GUARDED_BY(mutex_);  // by thread
  std::vector<std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Stream*> default_streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Event>> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<Access> accesses_ ABSL_GUARDED_BY(mutex_);
  int64_t pins_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock host_ ABSL_GUARDED_BY(mutex_);  // what the host's threads have waited for
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_DEVICE_CUDA_FAKE_CUDA_DRIVER_H_
