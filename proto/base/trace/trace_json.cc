// SPDX-License-Identifier: Apache-2.0
#include "proto/base/trace/trace_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace slimps {
namespace {

// A row of the viewer: a stage on one thread, or one of the lanes that hold its shared spans.
struct Row {
  TraceStage stage = TraceStage::kCompute;
  bool of_thread = true;
  size_t index = 0;  // the thread's number, or the lane
  friend auto operator<=>(const Row& a, const Row& b) {
    return std::tie(a.stage, a.of_thread, a.index) <=> std::tie(b.stage, b.of_thread, b.index);
  }
};

// Gives each shared span the first lane that is free. Spans of one row must not overlap, because
// viewers would draw nonsense.
class Lanes final {
 public:
  size_t Place(const TraceEvent& event) {
    std::vector<SteadyTime>& lanes = free_from_[static_cast<size_t>(event.stage)];
    const auto lane = std::find_if(lanes.begin(), lanes.end(),
                                   [&](SteadyTime free) { return free <= event.began; });
    const size_t index = static_cast<size_t>(lane - lanes.begin());
    if (lane == lanes.end()) lanes.emplace_back();
    lanes[index] = event.ended;
    return index;
  }

 private:
  std::vector<SteadyTime> free_from_[kTraceStages];
};

std::vector<Row> RowsOf(const std::vector<TraceEvent>& events) {
  Lanes lanes;
  std::vector<Row> rows;
  rows.reserve(events.size());
  for (const TraceEvent& event : events) {
    rows.push_back(
        {event.stage, event.of_thread, event.of_thread ? event.thread : lanes.Place(event)});
  }
  return rows;
}

std::string NameOf(const Row& row, const std::vector<std::string>& thread_names) {
  const std::string stage(TraceStageName(row.stage));
  if (!row.of_thread) return row.index == 0 ? stage : absl::StrCat(stage, " ", row.index + 1);
  const bool named = row.index < thread_names.size() && !thread_names[row.index].empty();
  return absl::StrCat(stage, " (",
                      named ? thread_names[row.index] : absl::StrCat("thread ", row.index), ")");
}

// Returns the text in quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Quotes each text once, because names repeat in every round.
class QuotedTexts final {
 public:
  const std::string& operator()(const std::string& text) {
    const auto [found, is_new] = quoted_.try_emplace(text);
    if (is_new) found->second = JsonText(text);
    return found->second;
  }

 private:
  std::unordered_map<std::string, std::string> quoted_;
};

std::string Microseconds(int64_t nanoseconds) {
  const char* const sign = nanoseconds < 0 ? "-" : "";
  const int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return absl::StrFormat("%s%d.%03d", sign, size / 1000, size % 1000);
}

void WriteMetadata(const char* what, uint32_t pid, size_t tid, const std::string& args,
                   std::ostream* out) {
  *out << absl::StrFormat(R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{%s}})", what, pid, tid,
                          args);
}

std::string EventName(const TraceEvent& event) {
  if (event.key.empty()) return std::string(TraceStageName(event.stage));
  if (!IsOfTensor(event.stage)) return event.key;
  return absl::StrCat(event.key, "[", event.partition, "]");
}

}  // namespace

void WriteTraceJson(const TraceRecording& recording, std::ostream* out) {
  const std::vector<Row> rows = RowsOf(recording.events);
  std::map<Row, size_t> tids;
  for (const Row& row : rows) tids.emplace(row, 0);
  size_t next_tid = 1;
  for (auto& [row, tid] : tids) tid = next_tid++;

  const SteadyTime first =
      recording.events.empty() ? recording.job_time.steady : recording.events.front().began;
  *out << R"({"displayTimeUnit":"ms","otherData":{"process":)" << JsonText(recording.process_name)
       << R"(,"base_unix_ns":")" << absl::ToUnixNanos(recording.job_time.At(first))
       << R"(","dropped":")" << recording.dropped << "\"},\"traceEvents\":[\n";
  const uint32_t pid = recording.pid;
  WriteMetadata("process_name", pid, 0, "\"name\":" + JsonText(recording.process_name), out);
  for (const auto& [row, tid] : tids) {
    *out << ",\n";
    WriteMetadata("thread_name", pid, tid,
                  "\"name\":" + JsonText(NameOf(row, recording.thread_names)), out);
    *out << ",\n";
    WriteMetadata("thread_sort_index", pid, tid, absl::StrCat("\"sort_index\":", tid), out);
  }
  QuotedTexts quoted;
  for (size_t i = 0; i < rows.size(); ++i) {
    const TraceEvent& event = recording.events[i];
    *out << ",\n{\"ph\":\"X\",\"name\":" << quoted(EventName(event)) << R"(,"cat":")"
         << TraceStageName(event.stage) << R"(","ts":)"
         << Microseconds(absl::ToInt64Nanoseconds(event.began - first)) << R"(,"dur":)"
         << Microseconds(absl::ToInt64Nanoseconds(event.ended - event.began)) << R"(,"pid":)" << pid
         << R"(,"tid":)" << tids.find(rows[i])->second << R"(,"args":{"key":)" << quoted(event.key)
         << R"(,"partition":)" << event.partition << R"(,"round":)" << event.round;
    if (event.elements > 0) *out << R"(,"elements":)" << event.elements;
    *out << "}}";
  }
  *out << "\n]}\n";
}

}  // namespace slimps
