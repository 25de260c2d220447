// SPDX-License-Identifier: Apache-2.0
#include "proto/base/simulation/thread_scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace slimps::simulation {
namespace {

using State = SimulatedThread::State;

constexpr absl::Duration kStep = absl::Microseconds(1);  // what each choice costs
constexpr size_t kKeptNotes = 100;
constexpr uint64_t kLongestTurn = 2000;  // steps, before others are preferred

}  // namespace

ThreadScheduler::ThreadScheduler(const Options& options)
    : options_(options), random_(options.seed), of_node_(1) {
  by_priority_ = Random() % 2 == 0;
  switch_one_in_ = uint64_t{1} << (Random() % 6);
  const uint64_t changes = 1 + Random() % 6;
  for (uint64_t i = 0; i < changes; ++i) changes_.insert(Random() % options_.expected_steps);
}

int ThreadScheduler::AddNode() {
  of_node_.emplace_back();
  return static_cast<int>(of_node_.size()) - 1;
}

SimulatedThread* ThreadScheduler::Add(absl::string_view name, int node) {
  threads_.push_back(std::make_unique<SimulatedThread>());
  SimulatedThread* const made = threads_.back().get();
  made->number = static_cast<int>(threads_.size());
  made->node = node;
  made->name = std::string(name);
  made->priority = static_cast<int64_t>(Random() >> 1);
  sem_init(&made->turn, 0, 0);
  of_node_[static_cast<size_t>(node)].push_back(made);
  Enlist(made);
  return made;
}

SimulatedThread* ThreadScheduler::Find(std::thread::id id) const {
  const auto found = std::ranges::find(threads_, id, [](const auto& one) { return one->id; });
  return found == threads_.end() ? nullptr : found->get();
}

bool ThreadScheduler::AllEndedBut(const SimulatedThread* one) const {
  return std::ranges::all_of(
      threads_, [one](const auto& thread) { return thread.get() == one || thread->IsOver(); });
}

void ThreadScheduler::Spare(int node) {
  std::erase_if(crashes_, [node](const auto& crash) { return crash.second == node; });
}

void ThreadScheduler::StopUntil(int node, absl::Duration until) {
  for (SimulatedThread* const thread : of_node_[static_cast<size_t>(node)]) {
    if (thread->state == State::kReady) Delist(thread);
  }
  stopped_until_[node] = until;
}

void ThreadScheduler::Switch(SimulatedThread* self, absl::string_view what) {
  now_ += kStep;
  if (++steps_ > options_.most_steps) Report("more steps than a run may take");
  if (now_ > options_.horizon) Report("the run has not ended at its horizon");
  while (!crashes_.empty() && crashes_.begin()->first <= now_) {
    Crash(self, crashes_.begin()->second);
    crashes_.erase(crashes_.begin());
  }
  if (++turn_ > kLongestTurn || changes_.contains(steps_)) {
    SetPriority(self, lowest_--);
    turn_ = 0;
  }
  SimulatedThread* const next = Next(self);
  Hash(static_cast<uint64_t>(next->number));
  if (options_.trace) Print(self, what, next);
  if (next == self) return;
  turn_ = 0;
  const bool is_over = self->IsOver();
  sem_post(&next->turn);
  if (!is_over) return AwaitTurn(self);
  // What the system does at a thread's end would run beside the threads that go on.
  for (;;) pause();
}

void ThreadScheduler::AwaitTurn(SimulatedThread* thread) {
  while (sem_wait(&thread->turn) != 0) {
  }
}

void ThreadScheduler::Block(SimulatedThread* self, const void* object, absl::string_view what,
                            absl::Duration until) {
  Delist(self);
  self->state = State::kBlocked;
  self->object = object;
  self->what = std::string(what);
  self->until = until;
  self->woken = false;
  Enlist(self);
  Switch(self, what);
}

void ThreadScheduler::End(SimulatedThread* self) {
  SetState(self, State::kEnded);
  WakeAll(self);
}

void ThreadScheduler::WakeOne(const void* object) {
  const auto waiting = waiting_.find(object);
  if (waiting != waiting_.end()) Wake(waiting->second[Random() % waiting->second.size()]);
}

void ThreadScheduler::WakeAll(const void* object) {
  for (auto it = waiting_.find(object); it != waiting_.end(); it = waiting_.find(object)) {
    Wake(it->second.front());
  }
}

void ThreadScheduler::Note(const SimulatedThread* self, absl::string_view line) {
  for (const char c : line) Hash(static_cast<unsigned char>(c));
  if (observer_) observer_(line);
  std::string noted =
      absl::StrCat(absl::FormatDuration(now_), " ", self->number, " ", self->name, ": ", line);
  if (options_.trace) std::fprintf(stderr, "%s\n", noted.c_str());
  notes_.push_back(std::move(noted));
  if (notes_.size() > kKeptNotes) notes_.pop_front();
}

