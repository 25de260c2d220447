// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/atomo.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/lowrank/atoms.h"
#include "compress/codec/lowrank/matrix.h"
#include "compress/codec/lowrank/matrix_run.h"
#include "compress/codec/lowrank/spectrum.h"
#include "compress/codec/options.h"
#include "compress/format/bytes.h"
#include "compress/format/low_rank.h"
#include "compress/format/philox.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Every |x| up to this decodes to a finite number: sigma / p is at most the sum of all singular
// values, which is under 2^64 times the elements.
constexpr float kMaxFactored = 0x1p64f;

constexpr float kLargestBudget = 4096;

struct AtomoOptions {
  double budget = 3;  // s
  uint64_t seed = 0;

  size_t most_atoms() const { return static_cast<size_t>(std::ceil(budget)); }
};

// Returns a random number in [0, 1).
double UniformOf(uint64_t seed, const EncodeContext& context) {
  const PhiloxStream stream =
      PhiloxStream::Of(seed, context.key, context.round, context.worker, context.partition);
  const uint64_t bits = uint64_t{stream.Word(0)} << 21 | stream.Word(1) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Returns the norm of a vector.
double NormOf(std::span<const double> vector) {
  double sum = 0;
  for (const double x : vector) sum += x * x;
  return std::sqrt(sum);
}

class AtomoRun final : public MatrixRun {
 public:
  AtomoRun(const Kernels& kernels, const AtomoOptions& options, const EncodeInput& input,
           std::span<std::byte> payload, EncodeWorkspace& workspace)
      : MatrixRun(kernels, options.most_atoms(), input, payload, workspace), options_(options) {}

 private:
  void Factor() override {
    const MatrixView matrix = {.rows = layout_.grid.rows(),
                               .columns = layout_.grid.row_elements,
                               .values = matrix_.data()};
    const Spectrum spectrum = SpectrumOf(matrix);
    const std::vector<double> p = AtomProbabilities(spectrum.values, options_.budget);
    const std::vector<size_t> drawn = DrawAtoms(p, UniformOf(options_.seed, input_.context));
    layout_.rank = drawn.size();
    BuildLowRankHeader(layout_, payload_);
    for (size_t i = 0; i < drawn.size(); ++i) {
      const std::span<const double> w = spectrum.Vector(drawn[i]);
      const std::vector<double> other = OtherSide(matrix, w);
      // w other^T / p, its size shared by both factors alike: neither of them overflows then.
      const double share = std::sqrt(NormOf(other) / p[drawn[i]]);
      const double rest = share == 0 ? 0 : 1 / (p[drawn[i]] * share);
      if (matrix.is_wide()) {
        WriteAtom(i, w, share, other, rest);
      } else {
        WriteAtom(i, other, rest, w, share);
      }
    }
  }

  // Writes factor i: u times `u_scale` and v times `v_scale`.
  void WriteAtom(size_t i, std::span<const double> u, double u_scale, std::span<const double> v,
                 double v_scale) const {
    for (size_t row = 0; row < u.size(); ++row) {
      Store(static_cast<float>(u[row] * u_scale), payload_,
            LowRankLayout::UOffset() + 4 * (row * layout_.rank + i));
    }
    for (size_t column = 0; column < v.size(); ++column) {
      Store(static_cast<float>(v[column] * v_scale), payload_,
            layout_.VOffset() + 4 * (i * v.size() + column));
    }
  }

  void FinishBlock(size_t block, const BlockInput& in) override {
    BlockSums& sums = sums_[block];
    alignas(64) float decoded[kBlockElements], error[kBlockElements];
    DecodeLowRank(kernels_, payload_.first(layout_.PayloadBytes()), block * kBlockElements,
                  {decoded, in.elements});
    float* const out = in.residual == nullptr ? error : in.residual;
    sums.error2 = kernels_.raw
                      .encode_f32(decoded, XOf(block), /*grad_scale=*/-1, in.elements,
                                  reinterpret_cast<std::byte*>(out))
                      .input2;
    sums.decoded2 = kernels_.momentum.norm2(decoded, /*grad_scale=*/1, in.elements);
    sums.sent = layout_.rank == 0 ? 0 : static_cast<uint32_t>(in.elements);
  }

  const AtomoOptions options_;
};

// Thread-safe: constant after construction.
class AtomoCodec final : public Codec {
 public:
  AtomoCodec(CodecSpec spec, const Kernels& kernels, const AtomoOptions& options)
      : Codec(std::move(spec), kernels, kMaxFactored), options_(options) {}

  PayloadFormat format() const override { return PayloadFormat::kLowRank; }
  bool wants_residual() const override { return false; }
  bool Takes(std::span<const int64_t> shape) const override {
    return shape.size() > 1 && IsMatrixWorthwhile(WholeGrid(shape), options_.most_atoms());
  }
  // Atoms take at most half of that: matrix.h.
  size_t MaxPayloadBytes(size_t elements) const override {
    return kLowRankHeaderBytes + sizeof(float) * (1 + elements);
  }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    return AtomoRun(kernels(), options_, input, payload, workspace).Run();
  }

 private:
  const AtomoOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeAtomoCodec(const CodecSpec& spec,
                                                      const Kernels& kernels) {
  AtomoOptions options;
  SLIMPS_ASSIGN_OR_RETURN(const float budget, FloatOption(spec, "s", FloatRange::kPositive, 3));
  if (budget > kLargestBudget) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec atomo, option s: expected at most ", kLargestBudget, ", got ", budget));
  }
  options.budget = static_cast<double>(budget);
  SLIMPS_ASSIGN_OR_RETURN(options.seed,
                          UintOption(spec, "seed", 0, std::numeric_limits<uint64_t>::max(), 0));
  return std::make_unique<AtomoCodec>(spec, kernels, options);
}

}  // namespace slimps
