// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/model.h"

namespace slimps {

Minibatch GatherBatch(const Dataset& data, const Split& split, std::span<const uint32_t> samples) {
  Minibatch batch;
  batch.samples = samples.size();
  batch.values.reserve(samples.size() * data.SampleElements());
  batch.labels.reserve(samples.size() * data.labels_per_sample);
  for (const uint32_t sample : samples) {
    data.AppendSample(split, sample, &batch.values);
    const auto first = split.labels.begin() + sample * data.labels_per_sample;
    batch.labels.insert(batch.labels.end(), first, first + data.labels_per_sample);
  }
  return batch;
}

}  // namespace slimps
