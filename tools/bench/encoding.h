// A tensor that is encoded round after round.
#ifndef SLIMPS_TOOLS_BENCH_ENCODING_H_
#define SLIMPS_TOOLS_BENCH_ENCODING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/parallel_encode.h"
#include "tools/bench/bench_data.h"
#include "tools/bench/codec_settings.h"

namespace slimps {

enum class Feedback : uint8_t { kOff, kOn };

// Thread-compatible. Uses the slots kResidual to kPayload of the shared data.
class Encoding final {
 public:
  // Some rounds have been encoded then, so that the states are such as they are in training.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Encoding>> Create(
      const CodecSetting& setting, const Kernels& kernels, Feedback feedback, size_t elements,
      int threads, BenchData& data);

  // One round. With one thread, on the caller's.
  [[nodiscard]] absl::Status Run();
  // Puts the states back where measuring began if the codec's error has grown out of hand: quantisers whose error
  // exceeds their input are not meant for error feedback, yet their encoding with it is to be timed.
  void Settle();

  const Codec& codec() const { return *codec_; }
  // Of the last round.
  std::span<const std::byte> payload() const { return payload_.first(stats_.payload_bytes); }
  const EncodeStats& stats() const { return stats_; }

 private:
  Encoding(const CodecSetting& setting, std::unique_ptr<Codec> codec, Feedback feedback,
           size_t elements, int threads, BenchData& data);
  void SaveStart();

  struct StateBounds {
    float residual = 0, momentum = 0;
  };

  const CodecSetting setting_;
  const std::unique_ptr<Codec> codec_;
  const size_t elements_;
  BenchData& data_;
  const std::unique_ptr<ParallelEncoder> encoder_;  // nullptr: one thread
  EncodeWorkspace workspace_;
  std::span<float> residual_, momentum_, residual_start_, momentum_start_;
  std::span<std::byte> payload_;
  EncodeStats stats_;
  double start_error2_ = 0;
  StateBounds bounds_, start_bounds_;
  uint64_t round_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_ENCODING_H_
