// SPDX-License-Identifier: Apache-2.0
// One worker of `tools/slimps bench cluster`: a training job's communication, with simulated
// compute.
//
// It prints "ready" on stdout when its weights are initialised, and goes on when it reads a line
// from stdin (by then the link has been shaped). It prints every change of the compression
// thresholds.
//
// Exit status: 0 measured; 1 failed; 2 wrong usage.
#include <gflags/gflags.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "compress/kernels/kernels.h"
#include "proto/base/buffer.h"
#include "proto/base/file.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/net/zmq/same_host.h"
#include "tools/bench/cluster/cluster_report.h"
#include "tools/bench/cluster/link_meter.h"
#include "tools/bench/cluster/training_loop.h"
#include "tools/bench/codec/references.h"
#include "tools/bench/models/codec_error.h"
#include "tools/bench/models/models.h"
#include "tools/bench/stopwatch.h"
#include "worker/kvstore.h"

DEFINE_string(model, "resnet50", "whose tensors (models.h)");
DEFINE_string(scheduler, "", "tcp://host:port");
DEFINE_string(job_id, "slimps", "name of the job");
DEFINE_int32(num_workers, 1, "of the job");
DEFINE_int32(num_servers, 1, "of the job");
DEFINE_int32(rank, 0, "this worker's");
DEFINE_string(compression, "none", "codec spec of pushes");
DEFINE_string(threshold, "auto",
              "tensors of at least this many fp32 bytes are compressed; auto or none");
DEFINE_string(pull_compression, "none", "codec spec of pulls");
DEFINE_string(pull_threshold, "auto", "as --threshold, of pulls");
DEFINE_string(policy, "threshold",
              "what decides which codec a push uses: threshold, or one that adapts, as "
              "lgreco:codec=topk; it takes no --compression and no --threshold");
DEFINE_int32(pre_steps, 20, "rounds that auto measures");
DEFINE_int32(remeasure_every, 0, "rounds after which auto measures again; 0: never");
DEFINE_bool(coalesce, true, "small tensors together in one message");
DEFINE_bool(prioritise, true, "front layers first");
DEFINE_bool(backup_model, false, "compute while weights are under way, one round of lag");
DEFINE_bool(overlap_forward, false, "each layer waits for its own weights, not the step for all");
DEFINE_string(same_host, "shm", "how to reach the server of this node: tcp, ipc or shm");
DEFINE_double(device_encode_ns, 0, "simulated: an element's encoding on the compute timeline");
DEFINE_int32(encode_threads, 0, "partitions encoded and merged at a time; 0: one per core");
DEFINE_double(compute_ms, 100, "simulated: forward and backward pass of one iteration");
DEFINE_int32(warmup, 2, "iterations before those that count");
DEFINE_int32(iterations, 10, "iterations that count");
DEFINE_string(interface, "lo", "network interface whose traffic counts");
DEFINE_int32(timeout_s, 120, "of one wait");
DEFINE_string(report, "", "file for the figures");
DEFINE_string(trace, "", "file for the timeline, as Chrome's trace viewer reads it");
DEFINE_bool(measure_add, false, "print the bytes per second of d += s, by one thread, and end");
DEFINE_string(describe, "",
              "print a model's gradient bytes, tensors and compute ratio, or of all, and end");

DEFINE_string(codec_errors, "",
              "print what codecs, with | between them, lose of --model's gradients, as a part of "
              "|x|^2, and end");

namespace slimps {
namespace {

constexpr uint64_t kNever = UINT64_MAX;

std::optional<uint64_t> ParseThreshold(const char* flag, const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "none") return kNever;
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes)) {
    DieOfUsage(absl::StrCat("--", flag, "=", text, ": expected bytes, auto or none"));
  }
  return bytes;
}

