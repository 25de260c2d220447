// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/link_model.h"

#include <algorithm>
#include <cmath>

#include "compress/policy/least_squares.h"

namespace slimps {
namespace {

// A row counts for at most this many samples. Beyond that the line's own error dominates.
constexpr uint64_t kFullWeightSamples = 9;
// Shorter times are the clock's grain.
constexpr double kShortestNs = 100;
// Coefficients per byte are about 1e-6 of start-up times. Sizes in MB keep the equations well
// conditioned.
constexpr double kMegabyte = 1e6;
// Tensors up to this size take mainly start-up time, so their scatter is noise.
constexpr double kSmallBytes = 64 << 10;
constexpr size_t kFewestSmall = 3;
// How far off a line may be, as a share of the time that depends on the size.
constexpr double kLineError = 0.15;
// ln 2. A size further off its line than by a factor of two is an outlier, or was measured when the
// link was another: the line counts.
constexpr double kOutlier = 0.693;
constexpr double kMadToSigma = 1.4826;
// A difference of start-up times must be this many standard errors. The errors come from few sizes,
// so they are rough.
constexpr double kSure = 5;

double Nanoseconds(absl::Duration time) {
  return std::max(absl::ToDoubleNanoseconds(time), kShortestNs);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

LinkModel::LinkModel(std::span<const ThresholdRow> rows) {
  Samples raw, compressed, coding;
  const auto weight = [](uint64_t samples) {
    return static_cast<double>(std::min(samples, kFullWeightSamples));
  };
  for (const ThresholdRow& row : rows) {
    const auto bytes = static_cast<double>(row.bytes);
    if (row.raw_samples > 0) raw.push_back({bytes, Nanoseconds(row.t_c), weight(row.raw_samples)});
    if (row.compressed_samples == 0) continue;
    compressed.push_back({bytes, Nanoseconds(row.t_cq), weight(row.compressed_samples)});
    coding.push_back({bytes, Nanoseconds(row.t_pq), weight(row.compressed_samples)});
  }
  known_ = raw.size() >= 2 && compressed.size() >= 2;
  if (!known_) return;
  FitLines(raw, compressed, coding);
  // Each kind then has its own start-up time.
  if (StartUpsDiffer(rows)) {
    raw_ = FitLine(raw);
    compressed_ = FitLine(compressed);
  }
  const std::pair<const Samples*, const Line*> communication[] = {{&raw, &raw_},
                                                                  {&compressed, &compressed_}};
  const std::pair<const Samples*, const Line*> computation[] = {{&coding, &coding_}};
  const double link_noise = Noise(communication);
  const double coding_noise = Noise(computation);
  TakeDistances(raw, link_noise, &raw_);
  TakeDistances(compressed, link_noise, &compressed_);
  TakeDistances(coding, coding_noise, &coding_);
}

void LinkModel::FitLines(const Samples& raw, const Samples& compressed, const Samples& coding) {
  std::vector<Equation> link;
  for (const Sample& s : raw) link.push_back({{1, s.bytes / kMegabyte, 0}, s.ns, s.weight});
  for (const Sample& s : compressed) link.push_back({{1, 0, s.bytes / kMegabyte}, s.ns, s.weight});
  const Coefficients times = FitNonNegative(link);
  raw_ = {.startup = times[0], .per_byte = times[1] / kMegabyte};
  compressed_ = {.startup = times[0], .per_byte = times[2] / kMegabyte};
  coding_ = FitLine(coding);
}

LinkModel::Line LinkModel::FitLine(const Samples& samples) {
  std::vector<Equation> equations;
  for (const Sample& s : samples)
    equations.push_back({{1, s.bytes / kMegabyte, 0}, s.ns, s.weight});
  const Coefficients times = FitNonNegative(equations);
  return {.startup = times[0], .per_byte = times[1] / kMegabyte};
}

bool LinkModel::StartUpsDiffer(std::span<const ThresholdRow> rows) const {
  std::vector<double> later;
  for (const ThresholdRow& row : rows) {
    const auto bytes = static_cast<double>(row.bytes);
    if (!row.complete() || bytes > kSmallBytes) continue;
    // Less the lines, so that only start-up times are compared.
    later.push_back(Nanoseconds(row.t_cq) - compressed_.OnLine(bytes) -
                    (Nanoseconds(row.t_c) - raw_.OnLine(bytes)));
  }
  if (later.size() < kFewestSmall) return false;
  const double middle = Median(later);
  std::vector<double> scatter;
  for (const double ns : later) scatter.push_back(std::abs(ns - middle));
  const double error = kMadToSigma * Median(scatter) / std::sqrt(static_cast<double>(later.size()));
  return std::abs(middle) > kSure * std::max(error, kShortestNs);
}

double LinkModel::Noise(std::span<const std::pair<const Samples*, const Line*>> measured) {
  std::vector<double> scatter;
  for (const auto& [samples, line] : measured) {
    for (const Sample& sample : *samples) {
      if (sample.bytes > kSmallBytes) continue;
      scatter.push_back(std::abs(sample.ns - line->OnLine(sample.bytes)));
    }
  }
  if (scatter.size() < kFewestSmall) return 0;
  return kMadToSigma * Median(std::move(scatter));
}

void LinkModel::TakeDistances(const Samples& samples, double noise, Line* line) {
  for (const Sample& sample : samples) {
    // A measured time counts in full where the line's possible error is well above the noise, and
    // hardly where it is below: the usual weight of two estimates by their variances.
    const double trusted = kLineError * line->per_byte * sample.bytes;
    const double share = noise > 0 ? trusted * trusted / (trusted * trusted + noise * noise) : 1;
    const double on_line = std::max(line->OnLine(sample.bytes), kShortestNs);
    const double expected = on_line + share * (sample.ns - on_line);
    const double distance = std::log(expected / on_line);
    line->distances.emplace_back(std::log2(std::max(sample.bytes, 1.0)),
                                 std::abs(distance) > kOutlier ? 0 : distance);
  }
}

double LinkModel::Line::At(double bytes) const {
  const double on_line = std::max(OnLine(bytes), kShortestNs);
  const double size = std::log2(std::max(bytes, 1.0));
  // Outside the measured sizes the distance of the nearest one holds.
  const auto above =
      std::ranges::lower_bound(distances, size, {}, &std::pair<double, double>::first);
  if (above == distances.begin()) return on_line * std::exp(distances.front().second);
  const auto below = above - 1;
  if (above == distances.end()) return on_line * std::exp(below->second);
  const double share = (size - below->first) / (above->first - below->first);
  return on_line * std::exp(below->second + share * (above->second - below->second));
}

PushTimes LinkModel::At(uint64_t bytes) const {
  const auto size = static_cast<double>(bytes);
  return {.t_c = raw_.At(size), .t_cq = compressed_.At(size), .t_pq = coding_.At(size)};
}

}  // namespace slimps
