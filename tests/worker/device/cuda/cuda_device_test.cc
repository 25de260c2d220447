// SPDX-License-Identifier: Apache-2.0
// The CUDA device, on the fake driver: nothing that it does is a misuse, in any order of the
// streams, and no error of the driver loses a copy or a buffer.
#include "worker/device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "compress/kernels/kernels.h"
#include "proto/base/buffer.h"
#include "proto/base/thread.h"
#include "proto/net/shared/shared_memory.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "tests/worker/device/device_test_body.h"
#include "worker/device/copy_between.h"
#include "worker/device/devices.h"

namespace slimps {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class FakeMemory final : public DeviceMemory {
 public:
  FakeMemory(FakeCudaDriver* driver, size_t elements)
      : driver_(driver), memory_(driver->Allocate(0, elements)) {}
  ~FakeMemory() override {
    driver_->Await(nullptr);  // it has waited for what came up
    driver_->Free(memory_);
  }
  std::span<float> span() override { return memory_; }

 private:
  FakeCudaDriver* const driver_;
  const std::span<float> memory_;
};

struct FakeFixture {
  static absl::StatusOr<std::unique_ptr<Device>> Make() {
    driver = std::make_unique<FakeCudaDriver>(FakeCudaDriver::Options());
    return MakeCudaDevice(driver.get(), 0);
  }
  static std::unique_ptr<DeviceMemory> Allocate(size_t elements) {
    return std::make_unique<FakeMemory>(driver.get(), elements);
  }
  static void Check() {
    driver->CheckAllGivenBack();
    EXPECT_THAT(driver->TakeMisuses(), IsEmpty());
  }
  static inline std::unique_ptr<FakeCudaDriver> driver;
};

INSTANTIATE_TYPED_TEST_SUITE_P(FakeCuda, DeviceTest, FakeFixture);

// Trains one tensor: the framework's stream writes a gradient and reads weights, and the device
// copies both. Returns what each gradient held when it arrived.
std::vector<float> Train(FakeCudaDriver* driver, Device* device, int gpu, int rounds) {
  constexpr size_t kElements = 50;
  void* const stream = driver->MakeStream(gpu);
  std::vector<float> arrived(static_cast<size_t>(rounds)), used(static_cast<size_t>(rounds));
  Completions completions;
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  std::vector<std::span<float>> gradients;
  const std::span<float> weights = driver->Allocate(gpu, kElements);
  for (size_t round = 0; round < arrived.size(); ++round) {
    const std::span<float> gradient = driver->Allocate(gpu, kElements);
    driver->Launch(stream, weights, gradient, [=] {
      std::ranges::fill(gradient, weights[kElements - 1] + static_cast<float>(gpu + 1));
    });
    auto down = *device->AllocateHost(kElements);
    device->CopyToHost(2 * round, gradient, stream, down->floats(), completions.Callback());
    completions.Await(2 * round + 1);
    arrived[round] = down->floats()[kElements - 1];
    driver->Free(gradient);
    auto up = *device->AllocateHost(kElements);
    std::ranges::fill(up->floats(), arrived[round]);
    device->CopyToDevice(2 * round + 1, up->floats(), weights, stream, completions.Callback());
    completions.Await(2 * round + 2);
  }
  driver->Await(stream);
  driver->Free(weights);
  return arrived;
}

TEST(CudaDevice, OrderAndLifetimeHoldWhateverTheTiming) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    FakeCudaDriver driver({.seed = seed, .longest_delay = absl::Microseconds(300)});
    {
      auto device = *MakeCudaDevice(&driver, 0);
      const std::vector<float> arrived = Train(&driver, device.get(), 0, 10);
      for (size_t round = 0; round < arrived.size(); ++round) {
        EXPECT_EQ(arrived[round], static_cast<float>(round + 1)) << "seed " << seed;
      }
    }
    driver.CheckAllGivenBack();
    EXPECT_THAT(driver.TakeMisuses(), IsEmpty()) << "seed " << seed;
  }
}

