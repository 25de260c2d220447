// SPDX-License-Identifier: Apache-2.0
// DeviceCompressor: gradient compression inside one process, where several devices hold gradients
// of one key. It encodes each device's gradient as a worker's, with a residual of its own, decodes
// it at once, and sums what was decoded in the order of the devices.
//
//   auto compressor = DeviceCompressor::Create("2bit:threshold=0.5", {.grad_scale = 1});
//   (*compressor)->Sum(tensor, /*round=*/7, gradients, sum, &counts);   // updates the residuals
//
// Nothing travels, so no threshold is measured: tensors below `threshold_bytes` stay as they are,
// all others are compressed. Thread-safe.
#ifndef SLIMPS_WORKER_PUSH_DEVICE_COMPRESSOR_H_
#define SLIMPS_WORKER_PUSH_DEVICE_COMPRESSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/work_arena.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/push/payload_maker.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/push_counts.h"

namespace slimps {

struct DeviceCompressorOptions {
  uint64_t threshold_bytes = 0;  // fp32 bytes of a tensor
  float grad_scale = 1.0f;
  int encode_threads = 0;  // gradients encoded at a time; 0: as many as there are cores
};

class DeviceCompressor final {
 public:
  // InvalidArgument: no such codec or option.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<DeviceCompressor>> Create(
      std::string_view codec_spec, const DeviceCompressorOptions& options);

  const Codec& codec() const { return *codec_; }

  // sum[k] = decode(encode(gradients[0] * grad_scale + residual 0))[k] + ...; for a codec that
  // votes, the sign of that. REQUIRES: each array has the tensor's elements.
  // InvalidArgument (names key and element): NaN or infinity in a gradient. No residual has
  // changed.
  [[nodiscard]] absl::Status Sum(const TensorPlan& tensor, uint64_t round,
                                 std::span<const std::span<const float>> gradients,
                                 std::span<float> sum, PushCounts* counts);

 private:
  DeviceCompressor(std::unique_ptr<const Codec> codec, const DeviceCompressorOptions& options);
  absl::StatusOr<std::vector<GradientPart>> Copy(const TensorPlan& tensor, uint64_t round,
                                                 std::span<const std::span<const float>> gradients);

  const DeviceCompressorOptions options_;
  const std::unique_ptr<const Codec> codec_;
  const std::unique_ptr<const Codec> raw_;
  const std::unique_ptr<Device> device_;
  const WorkArena arena_;
  Mutex mutex_;
  PayloadMaker maker_ ABSL_GUARDED_BY(mutex_);  // keeps the residuals; a device is a partition
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_DEVICE_COMPRESSOR_H_
