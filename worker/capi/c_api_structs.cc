// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_structs.h"

namespace slimps {
namespace {

// No struct of a program is larger. A larger size means that the caller never set it.
constexpr size_t kMaxStruct = 4096;

}  // namespace

absl::Status CheckStructSize(const std::string& what, size_t got, size_t least) {
  if (got >= least && got <= kMaxStruct && got % sizeof(size_t) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, ".struct_size: expected the struct's sizeof, at least ", least, ", got ", got));
}

}  // namespace slimps