// A wait of the host would order what the events have to order.
TEST(CudaDevice, KernelsAroundACopyUpSeeOldAndNewWithoutAHostsWait) {
  constexpr size_t kElements = 50, kCopies = 4;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    FakeCudaDriver driver({.seed = seed, .longest_delay = absl::Microseconds(300)});
    Completions completions;
    {
      const auto device = *MakeCudaDevice(&driver, 0);
      void* const stream = driver.MakeStream(0);
      const std::span<float> weights = driver.Allocate(0, kElements);
      std::vector<std::vector<float>> seen(kCopies + 1, std::vector<float>(kElements, -1.0f));
      std::vector<std::unique_ptr<HostBuffer>> buffers;
      // Nothing runs until all is submitted. So no copy happens to be over before its reader comes.
      std::promise<void> submitted;
      driver.Launch(stream, {}, {}, [&] { submitted.get_future().wait(); });
      const auto look = [&](size_t k) {
        driver.Launch(stream, weights, {}, [&, k] { std::ranges::copy(weights, seen[k].begin()); });
      };
      look(0);
      for (size_t k = 1; k <= kCopies; ++k) {
        buffers.push_back(*device->AllocateHost(kElements));
        std::ranges::fill(buffers.back()->floats(), static_cast<float>(k));
        device->CopyToDevice(k, buffers.back()->floats(), weights, stream, completions.Callback());
        look(k);
      }
      submitted.set_value();
      driver.Await(stream);
      for (size_t k = 0; k <= kCopies; ++k) {
        EXPECT_EQ(seen[k], std::vector<float>(kElements, static_cast<float>(k))) << "seed " << seed;
      }
      for (const auto& [key, status] : completions.Await(kCopies)) EXPECT_TRUE(status.ok()) << key;
    }
    driver.CheckAllGivenBack();
    EXPECT_THAT(driver.TakeMisuses(), IsEmpty()) << "seed " << seed;
  }
}