KVStoreOptions StoreOptions() {
  KVStoreOptions options;
  options.scheduler_address = FLAGS_scheduler;
  options.job_id = FLAGS_job_id;
  options.num_workers = static_cast<uint32_t>(FLAGS_num_workers);
  options.num_servers = static_cast<uint32_t>(FLAGS_num_servers);
  options.wanted_rank = FLAGS_rank;
  options.compression = FLAGS_compression;
  options.fixed_threshold_bytes = ParseThreshold("threshold", FLAGS_threshold);
  options.pull_compression = FLAGS_pull_compression;
  options.fixed_pull_threshold_bytes = ParseThreshold("pull_threshold", FLAGS_pull_threshold);
  options.policy = FLAGS_policy;
  options.pre_steps = FLAGS_pre_steps;
  options.remeasure_every = static_cast<uint64_t>(FLAGS_remeasure_every);
  options.coalesce = FLAGS_coalesce;
  options.prioritise = FLAGS_prioritise;
  const absl::StatusOr<SameHost> same_host = ParseSameHost(FLAGS_same_host);
  if (!same_host.ok()) {
    DieOfUsage(absl::StrCat("--same_host=", same_host.status().message()));
  }
  options.same_host = *same_host;
  options.encode_threads = FLAGS_encode_threads;
  options.timeout = absl::Seconds(FLAGS_timeout_s);
  return options;
}

// The thresholds in force, either fixed or decided by the job; nullopt: nothing is compressed.
struct Thresholds {
  std::optional<uint64_t> push, pull;
};

std::optional<uint64_t> Settled(const std::string& codec, std::optional<uint64_t> fixed,
                                std::optional<uint64_t> decided) {
  if (codec == "none") return std::nullopt;
  if (!fixed.has_value()) return decided;
  return *fixed == kNever ? std::nullopt : fixed;
}

Thresholds ThresholdsInForce(const KVStoreOptions& options, const KVStore& store) {
  std::optional<uint64_t> push, pull;
  if (const std::optional<wire::CodecMap> map = store.codec_map(); map.has_value()) {
    if (map->has_threshold()) push = map->threshold_bytes();
    if (map->has_pull_threshold()) pull = map->pull_threshold_bytes();
  }
  return {Settled(options.compression, options.fixed_threshold_bytes, push),
          Settled(options.pull_compression, options.fixed_pull_threshold_bytes, pull)};
}

// Prints each new decision once, with the iteration that has just ended.
class DecisionLog final {
 public:
  void Look(const KVStore& store, int64_t iteration) {
    const std::optional<wire::CodecMap> map = store.codec_map();
    if (!map.has_value() || map->version() == version_) return;
    version_ = map->version();
    std::cout << "decision version=" << version_ << " iteration=" << iteration
              << " from_round=" << map->from_round() << What(*map) << std::endl;
  }

 private:
  static std::string What(const wire::CodecMap& map) {
    if (!map.policy().empty()) return absl::StrCat(" reason=", map.reason());
    const auto text = [](bool has, uint64_t bytes) { return has ? absl::StrCat(bytes) : "none"; };
    return absl::StrCat(
        " threshold=", text(map.has_threshold(), map.threshold_bytes()),
        " pull_threshold=", text(map.has_pull_threshold(), map.pull_threshold_bytes()));
  }

  uint64_t version_ = 0;
};

// Counters at one moment.
struct Mark {
  LinkCounters link;
  StoreTotals totals;
  absl::Duration cpu;  // CPU time of all this process's threads
};

absl::Duration CpuTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

absl::StatusOr<Mark> TakeMark(const KVStore& store) {
  SLIMPS_ASSIGN_OR_RETURN(const LinkCounters link, ReadLinkCounters(FLAGS_interface));
  return Mark{link, store.totals(), CpuTime()};
}

void AddBytes(const Mark& from, const Mark& to, ClusterFigures* figures) {
  const auto mean = [](uint64_t before, uint64_t after) {
    return static_cast<double>(after - before) / std::max(FLAGS_iterations, 1);
  };
  figures->wire_bytes_out = mean(from.link.out, to.link.out);
  figures->wire_bytes_in = mean(from.link.in, to.link.in);
  figures->worker_cpu_ms =
      absl::ToDoubleMilliseconds(to.cpu - from.cpu) / std::max(FLAGS_iterations, 1);
  figures->shared_bytes = mean(from.totals.bytes_shared, to.totals.bytes_shared);
  figures->payload_bytes_out = mean(from.totals.bytes_pushed, to.totals.bytes_pushed);
  figures->payload_bytes_in = mean(from.totals.bytes_pulled, to.totals.bytes_pulled);
}

