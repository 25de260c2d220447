// What happens where memory runs out.
//
// - What a tensor or a peer sized is allocated behind OrOutOfMemory: that it does not fit is an
// answer.
//     SLIMPS_ASSIGN_OR_RETURN(auto sum, OrOutOfMemory([&] { return Sum(elements); }, "push", name));
// - Anything else that fails ends a daemon, with one line: EndWhereMemoryRunsOut.
// - Inside a user's process each thread of the library, and each call, has one catch at its top,
// and the store fails. SayingWhatFor tells both what the memory was for.
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

// Says what for, and takes no memory for that.
class OutOfMemory final : public std::bad_alloc {
 public:
  // "out of memory for N bytes"
  explicit OutOfMemory(size_t bytes) noexcept;
  // "WHAT of key NAME: out of memory", and for how many bytes if `why` knows that. No key: an empty
  // name.
  OutOfMemory(std::string_view what, std::string_view key_name, const std::bad_alloc& why) noexcept;

  const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 256> text_;
};

// What `error` says; of an exception that says nothing, on which thread it was thrown. Throws
// std::bad_alloc.
absl::Status OutOfMemoryStatus(const std::bad_alloc& error);

// What `work` returns; where it throws std::bad_alloc, that says what for.
template <typename Work>
std::invoke_result_t<Work> SayingWhatFor(std::string_view what, std::string_view key_name,
                                         const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc& error) {
    throw OutOfMemory(what, key_name, error);
  }
}

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

// What `work` returns; ResourceExhausted where it throws std::bad_alloc: "WHAT of key NAME: ...".
// For what a tensor or a peer sized, and nothing beside that. Thread-safe.
template <typename Work>
typename StatusOrOf<std::invoke_result_t<Work>>::Type OrOutOfMemory(
    const Work& work, std::string_view what, std::string_view key_name = {}) {
  try {
    return work();
  } catch (const std::bad_alloc& error) {
    return OutOfMemoryStatus(OutOfMemory(what, key_name, error));
  }
}

// Hears that memory ran out on a thread of the library, on that thread, whose state is as it was
// left.
using OnOutOfMemory = std::function<void(const std::bad_alloc&)>;

// The catch at the top of a thread. Nobody to tell: the exception goes on, and a daemon ends.
template <typename Work>
void OrTell(const OnOutOfMemory& tell, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc& error) {
    if (!tell) throw;
    tell(error);
  }
}

// For the main of a daemon: from now on std::bad_alloc that nobody catches ends the process with
// exit status 1 and "PROGRAM: what for" on stderr.
void EndWhereMemoryRunsOut();

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_OUT_OF_MEMORY_H_
