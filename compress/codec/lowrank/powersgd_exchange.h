// SPDX-License-Identifier: Apache-2.0
// One worker's exchange of one matrix by powersgd: powersgd.h has the formulas.
#ifndef SLIMPS_COMPRESS_CODEC_LOWRANK_POWERSGD_EXCHANGE_H_
#define SLIMPS_COMPRESS_CODEC_LOWRANK_POWERSGD_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/phases.h"
#include "compress/format/low_rank.h"
#include "compress/kernels/kernels.h"
#include "proto/base/buffer.h"

namespace slimps {

// Writes the payload of a partition. `p` points to the partition's first row in vector 0 of P,
// `p_stride` is the length of P's vectors, and `q` is Q.
void WriteFactors(const LowRankLayout& layout, const float* p, size_t p_stride, const float* q,
                  std::span<std::byte> payload);

// Fills Q, vector after vector, with standard normal numbers, the same on all workers. Those of a
// lower rank are the first ones of a higher rank.
void DrawQ(uint64_t seed, uint64_t key, std::span<float> q);

// Thread-compatible.
class PowerSgdExchange final : public PhasedRun {
 public:
  static constexpr size_t kProject = 0, kProjectBack = 1, kPhases = 2;

  // REQUIRES: every part is whole rows, and has a residual if it has a gradient; input.memory has
  // rank * columns numbers or more. Throws std::bad_alloc.
  PowerSgdExchange(const Kernels& kernels, size_t rank, uint64_t seed, const PhasedInput& input);

  absl::Status Contribute(size_t phase, std::span<float> out) override;
  bool has_read_gradients() const override { return has_read_; }
  bool may_write() const override { return taken_ == kPhases; }
  absl::Status Take(size_t phase, std::span<const float> combined,
                    std::span<const uint32_t> contributors) override;
  bool Sends(size_t part) const override;
  size_t MaxPayloadBytes(size_t part) const override;
  absl::StatusOr<size_t> Write(size_t part, std::span<std::byte> payload) override;
  EncodeStats StatsOf(size_t part) const override { return stats_[part]; }

 private:
  // Returns the factor that this round begins with: the one remembered, and drawn vectors in place
  // of those that are zero.
  std::span<const float> BeginningQ();
  absl::Status Project(std::span<float> p);
  void ProjectBack(std::span<float> q);
  // Keeps Q for the next round, times a power of two that brings its largest number to 1 to 2:
  // the size of P would else be that of |X|^2. Vectors of a larger rank before become zero.
  void Remember(std::span<const float> q);
  LowRankShape ShapeOf(size_t part) const;
  LowRankLayout LayoutOf(size_t part) const;

  const Kernels& kernels_;
  const size_t rank_;
  const uint64_t seed_;
  const PhasedInput input_;
  const size_t rows_, columns_;
  std::vector<size_t> first_row_;  // by part; then one past the last
  AlignedBuffer p_, q_;            // P, once taken; the first Q, and later the summed one
  std::vector<uint32_t> contributors_;
  std::vector<EncodeStats> stats_;  // by part
  bool has_read_ = false;
  size_t taken_ = 0;  // phases
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_LOWRANK_POWERSGD_EXCHANGE_H_
