// SPDX-License-Identifier: Apache-2.0
// Measures codecs with Google Benchmark and compares them with what memory allows.
// `tools/slimps bench codec` runs it.
//
// An iteration of a benchmark is one series of runs of the operation and one of its reference. They
// take turns, so that other load on the machine affects both. The figures are medians over
// iterations.
#include <benchmark/benchmark.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/file.h"
#include "proto/base/status_copy.h"
#include "tools/bench/codec/cases.h"
#include "tools/bench/codec/model_table.h"
#include "tools/bench/codec/report.h"
#include "tools/bench/codec/subjects.h"
#include "tools/bench/models/models.h"
#include "tools/bench/stopwatch.h"

DEFINE_string(codecs, "", "labels or specs; all if empty");
DEFINE_string(ops, "",
              "encode_ef, encode, decode_add, aggregate, levels, phases; all but phases if empty");
DEFINE_string(elements, "", "sizes, such as 64Ki,1Mi; 64Ki,256Ki,1Mi,16Mi if empty");
DEFINE_string(threads, "", "numbers of threads; 1 if empty");
DEFINE_string(isa, "", "scalar, avx2, avx512; avx2 and the best that runs here if empty");
DEFINE_string(workers, "", "payloads that aggregate sums; 1,2,4,8,16 if empty");
DEFINE_bool(matrix, false, "tensors are matrices, as codecs of low rank see them; else vectors");
DEFINE_bool(quick, false, "64Ki elements and short series, to see that it works");
DEFINE_string(table, "",
              "a model, such as resnet50: that one's whole gradient instead of single tensors");
DEFINE_string(json, "", "file to write");

namespace slimps {
namespace {

// A series is long enough for the clock's resolution and, for data in cache, to make the first
// run's cache misses not count.
constexpr double kSeriesSeconds = 3e-4;
constexpr double kMinSeconds = 0.25;  // of each measurement
constexpr double kQuickSeconds = 0.01;
constexpr int kModelRounds = 9;

size_t RunsPerSeries(double seconds) {
  return seconds >= kSeriesSeconds ? 1 : static_cast<size_t>(kSeriesSeconds / seconds) + 1;
}

// What benchmarks share: memory, teams of threads, and the current subject.
class Stage final {
 public:
  explicit Stage(size_t max_elements) : data_(max_elements) {}

  // Returns the subject of a case. Google Benchmark calls a benchmark several times to find the
  // number of iterations, so the subject is kept until another case comes.
  absl::StatusOr<Subject*> Enter(size_t index, const Case& c) {
    if (subject_ == nullptr || index != index_) {
      subject_ = nullptr;  // destroyed before the next subject uses its memory
      std::unique_ptr<Team>& team = teams_[c.threads];
      if (team == nullptr) team = std::make_unique<Team>(c.threads);
      absl::StatusOr<std::unique_ptr<Subject>> made = MakeSubject(c, *team, data_);
      if (!made.ok()) return made.status();
      subject_ = *std::move(made);
      index_ = index;
    }
    return subject_.get();
  }

 private:
  BenchData data_;
  std::map<int, std::unique_ptr<Team>> teams_;
  std::unique_ptr<Subject> subject_;
  size_t index_ = 0;
};

void Measure(benchmark::State& state, Stage& stage, size_t index, const Case& c) {
  const absl::StatusOr<Subject*> entered = stage.Enter(index, c);
  if (!entered.ok()) return state.SkipWithError(entered.status().ToString().c_str());
  Subject& subject = **entered;
  absl::Status status;
  const auto run = [&] { status.Update(subject.Run()); };
  const auto reference = [&] { subject.RunReference(); };
  const size_t runs = RunsPerSeries(TimeRuns(c.threads, 1, run)),
               references = RunsPerSeries(TimeRuns(c.threads, 1, reference));
  std::vector<double> seconds, reference_seconds;
  for (auto iteration : state) {
    subject.Settle();
    if (runs > 1) run();  // brings the data back into the cache
    seconds.push_back(TimeRuns(c.threads, runs, run));
    if (references > 1) reference();
    reference_seconds.push_back(TimeRuns(c.threads, references, reference));
    state.SetIterationTime(seconds.back() * static_cast<double>(runs));
  }
  if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
  const auto gbps = [](size_t bytes, const std::vector<double>& times) {
    return static_cast<double>(bytes) / Median(times) / 1e9;
  };
  state.counters["gbps"] = gbps(subject.gradient_bytes(), seconds);
  state.counters["reference_gbps"] = gbps(subject.reference_bytes(), reference_seconds);
  state.counters["payload_bytes"] = static_cast<double>(subject.payload_bytes());
  state.counters["sent_fraction"] = subject.sent_fraction();
}

// Collects the measurements and prints the progress.
class Gatherer final : public benchmark::BenchmarkReporter {
 public:
  explicit Gatherer(const std::vector<Case>& cases) : cases_(cases) {}

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const Case& c = cases_[done_++];
      std::fprintf(stderr, "[%zu/%zu] %s: ", done_, cases_.size(), c.Name().c_str());
      if (run.error_occurred) {
        std::fprintf(stderr, "failed: %s\n", run.error_message.c_str());
        failed_ = true;
        continue;
      }
      const auto counter = [&](const char* name) { return run.counters.at(name).value; };
      const Measurement m = {.measured = c,
                             .gbps = counter("gbps"),
                             .reference_gbps = counter("reference_gbps"),
                             .payload_bytes = static_cast<size_t>(counter("payload_bytes")),
                             .sent_fraction = counter("sent_fraction")};
      std::fprintf(stderr, "%.2f GB/s, %.2f of the reference\n", m.gbps, m.gbps / m.reference_gbps);
      measurements_.push_back(m);
    }
  }

