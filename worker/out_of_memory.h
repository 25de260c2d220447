// Memory that runs out, as a status: a worker that throws in a call that all make together leaves the others waiting.
//
//   return OrOutOfMemory([&] { return ParseOptimizerStates(content); }, "loading optimizer states");
#ifndef SLIMPS_WORKER_OUT_OF_MEMORY_H_
#define SLIMPS_WORKER_OUT_OF_MEMORY_H_

#include <new>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace slimps {

// What `work` returns, a Status or StatusOr; ResourceExhausted where it throws std::bad_alloc: "WHAT of key NAME: ...".
// Thread-safe.
template <typename Work>
std::invoke_result_t<Work> OrOutOfMemory(const Work& work, absl::string_view what,
                                         absl::string_view key_name = {}) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, key_name.empty() ? "" : " of key ", key_name, ": out of memory"));
  }
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_OUT_OF_MEMORY_H_
