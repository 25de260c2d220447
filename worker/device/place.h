// SPDX-License-Identifier: Apache-2.0
// Where memory of a tensor lies, as its owner says it.
//
//   const Place of_gpu = {.gpu = 0, .stream = stream};   // made by, or for, work on this stream
#ifndef SLIMPS_WORKER_DEVICE_PLACE_H_
#define SLIMPS_WORKER_DEVICE_PLACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"

namespace slimps {

// The stream that device memory belongs to: whose kernels write a source and read a destination. A
// CUDA stream of the memory's GPU, as torch's `cuda_stream`; null: the legacy default stream. The
// host has none.
using StreamHandle = void*;

// What a gradient on a GPU is made of. Halves travel to the host as they are and become fp32 there.
enum class ElementType : uint8_t { kFloat32, kFloat16, kBfloat16 };

struct Place {
  static constexpr int kHost = -1;
  int gpu = kHost;  // the GPU's number, as CUDA counts them in this process
  StreamHandle stream = nullptr;
  ElementType type = ElementType::kFloat32;  // halves: of a gradient on a GPU

  bool on_host() const { return gpu == kHost; }

  // Returns `elements` of a gradient that lies here, from `offset` on. A span over halves has their
  // number as its size, and of its addresses only the first means anything.
  std::span<const float> PartOf(std::span<const float> gradient, size_t offset,
                                size_t elements) const {
    const size_t bytes = type == ElementType::kFloat32 ? sizeof(float) : sizeof(float) / 2;
    const auto* const begin = reinterpret_cast<const std::byte*>(gradient.data());
    return {reinterpret_cast<const float*>(begin + bytes * offset), elements};
  }
};

// A gradient that its owner lends to a push.
struct LentGradient {
  std::span<const float> values;
  Place place;
  // Called once, on any thread, when the memory is no longer read, with the push's error if it has
  // failed by then. Must not wait for the store.
  std::function<void(absl::Status)> returned;
  // On the host: true if the memory may be kept until the server has acknowledged the push or, if
  // the store fails before, until the store is destroyed. A gradient that travels raw is then sent
  // from where it lies. false: it is copied first.
  bool until_acknowledged = false;
};

// Memory that its owner lends to a pull.
struct LentTarget {
  std::span<float> values;
  Place place;
  // Called once, on any thread, when `values` holds the weights. On a GPU, work that its stream is
  // given from then on sees them. Must not wait for the store.
  std::function<void(absl::Status)> done;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_PLACE_H_