void ThreadScheduler::Report(absl::string_view why) const {
  std::string said = absl::StrCat("FAILED: ", why, "\nat ", absl::FormatDuration(now_), ", after ",
                                  steps_, " steps. Last:\n");
  for (const std::string& note : notes_) absl::StrAppend(&said, "  ", note, "\n");
  absl::StrAppend(&said, "threads:\n");
  for (const auto& thread : threads_) {
    if (thread->IsOver()) continue;
    const bool blocked = thread->state == State::kBlocked;
    absl::StrAppend(&said, "  ", thread->number, " ", thread->name,
                    blocked ? absl::StrCat(" waits: ", thread->what) : " could go on");
    if (blocked && thread->until != absl::InfiniteDuration()) {
      absl::StrAppend(&said, ", until ", absl::FormatDuration(thread->until));
    }
    absl::StrAppend(&said, "\n");
  }
  std::fputs(said.c_str(), stderr);
  std::fflush(nullptr);
  _exit(kFailed);
}

void ThreadScheduler::Crash(const SimulatedThread* self, int node) {
  if (FirstOf(node)->IsOver()) return;
  Note(self, absl::StrCat(FirstOf(node)->name, " crashes"));
  for (SimulatedThread* const thread : of_node_[static_cast<size_t>(node)]) {
    if (thread->IsOver()) continue;
    SetState(thread, State::kCrashed);
    WakeAll(thread);
  }
}

void ThreadScheduler::Enlist(SimulatedThread* thread) {
  const auto insert = [thread](auto order, Threads* threads) {
    threads->insert(std::ranges::lower_bound(*threads, thread->*order, {}, order), thread);
  };
  if (thread->state == State::kReady && !IsStopped(thread->node)) {
    by_priority_ ? insert(&SimulatedThread::priority, &ready_)
                 : insert(&SimulatedThread::number, &ready_);
  }
  if (thread->state != State::kBlocked) return;
  if (thread->object != nullptr) insert(&SimulatedThread::number, &waiting_[thread->object]);
  if (thread->until != absl::InfiniteDuration()) timed_.emplace(thread->until, thread);
}

void ThreadScheduler::Delist(SimulatedThread* thread) {
  if (thread->state == State::kReady) std::erase(ready_, thread);
  if (thread->state != State::kBlocked) return;
  if (thread->object != nullptr) {
    const auto waiting = waiting_.find(thread->object);
    std::erase(waiting->second, thread);
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  timed_.erase({thread->until, thread});
}

void ThreadScheduler::SetState(SimulatedThread* thread, State state) {
  Delist(thread);
  thread->state = state;
  Enlist(thread);
}

void ThreadScheduler::Wake(SimulatedThread* thread) {
  SetState(thread, State::kReady);
  thread->woken = true;
}

void ThreadScheduler::SetPriority(SimulatedThread* thread, int64_t priority) {
  Delist(thread);
  thread->priority = priority;
  Enlist(thread);
}

bool ThreadScheduler::IsStopped(int node) const {
  const auto stopped = stopped_until_.find(node);
  return stopped != stopped_until_.end() && stopped->second > now_;
}

void ThreadScheduler::EndWaits() {
  std::erase_if(stopped_until_, [this](const auto& stopped) {
    const auto& [node, until] = stopped;
    if (until > now_) return false;
    for (SimulatedThread* const thread : of_node_[static_cast<size_t>(node)]) {
      const bool waited = thread->state == State::kBlocked && thread->until <= now_;
      if (waited || thread->state == State::kReady) SetState(thread, State::kReady);
    }
    return true;
  });
  while (!timed_.empty() && timed_.begin()->first <= now_) {
    SimulatedThread* const thread = timed_.begin()->second;
    timed_.erase(timed_.begin());
    if (!IsStopped(thread->node)) SetState(thread, State::kReady);  // else at the stop's end
  }
}

SimulatedThread* ThreadScheduler::Next(SimulatedThread* self) {
  for (;;) {
    EndWaits();
    if (!ready_.empty()) return Pick(self);
    absl::Duration first = timed_.empty() ? absl::InfiniteDuration() : timed_.begin()->first;
    for (const auto& [node, until] : stopped_until_) first = std::min(first, until);
    if (first == absl::InfiniteDuration()) Report("threads wait for ever");
    now_ = std::max(now_, first);
  }
}

SimulatedThread* ThreadScheduler::Pick(SimulatedThread* self) {
  if (by_priority_) return ready_.back();
  const bool stays = self->state == State::kReady && !IsStopped(self->node);
  if (stays && Random() % switch_one_in_ != 0) return self;
  return ready_[Random() % ready_.size()];
}

void ThreadScheduler::Print(const SimulatedThread* self, absl::string_view what,
                            const SimulatedThread* next) const {
  std::fprintf(stderr, "%s %d %s: %.*s%s\n", absl::FormatDuration(now_).c_str(), self->number,
               self->name.c_str(), static_cast<int>(what.size()), what.data(),
               next == self ? "" : absl::StrCat(" -> ", next->number, " ", next->name).c_str());
}

}  // namespace slimps::simulation
