// SPDX-License-Identifier: Apache-2.0
// Encodes one tensor round after round, to be timed.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto encoding, Encoding::Create(setting, kernels, Feedback::kOn,
//                                                           elements, /*threads=*/1, data));
//   SLIMPS_RETURN_IF_ERROR(encoding->Run());
#ifndef SLIMPS_TOOLS_BENCH_CODEC_ENCODING_H_
#define SLIMPS_TOOLS_BENCH_CODEC_ENCODING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/parallel_encode.h"
#include "tools/bench/codec/bench_data.h"
#include "tools/bench/codec/codec_settings.h"

namespace slimps {

enum class Feedback : uint8_t { kOff, kOn };

// Thread-compatible. Uses the slots kResidual to kPayload of the shared data.
class Encoding final {
 public:
  // Encodes a few rounds first, so that the codec's states are as in training.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Encoding>> Create(
      const CodecSetting& setting, const Kernels& kernels, Feedback feedback, size_t elements,
      int threads, BenchData& data, const RowGrid& grid = {});

  // Encodes one round. With one thread, it runs on the caller's thread.
  [[nodiscard]] absl::Status Run();

  // Encodes the first round again, with the states of the beginning, as another worker does that
  // has the same gradient. So its payload shares with the others' what workers agree on in phases.
  [[nodiscard]] absl::Status RunFirstAs(uint32_t worker);

  // Restores the states of the beginning if the codec's error has grown too much. Quantisers whose
  // error exceeds their input are not meant for error feedback, but are timed with it all the same.
  void Settle();

  const Codec& codec() const { return *codec_; }

  // The last round's payload, valid until the next Run.
  std::span<const std::byte> payload() const { return payload_.first(stats_.payload_bytes); }

  const EncodeStats& stats() const { return stats_; }

 private:
  Encoding(const CodecSetting& setting, std::unique_ptr<Codec> codec, Feedback feedback,
           size_t elements, int threads, BenchData& data, const RowGrid& grid);
  absl::Status RunRound(uint64_t round, uint32_t worker);
  void SaveStart();
  void Restore();

  struct StateBounds {
    float residual = 0, momentum = 0;
  };

  const CodecSetting setting_;
  const std::unique_ptr<Codec> codec_;
  const size_t elements_;
  const RowGrid grid_;
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

#endif  // SLIMPS_TOOLS_BENCH_CODEC_ENCODING_H_
