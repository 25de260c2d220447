// SPDX-License-Identifier: Apache-2.0
// Child processes for tests to watch and to kill.
#ifndef SLIMPS_TESTS_PROTO_NET_SHARED_CHILD_PROCESS_H_
#define SLIMPS_TESTS_PROTO_NET_SHARED_CHILD_PROCESS_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

namespace slimps {

// A process that lives until it is killed. Thread-compatible.
class Child final {
 public:
  Child() : Child([] { pause(); }) {}

  // Starts a process that calls `body` again and again.
  template <typename Body>
  explicit Child(Body body) : pid_(fork()) {
    while (pid_ == 0) body();
  }
  ~Child() { End(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  uint64_t pid() const { return static_cast<uint64_t>(pid_); }
  // Kills the process. It dies soon, and keeps its number until End().
  void Kill() {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }

  // Kills the process and waits until it is gone.
  void End() {
    if (pid_ <= 0) return;
    Kill();
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_SHARED_CHILD_PROCESS_H_
