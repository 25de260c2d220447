// A timeline of what this process did with every partition, for Chrome's and Perfetto's trace viewers. Off until Start: a
// span then costs one relaxed load.
//
//   TraceLog::Global().Start("worker 0");
//   { TraceSpan span(TraceStage::kEncode, {key_name, partition, round});  ... }      // on this thread's row
//   TraceLog::Global().Add(TraceStage::kSend, {key_name, partition, round}, began, ended);   // over threads: a row of its own
//   SLIMPS_RETURN_IF_ERROR(TraceLog::Global().WriteTo("worker-0.json"));
#ifndef SLIMPS_PROTO_BASE_TRACE_H_
#define SLIMPS_PROTO_BASE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

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
  absl::Time began, ended;
};

// Thread-safe.
class TraceLog final {
 public:
  static TraceLog& Global();

  // Begins recording, at most `max_events`; what comes later is counted, not kept.
  void Start(std::string_view process_name, size_t max_events = size_t{1} << 20);
  bool on() const;
  void Stop();
  // How far this process's clock is ahead of the job's (the scheduler's); taken off when written.
  void SetClockOffset(absl::Duration ahead);

  void Add(TraceStage stage, const TraceSubject& subject, absl::Time began, absl::Time ended);
  // Everything recorded, in order of beginning.
  std::vector<TraceEvent> Events() const;
  uint64_t dropped() const;
  // As Chrome's JSON trace format, complete events ("ph": "X"): one process, one row per stage and thread. Unavailable:
  // cannot be written, with the path and why.
  [[nodiscard]] absl::Status WriteTo(const std::string& path) const;

 private:
  friend class TraceSpan;
  TraceLog();
  ~TraceLog();
  void AddOfThread(TraceStage stage, const TraceSubject& subject, absl::Time began,
                   absl::Time ended);

  struct State;
  const std::unique_ptr<State> state_;
};

// From its construction to its destruction, on this thread. `subject.key` must outlive it.
class TraceSpan final {
 public:
  TraceSpan(TraceStage stage, const TraceSubject& subject);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const TraceStage stage_;
  const TraceSubject subject_;
  absl::Time began_ = absl::InfinitePast();  // not recorded
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_TRACE_H_
