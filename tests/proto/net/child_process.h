// Processes for tests to watch, and to kill.
#ifndef SLIMPS_TESTS_PROTO_NET_CHILD_PROCESS_H_
#define SLIMPS_TESTS_PROTO_NET_CHILD_PROCESS_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

namespace slimps {

// A process that lives until it is killed.
class Child final {
 public:
  Child() : Child([] { pause(); }) {}
  // Does that again and again.
  template <typename Body>
  explicit Child(Body body) : pid_(fork()) {
    while (pid_ == 0) body();
  }
  ~Child() { End(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  uint64_t pid() const { return static_cast<uint64_t>(pid_); }
  // It dies soon, and its number is its own still.
  void Kill() {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }
  // It is gone when this returns.
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

#endif  // SLIMPS_TESTS_PROTO_NET_CHILD_PROCESS_H_
