// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/lowrank/powersgd_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/bytes.h"
#include "compress/format/philox.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status CheckFinite(std::span<const float> factor, std::string_view name) {
  const auto bad = std::ranges::find_if(factor, [](float x) { return !std::isfinite(x); });
  if (bad == factor.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("factor ", std::string(name),
                                                 " of all workers: element ", bad - factor.begin(),
                                                 " is ", *bad, ", expected finite numbers"));
}

double Norm2(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return sum;
}

}  // namespace

void DrawQ(uint64_t seed, uint64_t key, std::span<float> q) {
  const PhiloxStream stream = PhiloxStream::Of(seed, key, /*round=*/0, kAnyWorker, 0);
  constexpr double kUnit = 0x1p-32;
  for (size_t i = 0; i < q.size(); i += 2) {
    const double a = (stream.Word(static_cast<uint32_t>(i)) + 1.0) * kUnit;  // never 0
    const double b = stream.Word(static_cast<uint32_t>(i + 1)) * kUnit;
    const double radius = std::sqrt(-2 * std::log(a)), angle = 2 * std::numbers::pi * b;
    q[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < q.size()) q[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

void WriteFactors(const LowRankLayout& layout, const float* p, size_t p_stride, const float* q,
                  std::span<std::byte> payload) {
  BuildLowRankHeader(layout, payload);
  size_t at = LowRankLayout::UOffset();
  for (size_t row = 0; row < layout.grid.rows(); ++row) {
    for (size_t k = 0; k < layout.rank; ++k, at += sizeof(float)) {
      Store(p[k * p_stride + row], payload, at);
    }
  }
  std::memcpy(payload.data() + at, q, sizeof(float) * layout.rank * layout.grid.row_elements);
}

PowerSgdExchange::PowerSgdExchange(const Kernels& kernels, size_t rank, uint64_t seed,
                                   const PhasedInput& input)
    : kernels_(kernels),
      rank_(rank),
      seed_(seed),
      input_(input),
      rows_(static_cast<size_t>(input.shape[0])),
      columns_(ElementsOfRow(input.shape)),
      p_(AlignedBuffer::OfFloats(rank * rows_)),
      q_(AlignedBuffer::OfFloats(rank * columns_)),
      stats_(input.parts.size()) {
  size_t row = 0;
  for (const PhasedPart& part : input.parts) {
    first_row_.push_back(row);
    row += part.elements / columns_;
  }
  first_row_.push_back(row);
}

LowRankShape PowerSgdExchange::ShapeOf(size_t part) const {
  return {.rows = first_row_[part + 1] - first_row_[part],
          .columns = columns_,
          .rank = rank_,
          .p_stride = rows_};
}

absl::Status PowerSgdExchange::Contribute(size_t phase, std::span<float> out) {
  if (phase == kProject) return Project(out);
  ProjectBack(out);
  return absl::OkStatus();
}

std::span<const float> PowerSgdExchange::BeginningQ() {
  const std::span<const float> last = input_.memory.first(q_.floats().size());
  const auto is_known = [&](size_t k) {
    return std::ranges::any_of(last.subspan(k * columns_, columns_),
                               [](float x) { return x != 0; });
  };
  std::vector<size_t> known;
  for (size_t k = 0; k < rank_; ++k) {
    if (is_known(k)) known.push_back(k);
  }
  if (known.size() == rank_) return last;
  DrawQ(seed_, input_.context.key, q_.floats());
  for (const size_t k : known) {
    std::ranges::copy(last.subspan(k * columns_, columns_),
                      q_.floats().subspan(k * columns_).begin());
  }
  return q_.floats();
}

absl::Status PowerSgdExchange::Project(std::span<float> p) {
  const std::span<const float> q = BeginningQ();
  for (size_t i = 0; i < input_.parts.size(); ++i) {
    const PhasedPart& part = input_.parts[i];
    stats_[i].input_norm2 =
        kernels_.lowrank.project(ShapeOf(i), part.gradient.data(), input_.grad_scale,
                                 part.residual.data(), q.data(), p.data() + first_row_[i]);
    stats_[i].elements_sent = part.gradient.size();
    if (!std::isfinite(stats_[i].input_norm2)) {
      return absl::InvalidArgumentError(
          absl::StrCat("partition ", i,
                       ": gradient and residual are too large: the sum of a row's "
                       "squares exceeds fp32"));
    }
  }
  has_read_ = true;
  return absl::OkStatus();
}

void PowerSgdExchange::ProjectBack(std::span<float> q) {
  const float* const p = std::as_const(p_).floats().data();
  std::ranges::fill(q, 0.0f);
  for (size_t i = 0; i < input_.parts.size(); ++i) {
    kernels_.lowrank.project_back(ShapeOf(i), input_.parts[i].residual.data(), p + first_row_[i],
                                  q.data());
  }
  for (size_t i = 0; i < input_.parts.size(); ++i) {
    stats_[i].error_norm2 = kernels_.lowrank.subtract(ShapeOf(i), p + first_row_[i], q.data(),
                                                      input_.parts[i].residual.data());
  }
  // P is orthonormal, so |P Q^T| = |Q|. The first part has it for the whole tensor.
  stats_[0].decoded_norm2 = Norm2(q);
}

absl::Status PowerSgdExchange::Take(size_t phase, std::span<const float> combined,
                                    std::span<const uint32_t> contributors) {
  SLIMPS_RETURN_IF_ERROR(CheckFinite(combined, phase == kProject ? "P" : "Q"));
  taken_ = phase + 1;
  std::ranges::copy(combined, (phase == kProject ? p_ : q_).floats().begin());
  if (phase == kProject) return absl::OkStatus();
  contributors_.assign(contributors.begin(), contributors.end());
  if (!contributors_.empty()) Remember(combined);
  return absl::OkStatus();
}

void PowerSgdExchange::Remember(std::span<const float> q) {
  float largest = 0;
  for (const float value : q) largest = std::max(largest, std::abs(value));
  const int exponent = largest == 0 ? 0 : std::ilogb(largest);
  std::ranges::transform(q, input_.memory.begin(), [exponent](float value) {
    return static_cast<float>(std::ldexp(double{value}, -exponent));
  });
  std::ranges::fill(input_.memory.subspan(q.size()), 0.0f);
}

bool PowerSgdExchange::Sends(size_t part) const {
  if (contributors_.empty()) return false;
  const uint64_t turn = (part + input_.context.round) % contributors_.size();
  return contributors_[turn] == input_.context.worker;
}

LowRankLayout PowerSgdExchange::LayoutOf(size_t part) const {
  return {.grid = {.elements = input_.parts[part].elements, .row_elements = columns_},
          .rank = rank_};
}

size_t PowerSgdExchange::MaxPayloadBytes(size_t part) const {
  return LayoutOf(part).PayloadBytes();
}

absl::StatusOr<size_t> PowerSgdExchange::Write(size_t part, std::span<std::byte> payload) {
  WriteFactors(LayoutOf(part), std::as_const(p_).floats().data() + first_row_[part], rows_,
               std::as_const(q_).floats().data(), payload);
  return LayoutOf(part).PayloadBytes();
}

}  // namespace slimps