  const std::vector<Measurement>& measurements() const { return measurements_; }
  bool failed() const { return failed_; }

 private:
  const std::vector<Case>& cases_;
  size_t done_ = 0;
  std::vector<Measurement> measurements_;
  bool failed_ = false;
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_codec: %s\n", std::string(status.message()).c_str());
  return 2;
}

absl::Status Write(const std::string& text) {
  return FLAGS_json.empty() ? absl::OkStatus() : WriteFileDurably(FLAGS_json, text);
}

// Checks that the file can be written, before minutes are spent on figures that would be lost. Does
// not change the file's contents.
absl::Status CheckJson() {
  if (FLAGS_json.empty()) return absl::OkStatus();
  return Prefixed(CheckWritable(FLAGS_json), "--json");
}

void WarnOfThreads(int threads) {
  if (static_cast<unsigned>(threads) <= std::thread::hardware_concurrency()) return;
  std::fprintf(stderr, "bench_codec: %d threads asked for; this machine has %u cores\n", threads,
               std::thread::hardware_concurrency());
}

CaseLists Lists() {
  return {.codecs = FLAGS_codecs,
          .operations = FLAGS_ops,
          .elements = FLAGS_elements,
          .threads = FLAGS_threads,
          .isa = FLAGS_isa,
          .workers = FLAGS_workers,
          .quick = FLAGS_quick,
          .matrix = FLAGS_matrix};
}

int MeasureCases() {
  const absl::StatusOr<std::vector<Case>> cases = MakeCases(Lists());
  if (!cases.ok()) return Fail(cases.status());
  const absl::Status writable = CheckJson();
  if (!writable.ok()) return Fail(writable);
  size_t max_elements = 0;
  for (const Case& c : *cases) max_elements = std::max(max_elements, c.elements);
  for (const Case& c : *cases) WarnOfThreads(c.threads);
  Stage stage(max_elements);
  for (size_t i = 0; i < cases->size(); ++i) {
    const Case& c = (*cases)[i];
    benchmark::RegisterBenchmark(
        c.Name().c_str(), [&stage, i, &c](benchmark::State& state) { Measure(state, stage, i, c); })
        ->UseManualTime()
        ->MinTime(FLAGS_quick ? kQuickSeconds : kMinSeconds)
        ->Unit(benchmark::kMillisecond);
  }
  Gatherer gatherer(*cases);
  benchmark::RunSpecifiedBenchmarks(&gatherer);
  const absl::Status written = Write(ReportJson(gatherer.measurements()));
  if (!written.ok()) return Fail(written);
  return gatherer.failed() ? 1 : 0;
}

// Measures the whole gradient of a model: for each codec one row with drawn numbers and one with
// what was recorded.
int MeasureModel() {
  const absl::StatusOr<std::vector<Case>> cases = MakeModelCases(FLAGS_table, Lists());
  if (!cases.ok()) return Fail(cases.status());
  const absl::Status writable = CheckJson();
  if (!writable.ok()) return Fail(writable);
  const absl::StatusOr<ModelShape> model = FindModel(FLAGS_table);
  if (!model.ok()) return Fail(model.status());
  const std::vector<ModelTensor>& tensors = model->tensors;
  std::vector<ModelMeasurement> measurements;
  bool failed = false;
  size_t done = 0;
  for (const GradientSource source : {GradientSource::kDrawn, GradientSource::kRecorded}) {
    BenchData data = ModelData(tensors, source);
    for (const Case& c : *cases) {
      WarnOfThreads(c.threads);
      const Team team(c.threads);
      const auto times =
          TimeModel(tensors, c.setting, *c.kernels, team, FLAGS_quick ? 1 : kModelRounds, data);
      std::fprintf(stderr, "[%zu/%zu] %s, %s: ", ++done, 2 * cases->size(), c.setting.label.c_str(),
                   std::string(GradientName(source)).c_str());
      if (!times.ok()) {
        std::fprintf(stderr, "failed: %s\n", times.status().ToString().c_str());
        failed = true;
        continue;
      }
      std::fprintf(stderr, "encode %.1f ms, decode %.1f ms\n", 1e3 * times->encode_seconds,
                   1e3 * times->decode_seconds);
      measurements.push_back({c, source, *times});
    }
  }
  const absl::Status written = Write(ModelReportJson(FLAGS_table, SizeOf(tensors), measurements));
  if (!written.ok()) return Fail(written);
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  gflags::SetUsageMessage("measures codecs; see tools/slimps bench codec --help");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (argc > 1) {
    std::fprintf(stderr, "bench_codec: unexpected argument '%s'\n", argv[1]);
    return 2;
  }
  return FLAGS_table.empty() ? slimps::MeasureCases() : slimps::MeasureModel();
}
