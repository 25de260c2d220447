// SPDX-License-Identifier: Apache-2.0
#include "worker/device/device.h"

#include "absl/strings/str_cat.h"

namespace slimps {

std::string KeyName(KeyId key) { return absl::StrCat("key ", absl::Hex(key, absl::kZeroPad16)); }

absl::Status CheckCopy(KeyId key, std::span<const float> source,
                       std::span<const float> destination) {
  if (source.size() == destination.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(KeyName(key), ": copy of ", source.size(),
                                                 " elements into a buffer of ",
                                                 destination.size()));
}

}  // namespace slimps
