// SPDX-License-Identifier: Apache-2.0
#include "compress/kernels/kernels.h"

#include "compress/kernels/kernel_sets.h"

namespace slimps {
namespace {

// In rising order: PickBest takes the last that runs here.
constexpr const Kernels* kAll[] = {&kScalarKernels, &kAvx2Kernels, &kAvx512Kernels};

const Kernels* PickBest() {
  const Kernels* best = &kScalarKernels;
  for (const Kernels* kernels : kAll) {
    if (kernels->runs_here()) best = kernels;
  }
  return best;
}

}  // namespace

std::span<const Kernels* const> AllKernels() { return kAll; }

const Kernels& BestKernels() {
  static const Kernels* const best = PickBest();
  return *best;
}

const Kernels* FindKernels(std::string_view name) {
  for (const Kernels* kernels : kAll) {
    if (kernels->name == name) return kernels;
  }
  return nullptr;
}

}  // namespace slimps
