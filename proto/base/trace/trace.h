// SPDX-License-Identifier: Apache-2.0
// A timeline of what this process did with every partition, for the trace viewers of Chrome and
// Perfetto. It is off until Start; a span then costs one relaxed load.
//
//   TraceLog::Global().Start("worker 0");
//   { TraceSpan span(TraceStage::kEncode, {key_name, partition, round});  ... }  // on this thread
//   TraceLog::Global().Add(TraceStage::kSend, subject, began, ended);            // on its own row
//   SLIMPS_RETURN_IF_ERROR(TraceLog::Global().WriteTo("worker-0.json"));
//
// The log is one for the whole process, because every layer writes to it. It controls nothing.
#ifndef SLIMPS_PROTO_BASE_TRACE_TRACE_H_
#define SLIMPS_PROTO_BASE_TRACE_TRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// The stages of a tensor's journey (the table in README.md), the worker's first.
enum class TraceStage : uint8_t {
  kCompute,      // forward and backward pass
  kWait,         // a training loop waits for weights
  kCopy,         // device to grad_buf
  kEncode,       // grad_buf to fp_buf or bit_buf
  kSend,         // a push, from its first byte handed over to its acknowledgement
  kPull,         // a pull, from its request to its answer
  kDecode,       // an answer into glo_buf
  kLocalUpdate,  // backup model: glo_buf and gradient to loc_buf
  kAggregate,    // server: sum, optimizer and encoded change of one round
  kReply,        // server: an answer to a pull, from ready to handed over
  kDecide,       // a policy's decision has come: its reason, and the round from which it holds
  // Not of a tensor: `key` is what the viewer shows. First those of a training script.
  kForward,   // a model's forward pass
  kBackward,  // a backward pass
  kStep,      // an optimizer's step
  kCall,      // a call of the store
  kPhase,     // scheduler: a phase of the job
  kNews,      // scheduler: what it has logged
};

inline constexpr size_t kTraceStages = static_cast<size_t>(TraceStage::kNews) + 1;

// Returns the stage's name in the viewer, such as "encode".
std::string_view TraceStageName(TraceStage stage);

// True if events of the stage are about a partition, or about a whole tensor.
inline bool IsOfTensor(TraceStage stage) { return stage < TraceStage::kDecide; }

struct TraceSubject {
  std::string_view key;  // the typed name; it is copied when recorded
  uint32_t partition = 0;
  uint64_t round = 0;
  uint64_t elements = 0;  // of the partition; kCopy: the tensor's; 0: the event does not say
};

struct TraceEvent {
  TraceStage stage = TraceStage::kCompute;
  std::string key;
  uint32_t partition = 0;
  uint64_t round = 0;
  uint64_t elements = 0;
  uint32_t thread = 0;    // threads are numbered as they first record
  bool of_thread = true;  // false for spans of Add, which belong to no thread
  SteadyTime began, ended;
};

// Thread-safe.
class TraceLog final {
 public:
  static TraceLog& Global();

  // Begins a new recording of at most `max_events` events. Further events are counted, not kept.
  // Spans read `clock`.
  // REQUIRES: `clock` is never destroyed.
  void Start(std::string_view process_name, size_t max_events = size_t{1} << 20,
             const Clock* clock = MachineClock());

  // Keeps the newest kWatchedEvents events of each thread, if of its first kWatchedKeys keys, for
  // somebody who looks at them while the process runs. Does nothing once a recording was begun
  // by Start.
  // REQUIRES: `clock` is never destroyed.
  static constexpr size_t kWatchedEvents = 2048, kWatchedKeys = 4096;
  void Watch(const Clock* clock = MachineClock());

  // Ends what Watch began. A recording that Start began goes on.
  void EndWatch();

  // True from Start to Stop.
  bool recording() const;

  // True while spans are kept, for Start or for Watch. Publishes nothing: a thread that sees it
  // late misses an event.
  bool on() const { return clock_.load(std::memory_order_relaxed) != nullptr; }

  // Returns the time of the clock that spans read; InfinitePast when off.
  SteadyTime Now() const {
    const Clock* const clock = clock_.load(std::memory_order_relaxed);
    return clock == nullptr ? SteadyTime::InfinitePast() : clock->Now();
  }

  // Stops recording. What was recorded stays until the next Start.
  void Stop();

  // Replaces the process name that Start set for the viewer. A node learns its rank late.
  void SetProcessName(std::string_view process_name);

  // Sets the job's time. It is the scheduler's wall time, which aligns the traces of all processes.
  // Until this is called it is this machine's wall clock at Start.
  void SetJobTime(const WallAnchor& job_time);

  // Records a span that belongs to no thread. Does nothing when off.
  void Add(TraceStage stage, const TraceSubject& subject, SteadyTime began, SteadyTime ended) {
    if (on()) Record(stage, subject, began, ended, Row::kShared);
  }

  // Records a span on this thread's row, as TraceSpan does, for a caller that has the times. Does
  // nothing when off.
  void AddOfThread(TraceStage stage, const TraceSubject& subject, SteadyTime began,
                   SteadyTime ended) {
    if (on()) Record(stage, subject, began, ended, Row::kOfThread);
  }

  // Returns all that was recorded, in order of beginning.
  std::vector<TraceEvent> Events() const { return EventsSince(SteadyTime::InfinitePast()); }

  // Returns what was recorded since `when` or a little before, in order of beginning.
  std::vector<TraceEvent> EventsSince(SteadyTime when) const;

  // Returns how many events were not kept.
  uint64_t dropped() const;

  // Writes Chrome's JSON trace format with complete events ("ph": "X"): one process, one row for
  // each stage and thread. Spans of Add get as many rows per stage as overlapped at a time.
  // Unavailable: the file cannot be written; the message says the path and why. The old file stays.
  [[nodiscard]] absl::Status WriteTo(const std::string& path) const;

 private:
  friend class TraceSpan;
  enum class Row : uint8_t { kOfThread, kShared };
  struct Buffer;
  struct State;
  TraceLog();
  ~TraceLog();
  Buffer& OwnBuffer();
  void Record(TraceStage stage, const TraceSubject& subject, SteadyTime began, SteadyTime ended,
              Row row);

  static inline constinit std::atomic<const Clock*> clock_{nullptr};  // null: off
  const std::unique_ptr<State> state_;
};

// Returns where a node keeps its part of a job's trace: "out/job.json" becomes
// "out/job.worker0.json", and "out/job", without an extension, becomes "out/job.worker0".
// Thread-safe.
std::string TracePartPath(std::string_view path, std::string_view role, uint32_t rank);

// Checks that a trace can be written at `path`, before the work and not after it. Thread-safe.
// Unavailable: nothing can be written there; the message says why.
[[nodiscard]] absl::Status CheckTracePath(const std::string& path);

// A span from its construction to its destruction, on this thread. Thread-compatible.
// REQUIRES: `subject.key` outlives it.
class TraceSpan final {
 public:
  TraceSpan(TraceStage stage, const TraceSubject& subject) : stage_(stage), subject_(subject) {
    if (const Clock* const clock = TraceLog::clock_.load(std::memory_order_relaxed)) {
      began_ = clock->Now();
    }
  }
  ~TraceSpan() {
    if (began_ != SteadyTime::InfinitePast()) Finish();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void Finish() const;

  const TraceStage stage_;
  const TraceSubject subject_;
  SteadyTime began_ = SteadyTime::InfinitePast();  // InfinitePast: not recorded
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_TRACE_TRACE_H_
