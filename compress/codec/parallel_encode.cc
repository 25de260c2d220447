// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/parallel_encode.h"

#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/work_arena.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Blocks per task: enough work to outweigh handing the task over.
constexpr size_t kChunkBlocks = 16;

// Lowers `minimum` to `value` if that is less. It publishes nothing else, so it is relaxed.
void KeepMinimum(std::atomic<size_t>& minimum, size_t value) {
  size_t seen = minimum.load(std::memory_order_relaxed);
  while (value < seen && !minimum.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// Encodes one job with the arena's threads.
// REQUIRES: called inside the arena.
absl::StatusOr<EncodeStats> EncodeOnThreads(const EncodeJob& job, EncodeWorkspace& workspace) {
  const Codec& codec = *job.codec;
  SLIMPS_RETURN_IF_ERROR(codec.CheckArguments(job.input, job.payload.size()));
  const size_t blocks = Codec::Blocks(job.input.gradient.size());
  // Everything is checked before anything is written: an error must leave the states alone.
  if (!codec.KnownEncodable(job.input)) {
    std::atomic<size_t> bad = Codec::kEncodable;
    WorkArena::ForChunks(blocks, kChunkBlocks, [&](size_t first, size_t last) {
      KeepMinimum(bad, codec.FindUnencodable(job.input, first, last));
    });
    if (bad.load() != Codec::kEncodable) return codec.DescribeUnencodable(job.input, bad.load());
  }
  workspace.Reset();
  const std::unique_ptr<EncodeRun> run = codec.Begin(job.input, job.payload, workspace);
  for (size_t pass = 0; pass < run->passes(); ++pass) {
    WorkArena::ForChunks(blocks, kChunkBlocks,
                         [&](size_t first, size_t last) { run->Blocks(pass, first, last); });
    run->EndPass(pass);
  }
  return run->Finish();
}

bool IsSmall(const EncodeJob& job) {
  return job.input.gradient.size_bytes() < ParallelEncoder::kInlineBytes;
}

}  // namespace

struct ParallelEncoder::Arena {
  explicit Arena(int threads) : arena(threads) {}

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

  EncodeWorkspace& workspace() const { return *workspace_; }

 private:
  Arena& arena_;
  std::unique_ptr<EncodeWorkspace> workspace_;
};

ParallelEncoder::ParallelEncoder(int threads) : arena_(std::make_unique<Arena>(threads)) {}

ParallelEncoder::~ParallelEncoder() = default;

int ParallelEncoder::threads() const { return arena_->arena.threads(); }

absl::StatusOr<EncodeStats> ParallelEncoder::Encode(const EncodeJob& job) const {
  try {
    Borrowed borrowed(*arena_);
    if (IsSmall(job) || threads() == 1) {
      return job.codec->Encode(job.input, job.payload, borrowed.workspace());
    }
    absl::StatusOr<EncodeStats> stats;
    arena_->arena.Run([&] { stats = EncodeOnThreads(job, borrowed.workspace()); });
    return stats;
  } catch (const std::exception& error) {  // of TBB or a failed allocation
    return absl::InternalError(absl::StrCat("parallel encoding: ", error.what()));
  }
}

}  // namespace slimps
