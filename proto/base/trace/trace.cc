// SPDX-License-Identifier: Apache-2.0
#include "proto/base/trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iterator>
#include <ostream>
#include <ranges>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "proto/base/file.h"
#include "proto/base/mutex.h"
#include "proto/base/trace/trace_json.h"

namespace slimps {
namespace {

constexpr std::array<std::string_view, kTraceStages> kStageNames = {
    "compute",  "wait",         "copy",      "encode", "send",   "pull",
    "decode",   "local_update", "aggregate", "reply",  "decide", "forward",
    "backward", "step",         "call",      "phase",  "news"};

// Returns this thread's name; "" if it was not named (it then has the program's name, which says
// nothing).
std::string NameOfThisThread() {
  if (gettid() == getpid()) return "main";
  char name[16] = "";
  if (pthread_getname_np(pthread_self(), name, sizeof(name)) != 0) return "";
  const std::string_view program = program_invocation_short_name;
  return program.substr(0, sizeof(name) - 1) == name ? "" : name;
}

// Makes an error say "cannot write trace PATH: REASON".
absl::Status OfTrace(const absl::Status& written) {
  if (written.ok()) return written;
  constexpr std::string_view kCannotWrite = "cannot write ";
  const std::string why(written.message().substr(kCannotWrite.size()));
  return absl::Status(written.code(), absl::StrCat(std::string(kCannotWrite), "trace ", why));
}

// Lets a map of strings be searched for a text without making a string of it.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

}  // namespace

std::string_view TraceStageName(TraceStage stage) {
  return kStageNames[static_cast<size_t>(stage)];
}

// What one thread recorded. Only that thread appends. Others read rarely, so its lock is nearly
// always free.
struct TraceLog::Buffer {
  struct Entry {
    SteadyTime began, ended;
    uint64_t round;
    uint64_t elements;
    uint32_t key;
    uint32_t partition;
    TraceStage stage;
    Row row;
  };
  uint32_t number = 0;
  std::string thread_name;
  Mutex mutex;
  std::deque<Entry> entries ABSL_GUARDED_BY(mutex);
  std::vector<std::string> keys ABSL_GUARDED_BY(mutex);  // each text once
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> key_numbers
      ABSL_GUARDED_BY(mutex);
};

// Lock order: the State's mutex, then a Buffer's.
struct TraceLog::State {
  // Counts Starts. A thread whose buffer belongs to an earlier Start takes a new one.
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> max_events{0};
  std::atomic<bool> watched{false};  // only the newest events are kept
  std::atomic<uint64_t> offered{0};  // events, kept or dropped
  mutable Mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers ABSL_GUARDED_BY(mutex);
  bool recorded ABSL_GUARDED_BY(mutex) = false;  // what Start began may be written yet
  std::string process_name ABSL_GUARDED_BY(mutex);
  WallAnchor job_time ABSL_GUARDED_BY(mutex);
};

TraceLog::TraceLog() : state_(std::make_unique<State>()) {}
TraceLog::~TraceLog() = default;

TraceLog& TraceLog::Global() {
  // Never destroyed, because threads may record until the process ends.
  static TraceLog* const log = new TraceLog();
  return *log;
}

void TraceLog::Start(std::string_view process_name, size_t max_events, const Clock* clock) {
  MutexLock lock(&state_->mutex);
  clock_ = nullptr;
  state_->watched = false;
  state_->recorded = true;
  state_->process_name = process_name;
  state_->buffers.clear();
  state_->max_events = max_events;
  state_->offered = 0;
  state_->job_time = ReadAnchor(*clock);
  ++state_->generation;
  clock_ = clock;
}

bool TraceLog::recording() const {
  MutexLock lock(&state_->mutex);
  return on() && !state_->watched;
}

void TraceLog::Stop() {
  MutexLock lock(&state_->mutex);
  clock_ = nullptr;
  if (state_->buffers.empty()) state_->recorded = false;
}

void TraceLog::Watch(const Clock* clock) {
  MutexLock lock(&state_->mutex);
  // Not `buffers`: a thread that saw the log on may have added one since EndWatch.
  if (on() || state_->recorded) return;
  state_->buffers.clear();
  state_->watched = true;
  ++state_->generation;
  clock_ = clock;
}

void TraceLog::EndWatch() {
  MutexLock lock(&state_->mutex);
  if (!state_->watched.exchange(false)) return;
  clock_ = nullptr;
  state_->buffers.clear();
}

void TraceLog::SetProcessName(std::string_view process_name) {
  MutexLock lock(&state_->mutex);
  state_->process_name = process_name;
}

void TraceLog::SetJobTime(const WallAnchor& job_time) {
  MutexLock lock(&state_->mutex);
  state_->job_time = job_time;
}

TraceLog::Buffer& TraceLog::OwnBuffer() {
  struct Slot {
    uint64_t generation = 0;
    std::shared_ptr<Buffer> buffer;  // shared with the log, where it outlives the thread
  };
  thread_local Slot slot;
  const uint64_t generation = state_->generation;
  if (slot.generation == generation) return *slot.buffer;
  auto buffer = std::make_shared<Buffer>();
  buffer->thread_name = NameOfThisThread();
  MutexLock lock(&state_->mutex);
  // Whoever watches has seen what threads did that are over.
  const auto is_over = [](const std::shared_ptr<Buffer>& one) { return one.use_count() == 1; };
  if (state_->watched) std::erase_if(state_->buffers, is_over);
  buffer->number = static_cast<uint32_t>(state_->buffers.size());
  state_->buffers.push_back(buffer);
  slot = {state_->generation, std::move(buffer)};
  return *slot.buffer;
}

void TraceLog::Record(TraceStage stage, const TraceSubject& subject, SteadyTime began,
                      SteadyTime ended, Row row) {
  const bool watched = state_->watched.load(std::memory_order_relaxed);
  if (!watched && state_->offered.fetch_add(1, std::memory_order_relaxed) >=
                      state_->max_events.load(std::memory_order_relaxed)) {
    return;
  }
  Buffer& buffer = OwnBuffer();
  MutexLock lock(&buffer.mutex);
  auto known = buffer.key_numbers.find(subject.key);
  if (known == buffer.key_numbers.end()) {
    if (watched && buffer.keys.size() == kWatchedKeys) return;
    buffer.keys.emplace_back(subject.key);
    known = buffer.key_numbers.emplace(subject.key, buffer.keys.size() - 1).first;
  }
  buffer.entries.push_back({.began = began,
                            .ended = std::max(began, ended),
                            .round = subject.round,
                            .elements = subject.elements,
                            .key = known->second,
                            .partition = subject.partition,
                            .stage = stage,
                            .row = row});
  if (watched && buffer.entries.size() > kWatchedEvents) buffer.entries.pop_front();
}

std::vector<TraceEvent> TraceLog::EventsSince(SteadyTime when) const {
  std::vector<TraceEvent> events;
  MutexLock lock(&state_->mutex);
  for (const std::shared_ptr<Buffer>& buffer : state_->buffers) {
    MutexLock buffer_lock(&buffer->mutex);
    // A thread's spans are added as they end, so the rest of them ended before too.
    auto first = buffer->entries.cend();
    while (first != buffer->entries.cbegin() && std::prev(first)->ended >= when) --first;
    for (const Buffer::Entry& entry : std::ranges::subrange(first, buffer->entries.cend())) {
      events.push_back({.stage = entry.stage,
                        .key = buffer->keys[entry.key],
                        .partition = entry.partition,
                        .round = entry.round,
                        .elements = entry.elements,
                        .thread = buffer->number,
                        .of_thread = entry.row == Row::kOfThread,
                        .began = entry.began,
                        .ended = entry.ended});
    }
  }
  // If two begin together, the longer one comes first: it encloses the other.
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.began != b.began ? a.began < b.began : a.ended > b.ended;
  });
  return events;
}

