// SPDX-License-Identifier: Apache-2.0
// The seam of threads. Every thread of this project starts here, has a name that debuggers and
// traces show, and is joined by its owner (except those of StartDetached).
//
//   thread_ = Thread("slimps-io", [this] { Run(); });  // the last member: it uses the others
//   ...
//   thread_.Join();
#ifndef SLIMPS_PROTO_BASE_THREAD_H_
#define SLIMPS_PROTO_BASE_THREAD_H_

#include <functional>
#include <string_view>
#include <thread>

namespace slimps {

// Destroying a thread that was not joined ends the process, as with std::thread. Thread-compatible.
class Thread final {
 public:
  using Id = std::thread::id;

  Thread() = default;  // no thread

  // Starts a thread that runs `body`. The system keeps 15 characters of `name`.
  // Throws std::system_error if no thread can be started.
  Thread(std::string_view name, std::function<void()> body);

  // Starts a thread that nobody joins, for a call that must not hold up its caller. Throws as the
  // constructor does.
  static void StartDetached(std::string_view name, std::function<void()> body);

  // REQUIRES: joinable(), and not called on the thread itself.
  void Join();
  bool joinable() const { return thread_.joinable(); }
  Id id() const { return thread_.get_id(); }
  // Sends it `signal`.
  // REQUIRES: joinable().
  void Kill(int signal);

  static Id CurrentId() { return std::this_thread::get_id(); }

 private:
  std::thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_THREAD_H_