uint64_t MaxRssBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// Returns the resident bytes of shared read-only mappings, which hold other processes' payloads.
uint64_t BorrowedRssBytes() {
  std::ifstream maps("/proc/self/smaps");
  uint64_t kilobytes = 0;
  bool borrowed = false;
  for (std::string line; std::getline(maps, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() >= 5 && words[0].find('-') != std::string::npos) borrowed = words[1] == "r--s";
    uint64_t rss = 0;
    if (borrowed && words.size() >= 2 && words[0] == "Rss:" && absl::SimpleAtoi(words[1], &rss)) {
      kilobytes += rss;
    }
  }
  return kilobytes * 1024;
}

// Runs all iterations and returns the figures of those after the warm-up.
absl::StatusOr<ClusterFigures> Measure(KVStore* store, TrainingLoop* loop) {
  DecisionLog decisions;
  ClusterTimeline timeline;
  Mark begin;
  TraceLog::Global().Start(absl::StrCat("worker ", FLAGS_rank));
  LinkMeter meter(FLAGS_interface);
  const int64_t all = int64_t{FLAGS_warmup} + FLAGS_iterations;
  for (int64_t i = 1; i <= all; ++i) {
    SLIMPS_RETURN_IF_ERROR(loop->Iterate(i));
    decisions.Look(*store, i);
    if (i < FLAGS_warmup) continue;
    timeline.iteration_ends.push_back(loop->accelerator().clock());
    if (i == FLAGS_warmup) {
      SLIMPS_ASSIGN_OR_RETURN(begin, TakeMark(*store));
    }
  }
  SLIMPS_ASSIGN_OR_RETURN(const Mark end, TakeMark(*store));
  const uint64_t borrowed = BorrowedRssBytes();
  timeline.link_busy = meter.Stop();
  timeline.events = TraceLog::Global().Events();
  TraceLog::Global().Stop();
  SLIMPS_RETURN_IF_ERROR(loop->Finish());
  decisions.Look(*store, all);
  ClusterFigures figures = FiguresOf(timeline, loop->accelerator());
  AddBytes(begin, end, &figures);
  figures.borrowed_rss_bytes = borrowed;
  return figures;
}

absl::Status WriteReport(const ClusterReport& report) {
  if (FLAGS_report.empty()) return absl::OkStatus();
  return Prefixed(WriteFileDurably(FLAGS_report, ClusterReportJson(report)), "--report");
}

// Sets the fp32 bytes of the tensors that are compressed at the end.
void AddCompressedBytes(const ModelShape& model, const Thresholds& thresholds,
                        std::span<const KeyCodec> chosen, ClusterFigures* figures) {
  figures->compressed_bytes = CompressedBytes(model, thresholds.push);
  figures->pull_compressed_bytes = CompressedBytes(model, thresholds.pull);
  if (chosen.empty()) return;
  figures->compressed_bytes = CompressedBytes(model, chosen);
  if (FLAGS_pull_compression == "policy") {
    figures->pull_compressed_bytes = figures->compressed_bytes;
  }
}

absl::Status RunJob(KVStore* store, const KVStoreOptions& options, const ModelShape& model,
                    std::unique_ptr<TrainingLoop>* loop) {
  const uint64_t device_threshold = options.fixed_threshold_bytes.value_or(0);
  SLIMPS_ASSIGN_OR_RETURN(
      *loop,
      TrainingLoop::Start(store, model,
                          {.backup_model = FLAGS_backup_model,
                           .overlap_forward = FLAGS_overlap_forward,
                           .compute = absl::Milliseconds(FLAGS_compute_ms),
                           .device_encode_per_element = absl::Nanoseconds(FLAGS_device_encode_ns),
                           .device_threshold_bytes = device_threshold,
                           .timeout = options.timeout}));
  std::cout << "ready" << std::endl;
  std::string go;
  if (!std::getline(std::cin, go)) return absl::CancelledError("stdin ended before the start");
  SLIMPS_RETURN_IF_ERROR(store->Barrier());
  SLIMPS_ASSIGN_OR_RETURN(ClusterFigures figures, Measure(store, loop->get()));
  const Thresholds thresholds = ThresholdsInForce(options, *store);
  AddCompressedBytes(model, thresholds, store->key_codecs(), &figures);
  SLIMPS_RETURN_IF_ERROR(WriteReport({.model = model.name,
                                      .gradient_bytes = model.elements() * sizeof(float),
                                      .tensors = model.tensors.size(),
                                      .figures = std::move(figures),
                                      .threshold_bytes = thresholds.push,
                                      .pull_threshold_bytes = thresholds.pull,
                                      .weights_hash = (*loop)->WeightsHash(),
                                      .max_rss_bytes = MaxRssBytes()}));
  if (!FLAGS_trace.empty()) SLIMPS_RETURN_IF_ERROR(TraceLog::Global().WriteTo(FLAGS_trace));
  return store->Close();
}

