// The seam of threads: every thread of this project starts here, has a name that debuggers and traces show, and is joined
// by its owner.
//
//   thread_ = Thread("slimps-io", [this] { Run(); });   // the owner's last member: it uses the rest
//   ...
//   thread_.Join();
#ifndef SLIMPS_PROTO_BASE_THREAD_H_
#define SLIMPS_PROTO_BASE_THREAD_H_

#include <functional>
#include <string_view>
#include <thread>

namespace slimps {

// Thread-compatible. Destroying one that was not joined ends the process, as with std::thread.
class Thread final {
 public:
  using Id = std::thread::id;

  Thread() = default;  // of nothing
  // Runs `body`. The system keeps 15 characters of `name`. Throws std::system_error: no thread can be started.
  Thread(std::string_view name, std::function<void()> body);

  // One that nobody joins: for a call that must not keep its caller from going on. Throws as the constructor does.
  static void StartDetached(std::string_view name, std::function<void()> body);

  // REQUIRES: joinable(), and not called on the thread itself.
  void Join() { thread_.join(); }
  bool joinable() const { return thread_.joinable(); }
  Id id() const { return thread_.get_id(); }
  // Sends it `signal`. REQUIRES: joinable().
  void Kill(int signal);

  static Id CurrentId() { return std::this_thread::get_id(); }

 private:
  std::thread thread_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_THREAD_H_
