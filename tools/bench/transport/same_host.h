// How a worker reaches servers of its own machine, as far as the store can be told.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_SAME_HOST_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_SAME_HOST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace slimps {

// InvalidArgument: no such transport. Unimplemented: a store without the option, which speaks TCP.
template <typename Options>
[[nodiscard]] absl::Status SetSameHost(const std::string& name, Options* options) {
  if (name != "tcp" && name != "ipc" && name != "shm") {
    return absl::InvalidArgumentError(
        absl::StrCat("--same_host: expected tcp, ipc or shm, got \"", name, "\""));
  }
  if constexpr (requires { options->same_host = name; }) {
    options->same_host = name;
  } else if (name != "tcp") {
    return absl::UnimplementedError(absl::StrCat("--same_host=", name, ": this store speaks TCP"));
  }
  return absl::OkStatus();
}

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_SAME_HOST_H_
