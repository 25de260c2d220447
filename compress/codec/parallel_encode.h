// SPDX-License-Identifier: Apache-2.0
// ParallelEncoder: encodes on its own TBB arena, over a fixed grid of blocks. Payload and residual
// have the same bits for any number of threads.
//
//   ParallelEncoder encoder(threads);
//   auto stats = encoder.Encode({.codec = codec, .input = {...}, .payload = bit_buf.bytes()});
//
// The calling thread encodes small tensors alone: to hand them over costs more than to encode them.
// With large ones it works too, so no thread only waits. Thread-safe; callers share the arena.
#ifndef SLIMPS_COMPRESS_CODEC_PARALLEL_ENCODE_H_
#define SLIMPS_COMPRESS_CODEC_PARALLEL_ENCODE_H_

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

struct EncodeJob {
  const Codec* codec = nullptr;  // outlives the call
  EncodeInput input;
  std::span<std::byte> payload;  // at least codec->MaxPayloadBytes(gradient.size())
};

class ParallelEncoder final {
 public:
  // A gradient with fewer bytes of fp32 is small: the caller's thread encodes it alone.
  static constexpr size_t kInlineBytes = 64 << 10;

  // `threads` counts the caller; 0: as many as there are cores. At most as many as there are cores
  // work at the same time.
  explicit ParallelEncoder(int threads);
  ~ParallelEncoder();
  ParallelEncoder(const ParallelEncoder&) = delete;
  ParallelEncoder& operator=(const ParallelEncoder&) = delete;

  // Returns the number asked for, or the number of cores if that was 0.
  int threads() const;

  // Encodes as Codec::Encode does. An error names the first bad element, whatever the number of
  // threads.
  // Internal: memory ran out or TBB failed. The job's residual and momentum may be half updated.
  [[nodiscard]] absl::StatusOr<EncodeStats> Encode(const EncodeJob& job) const;

 private:
  struct Arena;
  class Borrowed;

  const std::unique_ptr<Arena> arena_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_PARALLEL_ENCODE_H_