TEST(CudaDevice, SeveralDevicesInOneProcessKeepApart) {
  FakeCudaDriver driver({.devices = 3, .seed = 5});
  {
    std::vector<std::unique_ptr<Device>> devices;
    for (int gpu = 0; gpu < 3; ++gpu) devices.push_back(*MakeCudaDevice(&driver, gpu));
    std::vector<Thread> threads;
    for (int gpu = 0; gpu < 3; ++gpu) {
      threads.emplace_back("gpu", [&, gpu] {
        const std::vector<float> arrived = Train(&driver, devices[gpu].get(), gpu, 20);
        EXPECT_EQ(arrived.back(), static_cast<float>(20 * (gpu + 1)));
      });
    }
    for (Thread& thread : threads) thread.Join();
    // Pinned memory of one GPU's pool takes another GPU's copy.
    auto buffer = *devices[0]->AllocateHost(8);
    const std::span<float> memory = driver.Allocate(2, 8);
    Completions completions;
    devices[2]->CopyToHost(1, memory, nullptr, buffer->floats(), completions.Callback());
    EXPECT_TRUE(completions.Await(1).at(1).ok());
  }
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

TEST(CudaDevice, ItsBuffersLieInTheMemoryThatTheProcessShares) {
  SharedMemory shared;
  if (!shared.ok()) GTEST_SKIP() << "this system gives no memory to share";
  SetPayloadMemory(&shared);
  FakeCudaDriver driver({});
  {
    const auto device = *MakeCudaDevice(&driver, 0);
    const auto buffer = *device->AllocateHost(kMinPayloadMemoryBytes);
    EXPECT_TRUE(shared.Find(std::as_bytes(buffer->floats())).has_value());
    Completions completions;
    device->CopyToHost(1, driver.Allocate(0, kMinPayloadMemoryBytes), nullptr, buffer->floats(),
                       completions.Callback());
    EXPECT_TRUE(completions.Await(1).at(1).ok());
  }
  SetPayloadMemory(nullptr);
  EXPECT_EQ(shared.stats().bytes_in_use, 0u);
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

// Payload memory for which the system sets nothing aside until it is written to. It is aligned as
// badly as PayloadMemory may be.
class UnreservedMemory final : public PayloadMemory {
 public:
  UnreservedMemory() { SetPayloadMemory(this); }
  ~UnreservedMemory() { SetPayloadMemory(nullptr); }
  std::byte* Allocate(size_t bytes) override {
    void* const mapped = mmap(nullptr, bytes + kBufferAlignment, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped) + kBufferAlignment;
  }
  void Free(std::byte* data, size_t bytes) override {
    munmap(data - kBufferAlignment, bytes + kBufferAlignment);
  }
};

int64_t MappingsOfThisProcess() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

// The kernel gives a process 65,530 mappings (vm.max_map_count).
TEST(CudaDevice, AModelOf32GibIsPinnedInFewMappings) {
  constexpr size_t kPartitions = 32 << 10, kElements = (1 << 20) / sizeof(float);
  UnreservedMemory memory;
  FakeCudaDriver driver({});
  {
    const auto device = *MakeCudaDevice(&driver, 0);
    std::vector<std::unique_ptr<HostBuffer>> buffers;
    const int64_t before = MappingsOfThisProcess();
    for (size_t i = 0; i < kPartitions; ++i) {
      // The backup model keeps buffers, and gradients pass through others.
      auto buffer = i % 2 == 0 ? device->KeepHost(kElements) : device->AllocateHost(kElements);
      ASSERT_TRUE(buffer.ok()) << i << ": " << buffer.status();
      buffers.push_back(*std::move(buffer));
    }
    EXPECT_LE(driver.pins(), 512);
    EXPECT_LE(MappingsOfThisProcess() - before, 65530 / 16);
  }
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

TEST(CudaDevice, NothingIsPinnedAnewFromStepToStep) {
  UnreservedMemory memory;
  FakeCudaDriver driver({});
  const auto device = *MakeCudaDevice(&driver, 0);
  const auto small = *device->AllocateHost(1000);
  int64_t of_first_step = 0;
  for (uint64_t step = 1; step <= 20; ++step) {
    device->NoteRound(step);
    { const auto weights = *device->AllocateHost(100 << 20); }
    for (int i = 0; i < 3000; ++i) {
      const auto gradient = *device->AllocateHost(1000);
    }
    if (step == 1) of_first_step = driver.pins();
  }
  EXPECT_EQ(driver.pins(), of_first_step);
}

TEST(CudaDevice, MemoryThatNoStepUsesAnyMoreIsUnpinned) {
  UnreservedMemory memory;
  FakeCudaDriver driver({});
  const auto device = *MakeCudaDevice(&driver, 0);
  const auto small = *device->AllocateHost(1000);
  const size_t of_small = driver.pinned_bytes();
  device->NoteRound(1);
  { const auto weights = *device->AllocateHost(100 << 20); }
  for (uint64_t step = 2; step <= 4; ++step) {
    EXPECT_GT(driver.pinned_bytes(), of_small) << "before step " << step;
    device->NoteRound(step);
  }
  EXPECT_EQ(driver.pinned_bytes(), of_small);
}

TEST(CudaDevice, PinnedMemorySharesNoPageOfTheSystem) {
  UnreservedMemory memory;
  FakeCudaDriver driver({.page_bytes = 64 << 10});
  const auto device = *MakeCudaDevice(&driver, 0);
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  for (const size_t elements : {1000, 100 << 20, 5000}) {
    buffers.push_back(*device->AllocateHost(elements));
    buffers.push_back(*device->KeepHost(elements));
  }
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

// Two bytes an element leave the GPU: its memory holds no more.
TEST(CudaDevice, HalvesBecomeFloatsOnTheHost) {
  FakeCudaDriver driver({});
  const RawKernels& kernels = BestKernels().raw;
  {
    const auto device = *MakeCudaDevice(&driver, 0);
    for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
      for (const size_t elements : {1, 2, 17, 1024, 1025, 5001}) {
        for (const float last : {-70.0f, std::numeric_limits<float>::infinity()}) {
          std::vector<float> expected(elements);
          for (size_t i = 0; i < elements; ++i) expected[i] = 0.5f * static_cast<float>(i % 128);
          expected.back() = last;
          const auto encode =
              type == ElementType::kFloat16 ? kernels.encode_f16 : kernels.encode_bf16;
          std::vector<std::byte> halves(2 * elements);
          encode(expected.data(), nullptr, 1, elements, halves.data());
          const std::span<float> memory = driver.Allocate(0, (elements + 1) / 2);
          std::memcpy(memory.data(), halves.data(), halves.size());
          const auto buffer = *device->AllocateHost(elements);
          Completions arrived;
          float largest = -1;
          device->CopyGradient(7, {memory.data(), elements}, {.gpu = 0, .type = type},
                               buffer->floats(),
                               [&, done = arrived.Callback()](KeyId, absl::StatusOr<float> found) {
                                 largest = found.value_or(-1);
                                 done(7, found.status());
                               });
          ASSERT_TRUE(arrived.Await(1).at(7).ok());
          EXPECT_TRUE(std::ranges::equal(expected, buffer->floats())) << elements;
          EXPECT_EQ(largest, std::abs(last));
          driver.Free(memory);
        }
      }
    }
  }
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

// The next copy's arrival must not wait for whoever reads the last one.
TEST(CudaDevice, CopiesCompleteWhileAGradientIsReported) {
  FakeCudaDriver driver({});
  std::promise<void> released;
  {
    const auto device = *MakeCudaDevice(&driver, 0);
    const auto first = *device->AllocateHost(100), second = *device->AllocateHost(100);
    const std::span<float> gradient = driver.Allocate(0, 100);
    Completions reported, copied;
    device->CopyGradient(1, gradient, Place(), first->floats(),
                         [&, done = reported.Callback()](KeyId key, absl::StatusOr<float> largest) {
                           released.get_future().wait();
                           done(key, largest.status());
                         });
    device->CopyToHost(2, gradient, nullptr, second->floats(), copied.Callback());
    EXPECT_TRUE(copied.Await(1)[2].ok());
    released.set_value();
    EXPECT_TRUE(reported.Await(1).at(1).ok());
  }
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

// A child that wrote to a page that both have would part this process' page from the GPU's.
TEST(CudaDevice, AForkedChildHasNoPinnedPages) {
  FakeCudaDriver driver({});
  const auto device = *MakeCudaDevice(&driver, 0);
  const auto buffer = *device->AllocateHost(5000);
  const std::span<float> floats = buffer->floats();
  const std::vector<float> elsewhere(5000);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {  // async-signal-safe calls alone: other threads may have held locks
    const auto has = [&](const float* value) { return write(ends[1], value, sizeof(float)) > 0; };
    const bool as_expected = has(&elsewhere[0]) && !has(&floats.front()) && !has(&floats.back());
    _exit(as_expected ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(CopyBetween, OrdersBothStreamsAndWaits) {
  FakeCudaDriver driver({.devices = 2, .seed = 4});
  {
    Devices devices(MakeHostDevice(), GpusOf(&driver));
    void* const streams[] = {driver.MakeStream(0), driver.MakeStream(1)};
    const std::span<float> memories[] = {driver.Allocate(0, 100), driver.Allocate(1, 100)};
    std::vector<float> host(100);
    for (float round = 1; round <= 10; ++round) {
      driver.Launch(streams[0], {}, memories[0], [=] { std::ranges::fill(memories[0], round); });
      const Place first = {.gpu = 0, .stream = streams[0]};
      const Place second = {.gpu = 1, .stream = streams[1]};
      EXPECT_TRUE(CopyBetween(&devices, memories[0], first, memories[1], second).ok());
      driver.Launch(streams[1], memories[1], memories[1], [=] {
        for (float& value : memories[1]) value += 1;
      });
      EXPECT_TRUE(CopyBetween(&devices, memories[1], second, host, {}).ok());
      EXPECT_EQ(host, std::vector<float>(100, round + 1));
      EXPECT_TRUE(CopyBetween(&devices, host, {}, memories[0], first).ok());
      driver.Launch(streams[0], memories[0], {}, [=] { EXPECT_EQ(memories[0][99], round + 1); });
    }
    EXPECT_EQ(CopyBetween(&devices, host, {}, memories[0].first(99), {.gpu = 0}).code(),
              absl::StatusCode::kInvalidArgument);
    driver.Fail("CopyToHost", absl::InternalError("broken"));
    EXPECT_EQ(CopyBetween(&devices, memories[0], {.gpu = 0, .stream = streams[0]}, host, {}).code(),
              absl::StatusCode::kInternal);
    for (void* const stream : streams) driver.Await(stream);
  }
  driver.CheckAllGivenBack();
  EXPECT_THAT(driver.TakeMisuses(), IsEmpty());
}

class CudaDeviceErrors : public testing::Test {
 protected:
  // Copies once to the host and returns the outcome.
  absl::Status CopyDown(std::span<const float> source, StreamHandle stream = nullptr) {
    Completions completions;
    device_->CopyToHost(7, source, stream, buffer_->floats(), completions.Callback());
    return completions.Await(1).at(7);
  }
  absl::Status CopyUp() {
    Completions completions;
    device_->CopyToDevice(7, buffer_->floats(), memory_, nullptr, completions.Callback());
    const absl::Status copied = completions.Await(1).at(7);
    driver_.Await(nullptr);
    return copied;
  }
  void TearDown() override {
    // What failed has left nothing behind, and the next copies work.
    EXPECT_TRUE(CopyDown(memory_).ok());
    EXPECT_TRUE(CopyUp().ok());
    buffer_.reset();
    device_.reset();
    driver_.CheckAllGivenBack();
    EXPECT_THAT(driver_.TakeMisuses(), IsEmpty());
  }

  FakeCudaDriver driver_{{.devices = 2}};
  std::unique_ptr<Device> device_ = *MakeCudaDevice(&driver_, 0);
  std::unique_ptr<HostBuffer> buffer_ = *device_->AllocateHost(16);
  const std::span<float> memory_ = driver_.Allocate(0, 16);
};

TEST_F(CudaDeviceErrors, EachCallThatFailsIsTheCopysErrorByKey) {
  for (const char* const call : {"CreateEvent", "PushContext", "IsCapturing", "RecordEvent",
                                 "WaitForEvent", "CopyToHost", "SynchronizeEvent"}) {
    driver_.Fail(call, absl::InternalError("broken"));
    const absl::Status copied = CopyDown(memory_);
    EXPECT_EQ(copied.code(), absl::StatusCode::kInternal) << call;
    EXPECT_THAT(copied.message(), HasSubstr("key 0000000000000007")) << call;
    EXPECT_THAT(copied.message(), HasSubstr("broken")) << call;
  }
}

TEST_F(CudaDeviceErrors, AnErrorAfterTheCopyWaitsForIt) {
  driver_.Fail("RecordEvent", absl::InternalError("broken"), /*successes=*/1);
  EXPECT_EQ(CopyDown(memory_).code(), absl::StatusCode::kInternal);
  driver_.Fail("WaitForEvent", absl::InternalError("broken"), /*successes=*/1);
  EXPECT_EQ(CopyUp().code(), absl::StatusCode::kInternal);
}

TEST_F(CudaDeviceErrors, AStreamOfAnotherGpuIsRefused) {
  const absl::Status copied = CopyDown(memory_, driver_.MakeStream(1));
  EXPECT_EQ(copied.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(copied.message(), HasSubstr("the given stream, expected one of GPU 0"));
  EXPECT_EQ(driver_.TakeMisuses().size(), 1u);  // the driver saw it, too
}

TEST_F(CudaDeviceErrors, EachThreadsOwnDefaultStreamIsRefused) {
  const absl::Status copied = CopyDown(memory_, reinterpret_cast<StreamHandle>(2));
  EXPECT_EQ(copied.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(copied.message(), HasSubstr("stream 2 is each thread's own default stream"));
}

TEST_F(CudaDeviceErrors, AStreamUnderCaptureIsRefused) {
  void* const stream = driver_.MakeStream(0);
  driver_.SetCapturing(stream, true);
  const absl::Status copied = CopyDown(memory_, stream);
  EXPECT_EQ(copied.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(copied.message(), HasSubstr("captured into a CUDA graph"));
}

TEST_F(CudaDeviceErrors, NoPinnedMemoryLeftSaysHowMuchWasWanted) {
  driver_.Fail("Pin", absl::ResourceExhaustedError("no memory"));
  // The pool frees what is idle and tries again.
  EXPECT_TRUE(device_->AllocateHost(20 << 20).ok());
  driver_.Fail("Pin", absl::ResourceExhaustedError("no memory"), /*successes=*/0,
               /*times=*/2);
  EXPECT_EQ(device_->AllocateHost(25 << 20).status(),
            absl::ResourceExhaustedError("104857600 bytes of pinned memory: no memory"));
}

TEST(CudaDeviceMaking, NothingIsHeldAfterItFailed) {
  // The making itself certainly makes so many of the first calls. The second PushContext may be
  // that of a lane's thread, whose failure shows in copies.
  for (const auto& [call, certain] : {std::pair("RetainPrimaryContext", 1),
                                      std::pair("CreateStream", 2), std::pair("PushContext", 1)}) {
    for (int successes = 0; successes < 2; ++successes) {
      FakeCudaDriver driver({});
      driver.Fail(call, absl::InternalError("broken"), successes);
      {
        const auto device = MakeCudaDevice(&driver, 0);
        if (successes < certain) {
          EXPECT_EQ(device.status(), absl::InternalError("broken"))
              << call << " after " << successes;
        }
      }
      driver.CheckAllGivenBack();
      EXPECT_THAT(driver.TakeMisuses(), IsEmpty()) << call << " after " << successes;
    }
  }
}

TEST(CudaDeviceMaking, AGpuThatThisMachineLacksIsNamed) {
  FakeCudaDriver driver({.devices = 2});
  EXPECT_EQ(MakeCudaDevice(&driver, 2).status(),
            absl::FailedPreconditionError("CUDA device 2 asked for, this machine has 2"));
  EXPECT_FALSE(MakeCudaDevice(&driver, -1).ok());
}

}  // namespace
}  // namespace slimps
