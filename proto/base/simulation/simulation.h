// SPDX-License-Identifier: Apache-2.0
// Runs real code under a scheduler of threads and time that follows a seed, so that whatever
// happens once can be repeated. One thread runs at a time. At each choice point (a lock, a wait, a
// notification, a start) the seed says who goes on. Time is virtual: it costs a little at each
// choice point, and it moves on when all threads wait.
//
//   const Outcome outcome = Run({.seed = 7}, [] { ... whatever starts Threads ... });
//
// The seams of threads, mutexes and clocks (proto/base) come here in programs that --config=sim
// builds. In others Active() is a constant, false, and nothing here costs anything.
//
// Half of the seeds choose at random; the others give each thread a random priority and change it
// at few points, which finds rare orders of few events (Burckhardt et al., "A randomized scheduler
// with probabilistic guarantees of finding bugs", ASPLOS 2010).
#ifndef SLIMPS_PROTO_BASE_SIMULATION_SIMULATION_H_
#define SLIMPS_PROTO_BASE_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slimps::simulation {

#ifdef SLIMPS_SIMULATION

struct Options {
  uint64_t seed = 1;
  absl::Duration horizon = absl::Hours(1);  // of virtual time: what still runs then runs for ever
  uint64_t most_steps = 20'000'000;         // choices: a loop that waits for nothing is found
  uint64_t expected_steps = 20'000;         // those within which priorities change
  bool trace = false;                       // to stderr: each choice and each Note
};

struct Outcome {
  uint64_t steps = 0;
  uint64_t trace_hash = 0;  // of all choices: equal for equal runs
  absl::Duration took;      // virtual
};

// Runs `body` as the first thread, and returns when all threads have ended. One run in a process.
// If threads wait for ever, or the options' bounds are passed, it prints who waits for what and
// ends the process by Fail.
Outcome Run(const Options& options, const std::function<void()>& body);

// Says why the run has failed, where each thread stands and what was noted last, and ends the
// process with status kFailed.
[[noreturn]] void Fail(absl::string_view why);
inline constexpr int kFailed = 3;

// True on the threads of a run. The functions below are for these threads alone.
bool Active();

absl::Duration Now();  // since the run's begin

// A number from the seed.
uint64_t Random();

// A choice point. `what` is for the trace.
void Choose(absl::string_view what);

// Puts a line into the trace and its hash.
void Note(absl::string_view line);

// Lets virtual time pass for work that others need not wait for.
void Sleep(absl::Duration duration);

// Waits until WakeOne or WakeAll of the same object, or until a time. Returns false at that time.
bool Block(const void* object, absl::string_view what, absl::Duration until);
void WakeOne(const void* object);
void WakeAll(const void* object);

// As std::mutex's, for a mutex that is this `owner`: 0, or the number of the thread that holds it.
void Lock(int* owner);
bool TryLock(int* owner);
void Unlock(int* owner);

// Starts a node: a thread, and the threads that it and they start. They can crash together. Returns
// the node's number; other threads of the run are of node 0.
int StartNode(absl::string_view name, std::function<void()> body);
// Crashes the node of this thread at the first choice point of any thread from a time on. Its
// threads never go on, and its memory is left as it is. So it must not hold a mutex of another node
// at a choice point.
void CrashThisNode(absl::Duration when);
// Waits until the node's first thread has ended. Returns false if the node has crashed.
bool AwaitNode(int node);

// Starts a thread of the run, of the same node as the thread that starts it.
std::thread StartThread(absl::string_view name, std::function<void()> body);
// Waits for its end. The thread of the system stays, asleep, so that nothing runs beside the run.
void AwaitThread(std::thread::id id);

#else

inline constexpr bool Active() { return false; }
inline absl::Duration Now() { return absl::ZeroDuration(); }
inline uint64_t Random() { return 0; }
inline bool Block(const void*, absl::string_view, absl::Duration) { return true; }
inline void WakeAll(const void*) {}
inline void Note(absl::string_view) {}
inline std::thread StartThread(absl::string_view, std::function<void()>) { return {}; }
inline void AwaitThread(std::thread::id) {}

#endif

}  // namespace slimps::simulation

#endif  // SLIMPS_PROTO_BASE_SIMULATION_SIMULATION_H_
