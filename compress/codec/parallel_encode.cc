// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/parallel_encode.h"

#include <tbb/parallel_for.h>

#include <atomic>
#include <ctime>
#include <exception>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/work_arena.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Blocks per task: enough work to outweigh handing the task over.
constexpr size_t kChunkBlocks = 16;

int64_t ThreadCpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Adds the CPU time that its thread uses during its scope to a sum that threads share. The sum
// publishes nothing else, so it is relaxed.
class CpuScope final {
 public:
  explicit CpuScope(std::atomic<int64_t>& sum_ns) : sum_ns_(sum_ns), begin_ns_(ThreadCpuNs()) {}
  ~CpuScope() { sum_ns_.fetch_add(ThreadCpuNs() - begin_ns_, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t>& sum_ns_;
  const int64_t begin_ns_;
};

// Lowers `minimum` to `value` if that is less. It publishes nothing else, so it is relaxed.
void KeepMinimum(std::atomic<size_t>& minimum, size_t value) {
  size_t seen = minimum.load(std::memory_order_relaxed);
  while (value < seen && !minimum.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// Encodes one job with the arena's threads.
// REQUIRES: called inside the arena.
absl::StatusOr<EncodeStats> EncodeOnThreads(const EncodeJob& job, EncodeWorkspace& workspace,
                                            std::atomic<int64_t>& cpu_ns) {
  const Codec& codec = *job.codec;
  SLIMPS_RETURN_IF_ERROR(codec.CheckArguments(job.input, job.payload.size()));
  const size_t blocks = Codec::Blocks(job.input.gradient.size());
  // Everything is checked before anything is written: an error must leave the states alone.
  if (!codec.KnownEncodable(job.input)) {
    std::atomic<size_t> bad = Codec::kEncodable;
    WorkArena::ForChunks(blocks, kChunkBlocks, [&](size_t first, size_t last) {
      const CpuScope scope(cpu_ns);
      KeepMinimum(bad, codec.FindUnencodable(job.input, first, last));
    });
    if (bad.load() != Codec::kEncodable) return codec.DescribeUnencodable(job.input, bad.load());
  }
  workspace.Reset();
  const std::unique_ptr<EncodeRun> run = codec.Begin(job.input, job.payload, workspace);
  for (size_t pass = 0; pass < run->passes(); ++pass) {
    WorkArena::ForChunks(blocks, kChunkBlocks, [&](size_t first, size_t last) {
      const CpuScope scope(cpu_ns);
      run->Blocks(pass, first, last);
    });
    const CpuScope scope(cpu_ns);
    run->EndPass(pass);
  }
  return run->Finish();
}

bool IsSmall(const EncodeJob& job) {
  return job.input.gradient.size_bytes() < ParallelEncoder::kInlineBytes;
}

enum class Where { kThisThread, kArena };

// kArena: it is called inside the arena, whose threads help with a large tensor.
absl::StatusOr<EncodeResult> EncodeOne(const EncodeJob& job, Where where, const Clock& clock,
                                       EncodeWorkspace& workspace) {
  const SteadyTime begin = clock.Now();
  std::atomic<int64_t> cpu_ns = 0;
  absl::StatusOr<EncodeStats> stats = EncodeStats{};
  if (where == Where::kArena && !IsSmall(job)) {
    stats = EncodeOnThreads(job, workspace, cpu_ns);
  } else {
    const CpuScope scope(cpu_ns);
    stats = job.codec->Encode(job.input, job.payload, workspace);
  }
  if (!stats.ok()) return stats.status();
  return EncodeResult{
      .stats = *stats, .wall = clock.Now() - begin, .cpu = absl::Nanoseconds(cpu_ns.load())};
}

absl::Status FromException(const std::exception& error) {
  return absl::InternalError(absl::StrCat("parallel encoding: ", error.what()));
}

}  // namespace

struct ParallelEncoder::Arena {
  Arena(int threads, const Clock* clock) : clock(clock), arena(threads) {}

  const Clock* const clock;
  const WorkArena arena;
  Mutex mutex;
  // Workspaces that no encoding uses. There are as many workspaces as encodings ever ran at the
  // same time. The vector has room for all of them, so giving one back never allocates.
  std::vector<std::unique_ptr<EncodeWorkspace>> idle ABSL_GUARDED_BY(mutex);
  size_t workspaces ABSL_GUARDED_BY(mutex) = 0;  // idle or borrowed
};

// Borrows a workspace for its scope.
class ParallelEncoder::Borrowed final {
 public:
  explicit Borrowed(Arena& arena) : arena_(arena) {
    MutexLock lock(&arena_.mutex);
    if (arena_.idle.empty()) {
      workspace_ = std::make_unique<EncodeWorkspace>();
      arena_.idle.reserve(arena_.workspaces + 1);
      ++arena_.workspaces;
    } else {
      workspace_ = std::move(arena_.idle.back());
      arena_.idle.pop_back();
    }
  }
  ~Borrowed() {
    MutexLock lock(&arena_.mutex);
    arena_.idle.push_back(std::move(workspace_));
  }

  // Encodes one job. Turns what TBB or a failed allocation throws into the job's Status.
  static absl::StatusOr<EncodeResult> Encode(Arena& arena, const EncodeJob& job, Where where) {
    try {
      Borrowed borrowed(arena);
      return EncodeOne(job, where, *arena.clock, *borrowed.workspace_);
    } catch (const std::exception& error) {
      return FromException(error);
    }
  }

 private:
  Arena& arena_;
  std::unique_ptr<EncodeWorkspace> workspace_;
};

ParallelEncoder::ParallelEncoder(int threads, const Clock* clock)
    : arena_(std::make_unique<Arena>(threads, clock)) {}

ParallelEncoder::~ParallelEncoder() = default;

int ParallelEncoder::threads() const { return arena_->arena.threads(); }

absl::StatusOr<EncodeResult> ParallelEncoder::Encode(const EncodeJob& job) const {
  if (IsSmall(job) || threads() == 1) return Borrowed::Encode(*arena_, job, Where::kThisThread);
  try {
    absl::StatusOr<EncodeResult> result;
    arena_->arena.Run([&] { result = Borrowed::Encode(*arena_, job, Where::kArena); });
    return result;
  } catch (const std::exception& error) {
    return FromException(error);
  }
}

std::vector<absl::StatusOr<EncodeResult>> ParallelEncoder::EncodeAll(
    std::span<const EncodeJob> jobs) const {
  std::vector<absl::StatusOr<EncodeResult>> results(
      jobs.size(),
      absl::StatusOr<EncodeResult>(absl::CancelledError("parallel encoding: not run")));
  // Large tensors first, side by side. Each is cut up too, so threads without a job of their own
  // help with the others.
  if (threads() > 1) {
    try {
      arena_->arena.Run([&] {
        tbb::parallel_for(size_t{0}, jobs.size(), [&](size_t i) {
          if (!IsSmall(jobs[i])) results[i] = Borrowed::Encode(*arena_, jobs[i], Where::kArena);
        });
      });
    } catch (const std::exception& error) {  // thrown by TBB between jobs
      for (absl::StatusOr<EncodeResult>& result : results) {
        if (absl::IsCancelled(result.status())) result = FromException(error);
      }
    }
  }
  // The calling thread does the rest alone.
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (threads() > 1 && !IsSmall(jobs[i])) continue;
    results[i] = Borrowed::Encode(*arena_, jobs[i], Where::kThisThread);
  }
  return results;
}

}  // namespace slimps