absl::Status Run() {
  SLIMPS_ASSIGN_OR_RETURN(const ModelShape model, FindModel(FLAGS_model));
  SLIMPS_RETURN_IF_ERROR(ReadLinkCounters(FLAGS_interface).status());
  const KVStoreOptions options = StoreOptions();
  std::unique_ptr<TrainingLoop> loop;  // outlives the store, since pulls write into it
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<KVStore> store,
                          KVStore::Create("dist_sync", options));
  const absl::Status status = RunJob(store.get(), options, model, &loop);
  if (!status.ok()) {
    store->Abort(status);
    store->Close().IgnoreError();
  }
  return status;
}

// Prints the bytes per second of d += s, on one thread with data larger than the caches. The CPU
// bound divides by it.
void MeasureAdd() {
  constexpr size_t kElements = size_t{32} << 20;
  AlignedBuffer d = AlignedBuffer::OfFloats(kElements), s = AlignedBuffer::OfFloats(kElements);
  std::fill(d.floats().begin(), d.floats().end(), 0.0f);
  std::fill(s.floats().begin(), s.floats().end(), 1.0f);
  const References& references = FindReferences(BestKernels().name);
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    seconds.push_back(
        TimeRuns(1, 1, [&] { references.add(s.floats().data(), d.floats().data(), kElements); }));
  }
  std::printf("%.0f\n", 12.0 * kElements / Median(seconds));
}

absl::Status Describe(const std::string& name) {
  const std::vector<std::string> names =
      name == "all" ? ModelNames() : std::vector<std::string>{name};
  for (const std::string& each : names) {
    SLIMPS_ASSIGN_OR_RETURN(const ModelShape model, FindModel(each));
    std::cout << model.name << " " << model.elements() * sizeof(float) << " "
              << model.tensors.size() << " " << model.communication_to_compute << "\n";
  }
  return absl::OkStatus();
}

absl::Status PrintCodecErrors() {
  SLIMPS_ASSIGN_OR_RETURN(const ModelShape model, FindModel(FLAGS_model));
  const std::vector<std::string> codecs = absl::StrSplit(FLAGS_codec_errors, '|');
  for (const std::string& codec : codecs) {
    SLIMPS_ASSIGN_OR_RETURN(const double error, ErrorOfCodec(model, codec));
    std::cout << codec << " " << error << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::ParseProgramFlags("one worker of tools/slimps bench cluster", argc, argv);
  if (!FLAGS_describe.empty()) return slimps::ExitStatus(slimps::Describe(FLAGS_describe));
  if (!FLAGS_codec_errors.empty()) return slimps::ExitStatus(slimps::PrintCodecErrors());
  if (FLAGS_measure_add) {
    slimps::MeasureAdd();
    return 0;
  }
  slimps::CheckRange("iterations", FLAGS_iterations, 1, 1'000'000);
  slimps::CheckRange("warmup", FLAGS_warmup, 1, 1'000'000);
  slimps::CheckRange("remeasure_every", FLAGS_remeasure_every, 0, 1'000'000);
  slimps::CheckRange("timeout_s", FLAGS_timeout_s, 1, 1'000'000);
  slimps::CheckRange("encode_threads", FLAGS_encode_threads, 0, 1024);
  return slimps::ExitStatus(slimps::Run());
}
