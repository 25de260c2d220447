// SPDX-License-Identifier: Apache-2.0
// Data sets in memory for models that need real shapes. Deterministic.
#ifndef SLIMPS_TESTS_WORKER_TRAINER_SYNTHETIC_DATA_H_
#define SLIMPS_TESTS_WORKER_TRAINER_SYNTHETIC_DATA_H_

#include <cstdint>
#include <random>
#include <vector>

#include "worker/trainer/dataset.h"

namespace slimps {

// Returns `count` images of noise with a bright bar, whose place is the label. A model learns them
// in a few steps.
inline Dataset SyntheticImages(size_t count, std::vector<int64_t> shape) {
  Dataset data;
  data.name = "images";
  data.sample_shape = std::move(shape);
  data.scale.assign(static_cast<size_t>(data.sample_shape[0]), 1.0f / 128);
  data.shift.assign(static_cast<size_t>(data.sample_shape[0]), -1.0f);
  data.classes = 10;
  std::mt19937 random(1);
  const size_t elements = data.SampleElements();
  for (Split* split : {&data.train, &data.test}) {
    split->count = count;
    for (size_t i = 0; i < count; ++i) {
      const size_t label = random() % 10;
      split->labels.push_back(static_cast<int64_t>(label));
      for (size_t k = 0; k < elements; ++k) {
        const bool bar = k % 10 == label;
        split->values.push_back(static_cast<uint8_t>(random() % 64 + (bar ? 160 : 0)));
      }
    }
  }
  return data;
}

// Returns windows over a text that repeats a, b, c, ... g.
inline Dataset SyntheticText(size_t count) {
  Dataset data;
  data.name = "text";
  data.sample_shape = {64};
  data.scale = {1.0f};
  data.shift = {0.0f};
  data.labels_per_sample = 64;
  data.classes = 7;
  for (Split* split : {&data.train, &data.test}) {
    split->count = count;
    for (size_t i = 0; i < count * 64; ++i) {
      split->values.push_back(static_cast<uint8_t>(i % 7));
      split->labels.push_back(static_cast<int64_t>((i + 1) % 7));
    }
  }
  return data;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_TRAINER_SYNTHETIC_DATA_H_
