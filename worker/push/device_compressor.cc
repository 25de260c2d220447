// SPDX-License-Identifier: Apache-2.0
#include "worker/push/device_compressor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compress/format/sum.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"
#include "worker/tensor/value_check.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<DeviceCompressor>> DeviceCompressor::Create(
    std::string_view codec_spec, const DeviceCompressorOptions& options) {
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> codec, MakeCodec(codec_spec));
  return std::unique_ptr<DeviceCompressor>(new DeviceCompressor(std::move(codec), options));
}

DeviceCompressor::DeviceCompressor(std::unique_ptr<const Codec> codec,
                                   const DeviceCompressorOptions& options)
    : options_(options),
      codec_(std::move(codec)),
      raw_(MakeCodec(CodecSpec{.name = "none"}).value()),
      device_(MakeHostDevice()),
      arena_(options.encode_threads),
      maker_({.grad_scale = options.grad_scale}) {}

absl::StatusOr<std::vector<GradientPart>> DeviceCompressor::Copy(
    const TensorPlan& tensor, uint64_t round, std::span<const std::span<const float>> gradients) {
  std::vector<GradientPart> parts;
  device_->NoteRound(round);
  for (size_t i = 0; i < gradients.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> buffer,
                            device_->AllocateHost(tensor.elements));
    absl::StatusOr<float> largest = 0.0f;
    // The host device copies before it returns, so `largest` is set then.
    device_->CopyGradient(tensor.key.id(), gradients[i], Place(), buffer->floats(),
                          [&largest](KeyId, absl::StatusOr<float> found) { largest = found; });
    SLIMPS_RETURN_IF_ERROR(largest.status());
    if (std::isinf(*largest * options_.grad_scale)) {
      return CheckFinite(tensor.key, buffer->floats(), options_.grad_scale, "push");
    }
    parts.push_back({.tensor = &tensor,
                     .partition = i,
                     .round = round,
                     .grad_buf = std::move(buffer),
                     .gradient_bound = *largest});
  }
  return parts;
}

absl::Status DeviceCompressor::Sum(const TensorPlan& tensor, uint64_t round,
                                   std::span<const std::span<const float>> gradients,
                                   std::span<float> sum, PushCounts* counts) {
  const bool compressed = tensor.bytes() >= options_.threshold_bytes;
  const Codec& codec = compressed ? *codec_ : *raw_;
  // Every device has a whole tensor, so a device takes the place of a partition.
  TensorPlan devices = tensor;
  devices.partitions.assign(gradients.size(), {.server = 0, .offset = 0, .elements = sum.size()});
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<GradientPart> parts, Copy(devices, round, gradients));
  std::vector<MadePayload> made(parts.size());
  std::vector<absl::Status> statuses(parts.size());
  {
    MutexLock lock(&mutex_);
    PayloadMaker& maker = maker_;
    arena_.Run([&] {
      WorkArena::ForChunks(parts.size(), 1, [&](size_t first, size_t last) {
        for (size_t i = first; i < last; ++i) {
          absl::StatusOr<MadePayload> payload = maker.Make(parts[i], codec, *codec_);
          statuses[i] = payload.status();
          if (payload.ok()) made[i] = *std::move(payload);
        }
      });
    });
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(statuses[i]);
    counts->Add(sum.size(), made[i].stats, compressed);
  }
  std::vector<PayloadView> views;
  for (const MadePayload& one : made) {
    views.push_back({.format = one.format, .bytes = one.payload.bytes()});
  }
  for (size_t first = 0; first < sum.size(); first += kBlockElements) {
    SumPayloads(views, sum.size(), first,
                sum.subspan(first, std::min(kBlockElements, sum.size() - first)));
  }
  if (codec_->combine() == Combine::kMajority) BestKernels().sum.sign(sum.size(), sum.data());
  return absl::OkStatus();
}

}  // namespace slimps
