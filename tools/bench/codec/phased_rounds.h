// SPDX-License-Identifier: Apache-2.0
// Runs the phases of one worker's exchanges of one tensor, round after round, to be timed. No
// payload is written.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto rounds,
//                           PhasedRounds::Create(setting, kernels, elements, grid, data));
//   SLIMPS_RETURN_IF_ERROR(rounds->Run());
#ifndef SLIMPS_TOOLS_BENCH_CODEC_PHASED_ROUNDS_H_
#define SLIMPS_TOOLS_BENCH_CODEC_PHASED_ROUNDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/phases.h"
#include "compress/format/row_grid.h"
#include "tools/bench/codec/bench_data.h"
#include "tools/bench/codec/codec_settings.h"

namespace slimps {

// Thread-compatible. Uses the slot kResidual of the shared data.
class PhasedRounds final {
 public:
  // InvalidArgument: the codec has no phases for a tensor of this size and grid.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<PhasedRounds>> Create(
      const CodecSetting& setting, const Kernels& kernels, size_t elements, const RowGrid& grid,
      BenchData& data);

  // Runs all phases of one round, with one worker.
  [[nodiscard]] absl::Status Run();

  // The bytes that a worker contributes to all phases of a round.
  size_t contributed_bytes() const;

 private:
  PhasedRounds(std::unique_ptr<Codec> codec, std::array<int64_t, 2> shape, BenchData& data);

  const std::unique_ptr<Codec> codec_;
  const std::array<int64_t, 2> shape_;
  const size_t elements_;
  const std::vector<AuxiliaryShape> keys_;
  BenchData& data_;
  std::span<float> residual_;
  std::vector<float> memory_;
  std::vector<std::vector<float>> contributed_;  // by phase
  uint64_t round_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_PHASED_ROUNDS_H_
