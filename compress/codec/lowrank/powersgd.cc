// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/powersgd.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "compress/codec/lowrank/matrix.h"
#include "compress/codec/lowrank/matrix_run.h"
#include "compress/codec/lowrank/orthonormal.h"
#include "compress/codec/lowrank/powersgd_exchange.h"
#include "compress/codec/options.h"
#include "compress/codec/phases.h"
#include "compress/format/low_rank.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// A factor travels in one message.
constexpr size_t kMaxFactorElements = size_t{12} << 20;

// The sums of a row's squares stay finite.
constexpr float kMaxSquared = 0x1p47f;

struct PowerSgdOptions {
  size_t rank = 4;
  uint64_t seed = 0;
};

// Codec::Encode: the exchange of one worker alone.
class AloneRun final : public MatrixRun {
 public:
  AloneRun(const Kernels& kernels, const PowerSgdOptions& options, const EncodeInput& input,
           std::span<std::byte> payload, EncodeWorkspace& workspace)
      : MatrixRun(kernels, options.rank, input, payload, workspace),
        options_(options),
        zeros_(workspace.Take<float>(matrix_.size())),
        memory_(workspace.Take<float>(options.rank * layout_.grid.row_elements)) {
    std::ranges::fill(zeros_, 0.0f);
    std::ranges::fill(memory_, 0.0f);
  }

  EncodeStats Run() override {
    EncodeStats stats = MatrixRun::Run();
    stats.decoded_norm2 = is_matrix_ ? decoded_norm2_ : stats.input_norm2;
    return stats;
  }

 private:
  // Leaves in x what the payload leaves out.
  void Factor() override {
    const size_t rows = layout_.grid.rows(), columns = layout_.grid.row_elements;
    layout_.rank = options_.rank;
    const int64_t shape[] = {static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
    const PhasedPart whole{.elements = rows * columns, .gradient = zeros_, .residual = matrix_};
    PhasedInput input{
        .shape = shape, .parts = {&whole, 1}, .memory = memory_, .context = input_.context};
    PowerSgdExchange exchange(kernels_, options_.rank, options_.seed, input);
    std::vector<float> p(options_.rank * rows), q(options_.rank * columns);
    const uint32_t alone[] = {input_.context.worker};
    // None of these can fail: all |x| are under kMaxSquared.
    exchange.Contribute(PowerSgdExchange::kProject, p).IgnoreError();
    Orthonormalise(options_.rank, rows, input_.context.round, p);
    exchange.Take(PowerSgdExchange::kProject, p, alone).IgnoreError();
    exchange.Contribute(PowerSgdExchange::kProjectBack, q).IgnoreError();
    exchange.Take(PowerSgdExchange::kProjectBack, q, alone).IgnoreError();
    decoded_norm2_ = exchange.StatsOf(0).decoded_norm2;
    WriteFactors(layout_, p.data(), rows, q.data(), payload_);
  }

  void FinishBlock(size_t block, const BlockInput& in) override {
    alignas(64) float unused[kBlockElements];
    float* const out = in.residual == nullptr ? unused : in.residual;
    if (!is_matrix_) std::fill_n(XOf(block), in.elements, 0.0f);  // nothing is left out
    sums_[block].error2 = kernels_.raw
                              .encode_f32(XOf(block), nullptr, /*grad_scale=*/1, in.elements,
                                          reinterpret_cast<std::byte*>(out))
                              .input2;
    sums_[block].sent = static_cast<uint32_t>(in.elements);
  }

  const PowerSgdOptions options_;
  const std::span<float> zeros_, memory_;
  double decoded_norm2_ = 0;
};

// L-GreCo (appendix B.2) has found as many enough to come close to the best approximation.
constexpr int kPowerSteps = 5;

// PhasedCodec::KeptNorm2. P is orthonormal and Q = X^T P, so |X - P Q^T|^2 = |X|^2 - |Q|^2, and the
// same holds for their first vectors, which are those that a lower rank would have.
std::vector<double> KeptByRank(const Kernels& kernels, size_t rank, uint64_t seed, KeyId key,
                               const RowGrid& grid, std::span<float> x) {
  const size_t rows = grid.rows(), columns = grid.row_elements;
  const LowRankShape shape = {.rows = rows, .columns = columns, .rank = rank, .p_stride = rows};
  std::vector<float> p(rank * rows), q(rank * columns);
  DrawQ(seed, key, q);
  for (int step = 0; step < kPowerSteps; ++step) {
    // x * 0 + x is x.
    kernels.lowrank.project(shape, x.data(), /*grad_scale=*/0, x.data(), q.data(), p.data());
    Orthonormalise(rank, rows, static_cast<uint64_t>(step), p);
    std::ranges::fill(q, 0.0f);
    kernels.lowrank.project_back(shape, x.data(), p.data(), q.data());
  }
  std::vector<double> kept;
  double sum = 0;
  for (size_t k = 0; k < rank; ++k) {
    for (size_t j = 0; j < columns; ++j) {
      sum += double{q[k * columns + j]} * double{q[k * columns + j]};
    }
    kept.push_back(sum);
  }
  return kept;
}

// Thread-safe: constant after construction.
class PowerSgdCodec final : public Codec, public PhasedCodec {
 public:
  PowerSgdCodec(CodecSpec spec, const Kernels& kernels, const PowerSgdOptions& options)
      : Codec(std::move(spec), kernels, kMaxSquared), options_(options) {}

