// The device of a machine without accelerator: "device memory" is host memory, and a copy is done
// when the call returns.
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/buffer.h"
#include "worker/device/device.h"
#include "worker/device/host_pool.h"

namespace slimps {
namespace {

class AlignedBlock final : public HostBlock {
 public:
  explicit AlignedBlock(size_t bytes) : buffer_(bytes) {}
  std::span<std::byte> bytes() override { return buffer_.bytes(); }

 private:
  AlignedBuffer buffer_;
};

absl::StatusOr<std::unique_ptr<HostBlock>> MakeAlignedBlock(size_t bytes) {
  try {
    return std::make_unique<AlignedBlock>(bytes);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", bytes, " bytes of host memory"));
  }
}

// Thread-safe.
class HostDevice final : public Device {
 public:
  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(size_t elements) override {
    return pool_->Acquire(elements);
  }
  void CopyToHost(KeyId key, std::span<const float> source, std::span<float> destination,
                  CopyDone done) override {
    Copy(key, source, destination, done);
  }
  void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                    CopyDone done) override {
    Copy(key, source, destination, done);
  }

 private:
  static void Copy(KeyId key, std::span<const float> source, std::span<float> destination,
                   const CopyDone& done) {
    absl::Status status = CheckCopy(key, source, destination);
    if (status.ok() && !source.empty()) {
      std::memcpy(destination.data(), source.data(), source.size_bytes());
    }
    done(key, std::move(status));
  }

  const std::shared_ptr<HostPool> pool_ = HostPool::Create(MakeAlignedBlock);
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace slimps
