// SPDX-License-Identifier: Apache-2.0
// The threads of a simulated run, and whose turn it is (simulation.h). A step costs about as much
// with thousands of threads as with ten: those that can go on, wait for an object or wait for a
// time are in a list each.
//
//   ready --Block--> waits for an object, or until a time --Wake, or the time comes--> ready
//   A node that is stopped keeps its threads out of the first list.
//
// Only the thread whose turn it is touches it. Semaphores hand the turn over.
#ifndef SLIMPS_PROTO_BASE_SIMULATION_THREAD_SCHEDULER_H_
#define SLIMPS_PROTO_BASE_SIMULATION_THREAD_SCHEDULER_H_

#include <semaphore.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/base/simulation/simulation.h"

namespace slimps::simulation {

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

class ThreadScheduler final {
 public:
  explicit ThreadScheduler(const Options& options);

  absl::Duration now() const { return now_; }
  uint64_t Random() { return random_(); }
  Outcome outcome() const { return {.steps = steps_, .trace_hash = hash_, .took = now_}; }

  int AddNode();
  SimulatedThread* Add(absl::string_view name, int node);
  SimulatedThread* FirstOf(int node) const { return of_node_[static_cast<size_t>(node)].front(); }
  SimulatedThread* Find(std::thread::id id) const;
  bool AllEndedBut(const SimulatedThread* one) const;

  void CrashAt(int node, absl::Duration when) { crashes_.emplace(when, node); }
  void Spare(int node);
  void StopUntil(int node, absl::Duration until);

  // Gives the turn of `self` to the thread that the seed says. Returns when it is `self`'s again;
  // never, if it has ended.
  void Switch(SimulatedThread* self, absl::string_view what);
  static void AwaitTurn(SimulatedThread* thread);
  void Block(SimulatedThread* self, const void* object, absl::string_view what,
             absl::Duration until);
  void End(SimulatedThread* self);
  void WakeOne(const void* object);
  void WakeAll(const void* object);

  void SetObserver(std::function<void(absl::string_view)> observer) {
    observer_ = std::move(observer);
  }
  void Note(const SimulatedThread* self, absl::string_view line);
  [[noreturn]] void Report(absl::string_view why) const;

 private:
  using Threads = std::vector<SimulatedThread*>;

  void Hash(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull; }
  void Crash(const SimulatedThread* self, int node);
  // Puts a thread into the lists of its state, or takes it out.
  void Enlist(SimulatedThread* thread);
  void Delist(SimulatedThread* thread);
  void SetState(SimulatedThread* thread, SimulatedThread::State state);
  void Wake(SimulatedThread* thread);
  void SetPriority(SimulatedThread* thread, int64_t priority);
  bool IsStopped(int node) const;
  // Lets those go on whose time has come.
  void EndWaits();
  // Returns the thread that goes on. Lets time pass if all wait.
  SimulatedThread* Next(SimulatedThread* self);
  SimulatedThread* Pick(SimulatedThread* self);
  void Print(const SimulatedThread* self, absl::string_view what,
             const SimulatedThread* next) const;

  const Options options_;
  std::mt19937_64 random_;
  bool by_priority_ = false;
  uint64_t switch_one_in_ = 1;
  std::set<uint64_t> changes_;  // steps
  int64_t lowest_ = -1;
  absl::Duration now_ = absl::Seconds(1);  // no machine has just been started
  uint64_t steps_ = 0;
  uint64_t turn_ = 0;  // steps of the thread that goes on
  uint64_t hash_ = 0xcbf29ce484222325ull;
  std::vector<std::unique_ptr<SimulatedThread>> threads_;
  std::vector<Threads> of_node_;
  Threads ready_;                                     // by number; if by_priority_, by priority
  std::unordered_map<const void*, Threads> waiting_;  // by number
  std::set<std::pair<absl::Duration, SimulatedThread*>> timed_;
  std::deque<std::string> notes_;
  std::multimap<absl::Duration, int> crashes_;       // nodes, by when they crash
  std::map<int, absl::Duration> stopped_until_;      // by node
  std::function<void(absl::string_view)> observer_;  // of notes
};

}  // namespace slimps::simulation

#endif  // SLIMPS_PROTO_BASE_SIMULATION_THREAD_SCHEDULER_H_