  PayloadFormat format() const override { return PayloadFormat::kLowRank; }
  bool wants_residual() const override { return true; }
  const PhasedCodec* phases() const override { return this; }
  bool Takes(std::span<const int64_t> shape) const override {
    return !AuxiliaryKeys(shape).empty();
  }
  // Factors take at most half of that: matrix.h.
  size_t MaxPayloadBytes(size_t elements) const override {
    return kLowRankHeaderBytes + sizeof(float) * (1 + elements);
  }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    return AloneRun(kernels(), options_, input, payload, workspace).Run();
  }

  std::vector<AuxiliaryShape> AuxiliaryKeys(std::span<const int64_t> shape) const override {
    if (shape.size() < 2) return {};
    const RowGrid grid = WholeGrid(shape);
    const size_t longer = std::max(grid.rows(), grid.row_elements);
    if (!IsMatrixWorthwhile(grid, options_.rank) || longer > kMaxFactorElements / options_.rank) {
      return {};
    }
    return {{.name = "p",
             .combine = Combine::kOrthogonalise,
             .rows = options_.rank,
             .columns = grid.rows()},
            {.name = "q",
             .combine = Combine::kSum,
             .rows = options_.rank,
             .columns = grid.row_elements}};
  }

  bool wants_memory() const override { return true; }
  bool encodes_alone() const override { return false; }

  size_t PartitionElements(std::span<const int64_t> shape,
                           const PartitionWishes& wishes) const override {
    const RowGrid grid = WholeGrid(shape);
    const size_t each = (grid.rows() - 1) / wishes.servers + 1;
    const size_t most = std::max<size_t>(1, wishes.max_elements / grid.row_elements);
    return std::min(each, most) * grid.row_elements;
  }

  std::vector<double> KeptNorm2(std::span<const int64_t> shape, KeyId key,
                                std::span<float> x) const override {
    return KeptByRank(kernels(), options_.rank, options_.seed, key, WholeGrid(shape), x);
  }

  std::unique_ptr<PhasedRun> BeginExchange(const PhasedInput& input) const override {
    return std::make_unique<PowerSgdExchange>(kernels(), options_.rank, options_.seed, input);
  }

 private:
  const PowerSgdOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakePowerSgdCodec(const CodecSpec& spec,
                                                         const Kernels& kernels) {
  PowerSgdOptions options;
  SLIMPS_ASSIGN_OR_RETURN(options.rank, UintOption(spec, "rank", 1, kMaxRank, 4));
  SLIMPS_ASSIGN_OR_RETURN(options.seed,
                          UintOption(spec, "seed", 0, std::numeric_limits<uint64_t>::max(), 0));
  return std::make_unique<PowerSgdCodec>(spec, kernels, options);
}

}  // namespace slimps
