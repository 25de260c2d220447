// SPDX-License-Identifier: Apache-2.0
// CGX's k-means heuristic (allocation.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "compress/policy/allocation/allocation.h"

namespace slimps {
namespace {

constexpr size_t kPasses = 100;  // of Lloyd's algorithm, at most
constexpr int kShifts = 64;

using Point = std::array<double, 2>;  // size, error

double Distance2(const Point& a, const Point& b) {
  return (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]);
}

// Scales one coordinate of all points to [0, 1].
void Scale(std::vector<Point>& points, size_t axis) {
  const auto by_axis = [axis](const Point& p) { return p[axis]; };
  const double low = by_axis(std::ranges::min(points, {}, by_axis));
  const double range = by_axis(std::ranges::max(points, {}, by_axis)) - low;
  for (Point& point : points) point[axis] = range > 0 ? (point[axis] - low) / range : 0;
}

std::vector<Point> PointsOf(const AllocationProblem& problem, std::span<const uint64_t> sizes,
                            const Allocation& reference) {
  std::vector<Point> points;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double error = problem.tensors[i][reference[i]].error;
    points.push_back({std::log(static_cast<double>(std::max<uint64_t>(sizes[i], 1))),
                      std::log(std::max(error, std::numeric_limits<double>::min()))});
  }
  Scale(points, 0);
  Scale(points, 1);
  return points;
}

size_t Nearest(const std::vector<Point>& centres, const Point& point) {
  const auto distance = [&](const Point& centre) { return Distance2(centre, point); };
  return static_cast<size_t>(std::ranges::min_element(centres, {}, distance) - centres.begin());
}

// Returns starting centres: the first point, then each time the point furthest from all centres.
std::vector<Point> StartingCentres(const std::vector<Point>& points, size_t clusters) {
  std::vector<Point> centres = {points[0]};
  while (centres.size() < clusters) {
    const auto distance = [&](const Point& p) {
      return Distance2(p, centres[Nearest(centres, p)]);
    };
    const Point& furthest = *std::ranges::max_element(points, {}, distance);
    if (distance(furthest) == 0) break;  // fewer different points than clusters
    centres.push_back(furthest);
  }
  return centres;
}

std::vector<Point> Centres(const std::vector<Point>& points, size_t clusters) {
  std::vector<Point> centres = StartingCentres(points, clusters);
  for (size_t pass = 0; pass < kPasses; ++pass) {
    std::vector<Point> sums(centres.size(), Point{});
    std::vector<double> counts(centres.size(), 0);
    for (const Point& point : points) {
      const size_t group = Nearest(centres, point);
      sums[group] = {sums[group][0] + point[0], sums[group][1] + point[1]};
      counts[group] += 1;
    }
    std::vector<Point> moved = centres;
    for (size_t i = 0; i < moved.size(); ++i) {
      if (counts[i] > 0) moved[i] = {sums[i][0] / counts[i], sums[i][1] / counts[i]};
    }
    if (moved == centres) break;
    centres = std::move(moved);
  }
  return centres;
}

// Returns each tensor's levels from the least to the most compressed.
std::vector<Allocation> LevelsInOrder(const AllocationProblem& problem) {
  std::vector<Allocation> ordered;
  for (const Levels& levels : problem.tensors) {
    Allocation order(levels.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](size_t level) { return levels[level].error; });
    ordered.push_back(std::move(order));
  }
  return ordered;
}

}  // namespace

Allocation ByClusters(const AllocationProblem& problem, std::span<const uint64_t> sizes,
                      size_t clusters, const Allocation& reference) {
  if (sizes.empty()) return reference;
  const std::vector<Point> points = PointsOf(problem, sizes, reference);
  std::vector<Point> centres = Centres(points, clusters);
  std::ranges::sort(centres, {}, [](const Point& c) { return c[0] - c[1]; });
  const std::vector<Allocation> ordered = LevelsInOrder(problem);
  const double last = static_cast<double>(std::max<size_t>(centres.size() - 1, 1));
  for (int shift = 0; shift <= kShifts; ++shift) {
    Allocation allocation;
    for (size_t i = 0; i < points.size(); ++i) {
      const double group = static_cast<double>(Nearest(centres, points[i]));
      const double place =
          std::clamp((centres.size() == 1 ? 1 : group / last) - shift / double{kShifts}, 0.0, 1.0);
      const double level = place * static_cast<double>(ordered[i].size() - 1);
      allocation.push_back(ordered[i][static_cast<size_t>(std::lround(level))]);
    }
    if (!WithinBudget(problem, allocation)) continue;
    const bool better =
        TotalCost(problem.tensors, allocation) < TotalCost(problem.tensors, reference);
    return better ? allocation : reference;
  }
  return reference;
}

}  // namespace slimps
