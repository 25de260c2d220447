// SPDX-License-Identifier: Apache-2.0
#include "proto/base/out_of_memory.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace slimps {
namespace {

using Text = std::array<char, 256>;

constexpr char kOutOfMemory[] = "out of memory";

// Returns the text of `error`. An exception of the allocator itself does not say what the memory
// was for, so the text names the thread instead.
Text Describe(const std::bad_alloc& error) noexcept {
  Text text{};
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) {
    std::snprintf(text.data(), text.size(), "%s", error.what());
    return text;
  }
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  std::snprintf(text.data(), text.size(), "thread %s: %s", name.data(), kOutOfMemory);
  return text;
}

std::terminate_handler terminate_otherwise = nullptr;

[[noreturn]] void Terminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc& error) {
    std::array<char, 512> line{};
    const int length = std::snprintf(line.data(), line.size(), "%s: %s\n",
                                     program_invocation_short_name, Describe(error).data());
    // If the line cannot be written, nothing is left to do.
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, line.data(), static_cast<size_t>(length));
    _exit(EXIT_FAILURE);
  } catch (...) {  // the earlier handler deals with it
  }
  if (terminate_otherwise != nullptr) terminate_otherwise();
  std::abort();
}

}  // namespace

OutOfMemory::OutOfMemory(size_t bytes) noexcept {
  std::snprintf(text_.data(), text_.size(), "%s for %zu bytes", kOutOfMemory, bytes);
}

OutOfMemory::OutOfMemory(std::string_view what, std::string_view key_name,
                         const std::bad_alloc& why) noexcept {
  const bool says = dynamic_cast<const OutOfMemory*>(&why) != nullptr;
  std::snprintf(text_.data(), text_.size(), "%.*s%s%.*s: %s", static_cast<int>(what.size()),
                what.data(), key_name.empty() ? "" : " of key ", static_cast<int>(key_name.size()),
                key_name.data(), says ? why.what() : kOutOfMemory);
}

absl::Status OutOfMemoryStatus(const std::bad_alloc& error) {
  return absl::ResourceExhaustedError(Describe(error).data());
}

void EndWhereMemoryRunsOut() { terminate_otherwise = std::set_terminate(Terminate); }

}  // namespace slimps
