// SPDX-License-Identifier: Apache-2.0
// The device of a machine without accelerator: "device memory" is host memory, and a copy is
// complete when the call returns.
#include <cstring>
#include <utility>

#include "compress/kernels/kernels.h"
#include "worker/device/device.h"
#include "worker/device/host_pool.h"

namespace slimps {
namespace {

// Thread-safe.
class HostDevice final : public Device {
 public:
  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(size_t elements) override {
    return pool_->Acquire(elements);
  }
  absl::StatusOr<std::unique_ptr<HostBuffer>> KeepHost(size_t elements) override {
    return pool_->Keep(elements);
  }
  void LimitHost(size_t bytes) override { pool_->Limit(bytes); }
  void NoteRound(uint64_t round) override { pool_->NoteRound(round); }
  absl::Status CheckReachable(std::span<const float>, StreamHandle) override {
    return absl::OkStatus();
  }
  void CopyToHost(KeyId key, std::span<const float> source, StreamHandle,
                  std::span<float> destination, CopyDone done) override {
    Copy(key, source, destination, done);
  }
  void CopyGradient(KeyId key, std::span<const float> source, const Place&,
                    std::span<float> destination, GradientDone done) override {
    const absl::Status status = CheckCopy(key, source, destination);
    if (!status.ok()) return done(key, status);
    done(key, kernels_.raw.copy_bounded(source.data(), destination.data(), source.size()));
  }
  void CopyToDevice(KeyId key, std::span<const float> source, std::span<float> destination,
                    StreamHandle, CopyDone done) override {
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

  const std::shared_ptr<HostPool> pool_ = HostPool::CreateAligned();
  const Kernels& kernels_ = BestKernels();
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace slimps
