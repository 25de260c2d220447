// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/weights_file.h"

#include <bit>
#include <cstdint>

#include "proto/base/file.h"

namespace slimps {

namespace {

// Numbers are copied as they are in memory, and the file is little-endian.
static_assert(std::endian::native == std::endian::little);

template <typename Number>
void Append(Number value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::string BuildWeights(std::span<const Parameter> parameters) {
  std::string out = "SLIMPSW1";
  Append(static_cast<uint32_t>(parameters.size()), &out);
  for (const Parameter& parameter : parameters) {
    Append(static_cast<uint32_t>(parameter.name.size()), &out);
    out += parameter.name;
    Append(static_cast<uint32_t>(parameter.shape.size()), &out);
    for (const int64_t extent : parameter.shape) Append(extent, &out);
    out.append(reinterpret_cast<const char*>(parameter.values.data()),
               parameter.values.size_bytes());
  }
  return out;
}

absl::Status SaveWeights(const std::string& path, std::span<const Parameter> parameters) {
  return WriteFileDurably(path, BuildWeights(parameters));
}

}  // namespace slimps