uint64_t TraceLog::dropped() const {
  const uint64_t offered = state_->offered, kept = state_->max_events;
  return offered > kept ? offered - kept : 0;
}

absl::Status TraceLog::WriteTo(const std::string& path) const {
  TraceRecording recording{.pid = static_cast<uint32_t>(getpid()), .events = Events()};
  recording.dropped = dropped();
  {
    MutexLock lock(&state_->mutex);
    recording.process_name = state_->process_name;
    recording.job_time = state_->job_time;
    for (const auto& buffer : state_->buffers)
      recording.thread_names.push_back(buffer->thread_name);
  }
  FileWriter writer(path);
  FileStreamBuffer buffer(&writer);
  std::ostream out(&buffer);
  if (writer.status().ok()) WriteTraceJson(recording, &out);
  out.flush();
  return OfTrace(writer.Commit());
}

std::string TracePartPath(std::string_view path, std::string_view role, uint32_t rank) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string_view::npos ? 0 : slash + 1;
  size_t dot = path.rfind('.');
  // A dot at the start of the name (".json") begins no extension.
  if (dot == std::string_view::npos || dot <= name) dot = path.size();
  std::string part(path);
  return part.insert(dot, absl::StrCat(".", std::string(role), rank));
}

absl::Status CheckTracePath(const std::string& path) { return OfTrace(CheckWritable(path)); }

void TraceSpan::Finish() const {
  const Clock* const clock = TraceLog::clock_.load(std::memory_order_relaxed);
  if (clock == nullptr) return;
  TraceLog::Global().Record(stage_, subject_, began_, clock->Now(), TraceLog::Row::kOfThread);
}

}  // namespace slimps
