// SPDX-License-Identifier: Apache-2.0
#include "proto/base/simulation/simulation.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/runner.h"
#include "proto/base/simulation/thread_scheduler.h"

namespace slimps::simulation {
namespace {

ThreadScheduler* scheduler = nullptr;
thread_local SimulatedThread* current = nullptr;

// Runs on a new thread from its first turn on. Never returns.
[[noreturn]] void RunThread(SimulatedThread* self, std::function<void()> body) {
  ThreadScheduler::AwaitTurn(self);
  current = self;
  {
    const std::function<void()> run = std::move(body);
    run();
  }
  scheduler->End(self);
  current = nullptr;
  scheduler->Switch(self, "ends");
  for (;;) pause();
}

std::thread Start(SimulatedThread* made, std::function<void()> body) {
  std::thread thread(
      [made, body = std::move(body)]() mutable { RunThread(made, std::move(body)); });
  made->id = thread.get_id();
  Choose("starts a thread");
  return thread;
}

}  // namespace

Outcome Run(const Options& options, const std::function<void()>& body) {
  scheduler = new ThreadScheduler(options);  // never freed: threads that end still look at it
  current = scheduler->Add("main", /*node=*/0);
  current->id = std::this_thread::get_id();
  body();
  while (!scheduler->AllEndedBut(current)) Sleep(absl::Milliseconds(1));
  current = nullptr;
  return scheduler->outcome();
}

void Fail(absl::string_view why) { scheduler->Report(why); }

bool Active() { return current != nullptr; }

absl::Duration Now() { return scheduler->now(); }

uint64_t Random() { return scheduler->Random(); }

void Choose(absl::string_view what) { scheduler->Switch(current, what); }

void Note(absl::string_view line) { scheduler->Note(current, line); }

void Sleep(absl::Duration duration) { (void)Block(nullptr, "sleeps", Now() + duration); }

bool Block(const void* object, absl::string_view what, absl::Duration until) {
  SimulatedThread* const self = current;
  scheduler->Block(self, object, what, until);
  return self->woken;
}

void WakeOne(const void* object) { scheduler->WakeOne(object); }

void WakeAll(const void* object) { scheduler->WakeAll(object); }

void Lock(int* owner) {
  Choose("locks");
  if (*owner == current->number) Fail("a thread locks a mutex that it holds");
  while (*owner != 0) {
    (void)Block(owner, absl::StrCat("a mutex of ", *owner), absl::InfiniteDuration());
  }
  *owner = current->number;
}

bool TryLock(int* owner) {
  Choose("tries to lock");
  if (*owner != 0) return false;
  *owner = current->number;
  return true;
}

void Unlock(int* owner) {
  if (*owner != current->number) Fail("a thread unlocks a mutex that it does not hold");
  *owner = 0;
  WakeAll(owner);
  if (Random() % 8 == 0) Choose("unlocks");
}

std::thread StartThread(absl::string_view name, std::function<void()> body) {
  return Start(scheduler->Add(name, current->node), std::move(body));
}

int StartNode(absl::string_view name, std::function<void()> body) {
  const int node = scheduler->AddNode();
  Start(scheduler->Add(name, node), std::move(body)).detach();
  return node;
}

void CrashThisNode(absl::Duration when) { scheduler->CrashAt(current->node, when); }

void StopThisNode(absl::Duration until) { scheduler->StopUntil(current->node, until); }

void SpareThisNode() { scheduler->Spare(current->node); }

void ObserveNotes(std::function<void(absl::string_view)> observer) {
  scheduler->SetObserver(std::move(observer));
}

bool AwaitNode(int node) {
  SimulatedThread* const first = scheduler->FirstOf(node);
  while (!first->IsOver()) {
    (void)Block(first, absl::StrCat("the end of ", first->name), absl::InfiniteDuration());
  }
  return first->state == SimulatedThread::State::kEnded;
}

void AwaitThread(std::thread::id id) {
  SimulatedThread* const thread = scheduler->Find(id);
  while (thread != nullptr && !thread->IsOver()) {
    (void)Block(thread, absl::StrCat("the end of ", thread->name), absl::InfiniteDuration());
  }
}

}  // namespace slimps::simulation
