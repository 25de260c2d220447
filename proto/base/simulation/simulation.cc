// SPDX-License-Identifier: Apache-2.0
#include "proto/base/simulation/simulation.h"

#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/runner.h"

namespace slimps::simulation {
namespace {

constexpr absl::Duration kStep = absl::Microseconds(1);  // what each choice costs
constexpr size_t kKeptNotes = 100;
constexpr uint64_t kLongestTurn = 2000;  // steps, before others are preferred

struct SimulatedThread {
  enum class State { kReady, kBlocked, kEnded, kCrashed };

  bool IsOver() const { return state == State::kEnded || state == State::kCrashed; }

  int number = 0;
  int node = 0;
  std::string name;
  std::thread::id id;
  sem_t turn = {};
  State state = State::kReady;
  const void* object = nullptr;  // what it waits for
  std::string what;
  absl::Duration until = absl::InfiniteDuration();
  bool woken = false;
  int64_t priority = 0;
};

thread_local SimulatedThread* current = nullptr;

// Only the thread whose turn it is touches it. Semaphores hand the turn over.
class Scheduler final {
 public:
  explicit Scheduler(const Options& options) : options_(options), random_(options.seed) {
    by_priority_ = Random() % 2 == 0;
    switch_one_in_ = uint64_t{1} << (Random() % 6);
    const uint64_t changes = 1 + Random() % 6;
    for (uint64_t i = 0; i < changes; ++i) {
      changes_.push_back(Random() % options_.expected_steps);
    }
  }

  const Options& options() const { return options_; }
  absl::Duration now() const { return now_; }
  uint64_t Random() { return random_(); }

  int AddNode() { return ++nodes_; }

  SimulatedThread* Add(absl::string_view name, int node) {
    threads_.push_back(std::make_unique<SimulatedThread>());
    SimulatedThread* const made = threads_.back().get();
    made->number = static_cast<int>(threads_.size());
    made->node = node;
    made->name = std::string(name);
    made->priority = static_cast<int64_t>(Random() >> 1);
    sem_init(&made->turn, 0, 0);
    return made;
  }

  void CrashAt(int node, absl::Duration when) { crashes_.emplace(when, node); }
  void Spare(int node) {
    std::erase_if(crashes_, [node](const auto& crash) { return crash.second == node; });
  }

  void StopUntil(int node, absl::Duration until) { stopped_until_[node] = until; }

  void SetObserver(std::function<void(absl::string_view)> observer) {
    observer_ = std::move(observer);
  }

  SimulatedThread* FirstOf(int node) {
    return std::ranges::find(threads_, node, [](const auto& one) { return one->node; })->get();
  }

