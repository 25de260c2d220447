// SPDX-License-Identifier: Apache-2.0
// Several threads that run the same body.
//
//   threads_("push", 4, [this] { Run(); })   // the last member: the body uses the others
//   ...
//   threads_.Join();
//
// Thread-compatible.
#ifndef SLIMPS_WORKER_TENSOR_THREADS_H_
#define SLIMPS_WORKER_TENSOR_THREADS_H_

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "proto/base/thread.h"

namespace slimps {

class Threads final {
 public:
  // Starts `count` threads, or fewer if the system grants no more.
  // Throws std::system_error or std::bad_alloc if it grants none.
  Threads(std::string_view name, size_t count, const std::function<void()>& body) {
    threads_.reserve(count);
    while (threads_.size() < count) {
      try {
        threads_.emplace_back(name, body);
      } catch (...) {
        if (threads_.empty()) throw;
        return;
      }
    }
  }

  void Join() {
    for (Thread& thread : threads_) thread.Join();
  }

 private:
  std::vector<Thread> threads_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_THREADS_H_
