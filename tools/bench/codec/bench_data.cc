// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/bench_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

namespace slimps {
namespace {

// SplitMix64: cheap and good enough for test data.
class Random final {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // Returns a number in (0, 1).
  double Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

// Returns normally distributed numbers (Box-Muller), none of them 0.
AlignedBuffer Normal(size_t elements) {
  AlignedBuffer buffer = AlignedBuffer::OfFloats(elements);
  const std::span<float> values = buffer.floats();
  Random random(1);
  for (size_t i = 0; i < values.size(); i += 2) {
    const double radius = std::sqrt(-2 * std::log(random.Next()));
    const double angle = 2 * std::numbers::pi * random.Next();
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  for (float& value : values) {
    if (value == 0) value = 1e-6f;
  }
  return buffer;
}

}  // namespace

BenchData::BenchData(size_t max_elements) : BenchData(Normal(max_elements + kSpareElements)) {}

BenchData::BenchData(AlignedBuffer gradient) : gradient_(std::move(gradient)) {
  for (const float value : gradient_.floats()) {
    gradient_bound_ = std::max(gradient_bound_, std::fabs(value));
  }
}

BenchData::Gradient BenchData::OfRound(size_t elements, uint64_t round, size_t first) const {
  return {.values = gradient_.floats().subspan(first + round % kShifts * kShiftElements, elements),
          .sign = round / kShifts % 2 == 0 ? 1.0f : -1.0f};
}

void BenchData::FillAged(std::span<float> residual) const {
  Random random(2);
  for (float& value : residual) {
    value = kAgedBound * static_cast<float>(random.Next() - random.Next());
  }
}

std::span<std::byte> BenchData::Bytes(Slot slot, size_t bytes) {
  AlignedBuffer& buffer = slots_[slot];
  if (buffer.size() < bytes) {
    buffer = AlignedBuffer();  // frees before it allocates
    buffer = AlignedBuffer(bytes);
    std::memset(buffer.bytes().data(), 0, bytes);
  }
  return buffer.bytes().first(bytes);
}

std::span<float> BenchData::Floats(Slot slot, size_t elements) {
  const std::span<std::byte> bytes = Bytes(slot, elements * sizeof(float));
  return {reinterpret_cast<float*>(bytes.data()), elements};
}

}  // namespace slimps
