// SPDX-License-Identifier: Apache-2.0
// Encodes a gradient round after round, to be timed: partition by partition, each on one thread.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto encoding,
//                           Encoding::Create(setting, kernels, Feedback::kOn,
//                                            CutTensor(elements, team.threads()), team, data));
//   SLIMPS_RETURN_IF_ERROR(encoding->Run());
#ifndef SLIMPS_TOOLS_BENCH_CODEC_ENCODING_H_
#define SLIMPS_TOOLS_BENCH_CODEC_ENCODING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "tools/bench/codec/bench_data.h"
#include "tools/bench/codec/codec_settings.h"
#include "tools/bench/codec/team.h"

namespace slimps {

// The fp32 elements of a partition unless a job says otherwise (StoreOptions::partition_bytes).
inline constexpr size_t kPartitionElements = 256 << 10;

// A part of a gradient.
struct Partition {
  size_t offset = 0;  // in the gradient, in elements
  size_t elements = 0;
  size_t numbers = 0;  // where BenchData has its numbers
  EncodeContext context = {.key = 1};
};

// Cuts a tensor into partitions for several threads. One thread gets the whole tensor as one.
std::vector<Partition> CutTensor(size_t elements, int threads, const RowGrid& grid = {});

// With a residual or without: kOfCodec as the codec prefers.
enum class Feedback : uint8_t { kOff, kOn, kOfCodec };

// Thread-compatible. Uses the slots kResidual to kPayload of the shared data.
class Encoding final {
 public:
  // Encodes a few rounds first, so that the codec's states are as in training. `team` outlives it.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Encoding>> Create(
      const CodecSetting& setting, const Kernels& kernels, Feedback feedback,
      std::vector<Partition> partitions, const Team& team, BenchData& data);

  // Encodes one round.
  [[nodiscard]] absl::Status Run();

  // Encodes the first round again, with the states of the beginning, as another worker does that
  // has the same gradient. So its payload shares with the others' what workers agree on in phases.
  [[nodiscard]] absl::Status RunFirstAs(uint32_t worker);

  // Restores the states of the beginning if the codec's error has grown too much. Quantisers whose
  // error exceeds their input are not meant for error feedback, but are timed with it all the same.
  void Settle();

  const Codec& codec() const { return *codec_; }
  std::span<const Partition> partitions() const { return partitions_; }
  size_t elements() const { return partitions_.back().offset + partitions_.back().elements; }

  // The last round's payload of a partition, valid until the next Run.
  std::span<const std::byte> payload(size_t partition) const {
    return parts_[partition].payload.first(parts_[partition].stats.payload_bytes);
  }

  // The last round's sums over all partitions.
  EncodeStats stats() const;

 private:
  // What a partition's encodings need.
  struct Part {
    std::span<float> residual, momentum;
    std::span<std::byte> payload;
    EncodeStats stats;
    EncodeStats start;  // when the states were saved
  };

  Encoding(const CodecSetting& setting, std::unique_ptr<Codec> codec, Feedback feedback,
           std::vector<Partition> partitions, const Team& team, BenchData& data);
  absl::Status RunRound(uint64_t round, uint32_t worker);
  absl::Status Encode(size_t partition, uint64_t round, uint32_t worker,
                      EncodeWorkspace& workspace);
  void SaveStart();
  void Restore();

  const CodecSetting setting_;
  const std::unique_ptr<Codec> codec_;
  const std::vector<Partition> partitions_;
  const Team& team_;
  BenchData& data_;
  std::vector<EncodeWorkspace> workspaces_;  // by thread
  std::vector<Part> parts_;
  std::span<float> residual_, momentum_, residual_start_, momentum_start_;
  double start_error2_ = 0;
  uint64_t round_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_ENCODING_H_
