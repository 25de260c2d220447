// ParallelEncoder: encodes on its own TBB arena, over a fixed grid of blocks, so that payload and residual have the
// same bits whatever the number of threads.
//
//   ParallelEncoder encoder(threads);
//   auto result = encoder.Encode({.codec = codec, .input = {...}, .payload = bit_buf.bytes()});
//   auto results = encoder.EncodeAll(jobs);    // partitions side by side
//
// Small tensors are encoded by the caller: handing them over costs more than encoding. Thread-safe; callers share the
// arena. A calling thread works along, so it needs no thread of its own to wait.
#ifndef SLIMPS_COMPRESS_CODEC_PARALLEL_ENCODE_H_
#define SLIMPS_COMPRESS_CODEC_PARALLEL_ENCODE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "proto/base/clock.h"

namespace slimps {

struct EncodeJob {
  const Codec* codec = nullptr;  // outlives the call
  EncodeInput input;
  std::span<std::byte> payload;  // at least codec->MaxPayloadBytes(gradient.size())
};

struct EncodeResult {
  EncodeStats stats;
  absl::Duration wall;  // from the job's begin to its end
  absl::Duration cpu;   // of all threads together
};

class ParallelEncoder final {
 public:
  // fp32 bytes below which the caller's thread encodes alone.
  static constexpr size_t kInlineBytes = 64 << 10;

  // `threads`, the caller's included; 0: as many as there are cores. No more work than there are cores.
  // `clock` times it, and outlives the encoder.
  explicit ParallelEncoder(int threads, const Clock* clock = MachineClock());
  ~ParallelEncoder();
  ParallelEncoder(const ParallelEncoder&) = delete;
  ParallelEncoder& operator=(const ParallelEncoder&) = delete;

  // 1 or more.
  int threads() const;

  // As Codec::Encode. The element that an error names is the first, whatever the number of threads. Internal: memory
  // ran out or TBB failed; the job's residual and momentum may then be half updated.
  [[nodiscard]] absl::StatusOr<EncodeResult> Encode(const EncodeJob& job) const;
  // In the order of `jobs`. A failed job leaves the others alone. REQUIRES: jobs share no payload or residual.
  [[nodiscard]] std::vector<absl::StatusOr<EncodeResult>> EncodeAll(
      std::span<const EncodeJob> jobs) const;

 private:
  struct Arena;
  class Borrowed;

  const std::unique_ptr<Arena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_PARALLEL_ENCODE_H_
