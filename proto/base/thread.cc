// SPDX-License-Identifier: Apache-2.0
#include "proto/base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <string>
#include <utility>

#include "proto/base/simulation/simulation.h"

namespace slimps {
namespace {

constexpr size_t kMaxName = 15;  // Linux's limit

// Starts a thread that names itself, so that its first span in a trace already has the name.
std::thread Start(std::string_view name, std::function<void()> body) {
  if (simulation::Active())
    return simulation::StartThread({name.data(), name.size()}, std::move(body));
  return std::thread([name = std::string(name.substr(0, kMaxName)), body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.c_str());
    body();
  });
}

}  // namespace

Thread::Thread(std::string_view name, std::function<void()> body)
    : thread_(Start(name, std::move(body))) {}

void Thread::StartDetached(std::string_view name, std::function<void()> body) {
  Start(name, std::move(body)).detach();
}

void Thread::Join() {
  if (!simulation::Active()) return thread_.join();
  simulation::AwaitThread(id());
  thread_.detach();
}

void Thread::Kill(int signal) { pthread_kill(thread_.native_handle(), signal); }

}  // namespace slimps
