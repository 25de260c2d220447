// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/powersgd.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "compress/codec/encode_run.h"
#include "compress/codec/lowrank/matrix.h"
#include "compress/codec/lowrank/orthonormal.h"
#include "compress/codec/lowrank/powersgd_exchange.h"
#include "compress/codec/options.h"
#include "compress/codec/phases.h"
#include "compress/format/bytes.h"
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

// Codec::Encode: the exchange of one worker alone. Owned by one encoding. Blocks collect x; the
// rest is done by one thread.
class AloneRun final : public EncodeRun {
 public:
  AloneRun(const Kernels& kernels, const PowerSgdOptions& options, const EncodeInput& input,
           std::span<std::byte> payload, EncodeWorkspace& workspace)
      : kernels_(kernels),
        options_(options),
        input_(input),
        payload_(payload),
        sums_(workspace.Take<BlockSums>(Codec::Blocks(input.gradient.size()))),
        is_matrix_(IsMatrixWorthwhile(input.context.grid, options.rank)),
        layout_{.grid = is_matrix_ ? input.context.grid : OneRow(input.gradient.size())},
        matrix_(workspace.Take<float>(layout_.grid.rows() * layout_.grid.row_elements)),
        zeros_(workspace.Take<float>(matrix_.size())),
        memory_(workspace.Take<float>(options.rank * layout_.grid.row_elements)) {
    // Only the first and the last row can be cut: what lies outside the partition counts as 0.
    std::ranges::fill(matrix_.first(layout_.grid.skip), 0.0f);
    std::ranges::fill(matrix_.subspan(layout_.grid.skip + input.gradient.size()), 0.0f);
    std::ranges::fill(zeros_, 0.0f);
    std::ranges::fill(memory_, 0.0f);
  }

  size_t passes() const override { return 2; }

  void Blocks(size_t pass, size_t first, size_t last) override {
    for (size_t block = first; block < last; ++block) {
      const BlockInput in(input_, block);
      std::byte* const x = reinterpret_cast<std::byte*>(XOf(block));
      if (pass == 0) {
        sums_[block].input2 =
            kernels_.raw.encode_f32(in.gradient, in.residual, input_.grad_scale, in.elements, x)
                .input2;
      } else {
        FinishBlock(block, in);
      }
    }
  }

  void EndPass(size_t pass) override {
    if (pass != 0) return;
    if (is_matrix_) {
      Exchange();
    } else {
      SendWhole();
    }
  }

  EncodeStats Finish() override {
    EncodeStats stats = SumOf(sums_);
    stats.decoded_norm2 = is_matrix_ ? decoded_norm2_ : stats.input_norm2;
    stats.payload_bytes = layout_.PayloadBytes();
    return stats;
  }

 private:
  static RowGrid OneRow(size_t elements) {
    return {.elements = elements, .row_elements = std::max<size_t>(elements, 1)};
  }

  float* XOf(size_t block) const {
    return matrix_.data() + layout_.grid.skip + block * kBlockElements;
  }

  // Moves the block's error, which the exchange left in x, to the residual.
  void FinishBlock(size_t block, const BlockInput& in) const {
    alignas(64) float unused[kBlockElements];
    float* const out = in.residual == nullptr ? unused : in.residual;
    sums_[block].error2 = kernels_.raw
                              .encode_f32(XOf(block), nullptr, /*grad_scale=*/1, in.elements,
                                          reinterpret_cast<std::byte*>(out))
                              .input2;
    sums_[block].sent = static_cast<uint32_t>(in.elements);
  }

  void SendWhole() {
    layout_.rank = layout_.grid.elements == 0 ? 0 : 1;
    BuildLowRankHeader(layout_, payload_);
    if (layout_.rank == 0) return;
    Store(1.0f, payload_, LowRankLayout::UOffset());
    std::ranges::copy(std::as_bytes(matrix_),
                      payload_.begin() + static_cast<std::ptrdiff_t>(layout_.VOffset()));
    std::ranges::fill(matrix_, 0.0f);  // nothing is left out
  }

  void Exchange() {
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

  const Kernels& kernels_;
  const PowerSgdOptions options_;
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  const bool is_matrix_;
  LowRankLayout layout_;           // only EndPass writes it, between passes
  const std::span<float> matrix_;  // x, and later what the payload leaves out
  const std::span<float> zeros_, memory_;
  double decoded_norm2_ = 0;
};

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
  std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                   EncodeWorkspace& workspace) const override {
    return std::make_unique<AloneRun>(kernels(), options_, input, payload, workspace);
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