  // Gives the turn to the thread that the seed says. Returns when it is this thread's again.
  void Switch(SimulatedThread* self, absl::string_view what) {
    now_ += kStep;
    if (++steps_ > options_.most_steps) Fail("more steps than a run may take");
    if (now_ > options_.horizon) Fail("the run has not ended at its horizon");
    while (!crashes_.empty() && crashes_.begin()->first <= now_) {
      Crash(crashes_.begin()->second);
      crashes_.erase(crashes_.begin());
    }
    if (++turn_ > kLongestTurn ||
        std::find(changes_.begin(), changes_.end(), steps_) != changes_.end()) {
      self->priority = lowest_--;
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

  static void AwaitTurn(SimulatedThread* thread) {
    while (sem_wait(&thread->turn) != 0) {
    }
  }

  void Wake(SimulatedThread* thread) {
    thread->state = SimulatedThread::State::kReady;
    thread->woken = true;
  }

  std::vector<SimulatedThread*> WaitingFor(const void* object) {
    std::vector<SimulatedThread*> waiting;
    for (const auto& thread : threads_) {
      if (thread->state == SimulatedThread::State::kBlocked && thread->object == object) {
        waiting.push_back(thread.get());
      }
    }
    return waiting;
  }

  SimulatedThread* Find(std::thread::id id) {
    for (const auto& thread : threads_) {
      if (thread->id == id) return thread.get();
    }
    return nullptr;
  }

  bool AllEnded() const {
    return std::ranges::all_of(
        threads_, [](const auto& thread) { return thread.get() == current || thread->IsOver(); });
  }

  void Note(absl::string_view line) {
    for (const char c : line) Hash(static_cast<unsigned char>(c));
    if (observer_) observer_(line);
    std::string noted = absl::StrCat(absl::FormatDuration(now_), " ", current->number, " ",
                                     current->name, ": ", line);
    if (options_.trace) std::fprintf(stderr, "%s\n", noted.c_str());
    notes_.push_back(std::move(noted));
    if (notes_.size() > kKeptNotes) notes_.pop_front();
  }

  Outcome outcome() const { return {.steps = steps_, .trace_hash = hash_, .took = now_}; }

  [[noreturn]] void Report(absl::string_view why) {
    std::string said = absl::StrCat("FAILED: ", why, "\nat ", absl::FormatDuration(now_),
                                    ", after ", steps_, " steps. Last:\n");
    for (const std::string& note : notes_) absl::StrAppend(&said, "  ", note, "\n");
    absl::StrAppend(&said, "threads:\n");
    for (const auto& thread : threads_) {
      if (thread->IsOver()) continue;
      const bool blocked = thread->state == SimulatedThread::State::kBlocked;
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

 private:
  void Hash(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull; }

  void Crash(int node) {
    if (FirstOf(node)->IsOver()) return;
    Note(absl::StrCat("node ", node, " crashes"));
    for (const auto& thread : threads_) {
      if (thread->node != node || thread->IsOver()) continue;
      thread->state = SimulatedThread::State::kCrashed;
      for (SimulatedThread* const waiting : WaitingFor(thread.get())) Wake(waiting);
    }
  }

  // Returns the thread that goes on. Lets time pass if all wait.
  SimulatedThread* Next(SimulatedThread* self) {
    for (;;) {
      absl::Duration first = absl::InfiniteDuration();
      ready_.clear();
      for (const auto& thread : threads_) {
        if (!thread->IsOver() && IsStopped(thread->node)) {
          first = std::min(first, stopped_until_[thread->node]);
          continue;
        }
        if (thread->state == SimulatedThread::State::kBlocked) {
          if (thread->until <= now_) thread->state = SimulatedThread::State::kReady;
          first = std::min(first, thread->until);
        }
        if (thread->state == SimulatedThread::State::kReady) ready_.push_back(thread.get());
      }
      if (!ready_.empty()) return Pick(self);
      if (first == absl::InfiniteDuration()) Report("threads wait for ever");
      now_ = std::max(now_, first);
    }
  }

  bool IsStopped(int node) const {
    const auto stopped = stopped_until_.find(node);
    return stopped != stopped_until_.end() && stopped->second > now_;
  }

  SimulatedThread* Pick(SimulatedThread* self) {
    if (by_priority_) {
      return *std::ranges::max_element(ready_, {}, &SimulatedThread::priority);
    }
    const bool stays = self->state == SimulatedThread::State::kReady && !IsStopped(self->node);
    if (stays && Random() % switch_one_in_ != 0) return self;
    return ready_[Random() % ready_.size()];
  }

  void Print(const SimulatedThread* self, absl::string_view what, const SimulatedThread* next) {
    std::fprintf(stderr, "%s %d %s: %.*s%s\n", absl::FormatDuration(now_).c_str(), self->number,
                 self->name.c_str(), static_cast<int>(what.size()), what.data(),
                 next == self ? "" : absl::StrCat(" -> ", next->number, " ", next->name).c_str());
  }

  const Options options_;
  std::mt19937_64 random_;
  bool by_priority_ = false;
  uint64_t switch_one_in_ = 1;
  std::vector<uint64_t> changes_;
  int64_t lowest_ = -1;
  absl::Duration now_ = absl::Seconds(1);  // no machine has just been started
  uint64_t steps_ = 0;
  uint64_t turn_ = 0;  // steps of the thread that goes on
  uint64_t hash_ = 0xcbf29ce484222325ull;
  std::vector<std::unique_ptr<SimulatedThread>> threads_;
  std::vector<SimulatedThread*> ready_;
  std::deque<std::string> notes_;
  int nodes_ = 0;
  std::multimap<absl::Duration, int> crashes_;       // nodes, by when they crash
  std::map<int, absl::Duration> stopped_until_;      // by node
  std::function<void(absl::string_view)> observer_;  // of notes
};

Scheduler* scheduler = nullptr;

// Runs on a new thread from its first turn on. Never returns.
[[noreturn]] void RunThread(SimulatedThread* self, std::function<void()> body) {
  Scheduler::AwaitTurn(self);
  current = self;
  {
    const std::function<void()> run = std::move(body);
    run();
  }
  self->state = SimulatedThread::State::kEnded;
  WakeAll(self);
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
  scheduler = new Scheduler(options);  // never freed: threads that end still look at it
  current = scheduler->Add("main", /*node=*/0);
  current->id = std::this_thread::get_id();
  body();
  while (!scheduler->AllEnded()) Sleep(absl::Milliseconds(1));
  current = nullptr;
  return scheduler->outcome();
}

void Fail(absl::string_view why) { scheduler->Report(why); }

bool Active() { return current != nullptr; }

absl::Duration Now() { return scheduler->now(); }

uint64_t Random() { return scheduler->Random(); }

void Choose(absl::string_view what) { scheduler->Switch(current, what); }

void Note(absl::string_view line) { scheduler->Note(line); }

void Sleep(absl::Duration duration) { (void)Block(nullptr, "sleeps", Now() + duration); }

bool Block(const void* object, absl::string_view what, absl::Duration until) {
  SimulatedThread* const self = current;
  self->state = SimulatedThread::State::kBlocked;
  self->object = object;
  self->what = std::string(what);
  self->until = until;
  self->woken = false;
  scheduler->Switch(self, what);
  return self->woken;
}

void WakeOne(const void* object) {
  const std::vector<SimulatedThread*> waiting = scheduler->WaitingFor(object);
  if (!waiting.empty()) scheduler->Wake(waiting[Random() % waiting.size()]);
}

void WakeAll(const void* object) {
  for (SimulatedThread* const thread : scheduler->WaitingFor(object)) scheduler->Wake(thread);
}

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
