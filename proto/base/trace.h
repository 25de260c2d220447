// A timeline of what this process did with every partition, for Chrome's and Perfetto's trace viewers. Off until Start: a
// span then costs one relaxed load.
//
//   TraceLog::Global().Start("worker 0");
//   { TraceSpan span(TraceStage::kEncode, {key_name, partition, round});  ... }      // on this thread's row
//   TraceLog::Global().Add(TraceStage::kSend, {key_name, partition, round}, began, ended);   // over threads: a row of its own
//   SLIMPS_RETURN_IF_ERROR(TraceLog::Global().WriteTo("worker-0.json"));
//
// A log of the whole process, since what it is told comes from every layer; it steers nothing.
#ifndef SLIMPS_PROTO_BASE_TRACE_H_
#define SLIMPS_PROTO_BASE_TRACE_H_

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

// What a tensor's journey consists of (README's table), worker's stages first.
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
};

inline constexpr size_t kTraceStages = static_cast<size_t>(TraceStage::kReply) + 1;

// The name in the viewer: "encode".
std::string_view TraceStageName(TraceStage stage);

struct TraceSubject {
  std::string_view key;  // typed name; copied when recorded
  uint32_t partition = 0;
  uint64_t round = 0;
};

struct TraceEvent {
  TraceStage stage = TraceStage::kCompute;
  std::string key;
  uint32_t partition = 0;
  uint64_t round = 0;
  uint32_t thread = 0;  // numbered as they first record; spans of Add are not of one thread
  bool of_thread = true;
  SteadyTime began, ended;
};

// Thread-safe.
class TraceLog final {
 public:
  static TraceLog& Global();

  // Begins recording anew, at most `max_events`; what comes later is counted, not kept. Spans read `clock`, which is never
  // destroyed.
  void Start(std::string_view process_name, size_t max_events = size_t{1} << 20,
             const Clock* clock = MachineClock());
  // Publishes nothing: whoever sees it late misses an event.
  bool on() const { return clock_.load(std::memory_order_relaxed) != nullptr; }
  // Of the clock that spans read; InfinitePast when off.
  SteadyTime Now() const {
    const Clock* const clock = clock_.load(std::memory_order_relaxed);
    return clock == nullptr ? SteadyTime::InfinitePast() : clock->Now();
  }
  // What was recorded stays, until the next Start.
  void Stop();
  // A node learns its rank late. The process's name in the viewer, as Start's.
  void SetProcessName(std::string_view process_name);
  // What time it was for the job (for the scheduler, whose wall time puts all processes' traces together). Until then:
  // what this machine's wall clock said at Start.
  void SetJobTime(const WallAnchor& job_time);

  // Does nothing when off.
  void Add(TraceStage stage, const TraceSubject& subject, SteadyTime began, SteadyTime ended) {
    if (on()) Record(stage, subject, began, ended, Row::kShared);
  }
  // As a TraceSpan, for who has the times: on this thread's row.
  void AddOfThread(TraceStage stage, const TraceSubject& subject, SteadyTime began,
                   SteadyTime ended) {
    if (on()) Record(stage, subject, began, ended, Row::kOfThread);
  }
  // Everything recorded, in order of beginning.
  std::vector<TraceEvent> Events() const;
  uint64_t dropped() const;
  // As Chrome's JSON trace format, complete events ("ph": "X"): one process, one row per stage and thread, and for spans of
  // Add as many per stage as were under way at once. Unavailable: cannot be written, with the path and why; what was there
  // stays.
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

// Where a node keeps its part of a job's trace: "out/job.json" becomes "out/job.worker0.json"; without an extension,
// "out/job" becomes "out/job.worker0".
std::string TracePartPath(std::string_view path, std::string_view role, uint32_t rank);
// Unavailable: nothing can be written beside `path`, and why. Told before the work, not after it.
[[nodiscard]] absl::Status CheckTracePath(const std::string& path);

// From its construction to its destruction, on this thread. `subject.key` must outlive it.
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
  SteadyTime began_ = SteadyTime::InfinitePast();  // not recorded
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_TRACE_H_
