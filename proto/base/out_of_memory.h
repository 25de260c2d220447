// SPDX-License-Identifier: Apache-2.0
// What happens when memory runs out.
//
// - Memory whose size a tensor or a peer chose is allocated within OrOutOfMemory. If it does not
//   fit, the answer is an error:
//     SLIMPS_ASSIGN_OR_RETURN(
//         auto sum, OrOutOfMemory([&] { return Sum(elements); }, "push", name));
// - Any other failed allocation ends a daemon, with one line on stderr (EndWhereMemoryRunsOut).
// - Inside a user's process, each thread of the library and each call has one catch at its top, and
//   the store fails. SayingWhatFor adds what the memory was for.
#ifndef SLIMPS_PROTO_BASE_OUT_OF_MEMORY_H_
#define SLIMPS_PROTO_BASE_OUT_OF_MEMORY_H_

#include <array>
#include <cstddef>
#include <functional>
#include <new>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

// A std::bad_alloc that says what the memory was for. It allocates nothing. Thread-compatible.
class OutOfMemory final : public std::bad_alloc {
 public:
  // Says "out of memory for N bytes".
  explicit OutOfMemory(size_t bytes) noexcept;
  // Says "WHAT of key NAME: out of memory", and for how many bytes if `why` says so. An empty name
  // means no key.
  OutOfMemory(std::string_view what, std::string_view key_name, const std::bad_alloc& why) noexcept;

  const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 256> text_;
};

// Returns what `error` says as ResourceExhausted. If it says nothing, the message names the thread
// that calls this. Throws std::bad_alloc.
absl::Status OutOfMemoryStatus(const std::bad_alloc& error);

// Returns what `work` returns. If it throws std::bad_alloc, adds what the memory was for.
template <typename Work>
std::invoke_result_t<Work> SayingWhatFor(std::string_view what, std::string_view key_name,
                                         const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc& error) {
    throw OutOfMemory(what, key_name, error);
  }
}

// The type T as an absl::StatusOr, or as absl::Status.
template <typename T>
struct StatusOrOf {
  using Type = absl::StatusOr<T>;
};
template <typename T>
struct StatusOrOf<absl::StatusOr<T>> {
  using Type = absl::StatusOr<T>;
};
template <>
struct StatusOrOf<absl::Status> {
  using Type = absl::Status;
};

// Returns what `work` returns. Only for memory whose size a tensor or a peer chose. Thread-safe.
// ResourceExhausted: `work` threw std::bad_alloc. The message is "WHAT of key NAME: ...".
template <typename Work>
typename StatusOrOf<std::invoke_result_t<Work>>::Type OrOutOfMemory(
    const Work& work, std::string_view what, std::string_view key_name = {}) {
  try {
    return work();
  } catch (const std::bad_alloc& error) {
    return OutOfMemoryStatus(OutOfMemory(what, key_name, error));
  }
}

// Called on a thread of the library where memory ran out. The thread's state is as the exception
// left it.
using OnOutOfMemory = std::function<void(const std::bad_alloc&)>;

// The catch at the top of a thread. If `tell` is empty, the exception goes on, and a daemon ends.
template <typename Work>
void OrTell(const OnOutOfMemory& tell, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc& error) {
    if (!tell) throw;
    tell(error);
  }
}

// Makes a std::bad_alloc that nobody catches end the process with exit status 1 and "PROGRAM: what
// for" on stderr. Only for the main of a daemon.
void EndWhereMemoryRunsOut();

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_OUT_OF_MEMORY_H_
