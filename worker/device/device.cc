// SPDX-License-Identifier: Apache-2.0
#include "worker/device/device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"

namespace slimps {

std::string KeyName(KeyId key) { return absl::StrCat("key ", absl::Hex(key, absl::kZeroPad16)); }

absl::Status CheckCopy(KeyId key, std::span<const float> source,
                       std::span<const float> destination) {
  if (source.size() == destination.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(KeyName(key), ": copy of ", source.size(),
                                                 " elements into a buffer of ",
                                                 destination.size()));
}

void Device::CopyGradient(KeyId key, std::span<const float> source, StreamHandle producer,
                          std::span<float> destination, GradientDone done) {
  CopyToHost(key, source, producer, destination,
             [destination, done = std::move(done)](KeyId arrived, absl::Status status) {
               if (!status.ok()) return done(arrived, std::move(status));
               done(arrived, BestKernels().raw.largest(destination.data(), destination.size()));
             });
}

}  // namespace slimps
