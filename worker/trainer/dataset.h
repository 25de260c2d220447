// SPDX-License-Identifier: Apache-2.0
// Dataset: a data set in host memory, and its loader.
//
//   SLIMPS_ASSIGN_OR_RETURN(const Dataset data, LoadDataset("mnist", "/data/mnist"));
//   data.train.count                      // 60000
//   data.AppendSample(data.train, 7, &x)  // 784 floats, normalised
//
// Samples stay the bytes that the files hold. They become floats when a batch is made, so that
// CIFAR-10 takes 154 MB per worker instead of 614.
#ifndef SLIMPS_WORKER_TRAINER_DATASET_H_
#define SLIMPS_WORKER_TRAINER_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace slimps {

struct Split {
  size_t count = 0;             // samples
  std::vector<uint8_t> values;  // count * SampleElements(), row-major
  std::vector<int64_t> labels;  // count * labels_per_sample, each in [0, classes)
};

// Thread-compatible: the loader fills it, and all others only read it.
struct Dataset {
  std::string name{};
  // Images: {channels, height, width}. Text: {characters of one window}.
  std::vector<int64_t> sample_shape{};
  // A byte v of channel c stands for v * scale[c] + shift[c]. Text has one channel, whose bytes are
  // indices into the vocabulary.
  std::vector<float> scale{};
  std::vector<float> shift{};
  // For text, one label per character of the window: the character that follows it.
  size_t labels_per_sample = 1;
  int64_t classes = 0;
  Split train{};
  Split test{};

  size_t SampleElements() const;

  // Appends the sample's normalised floats to `out`.
  // REQUIRES: index < split.count.
  void AppendSample(const Split& split, size_t index, std::vector<float>* out) const;
};

// Loads the data set `name`: "digits", "mnist", "cifar10" or "text". The files lie directly in
// `data_dir`. For digits alone `data_dir` may be empty: the loader then looks where Debian's
// python3-sklearn puts them.
// InvalidArgument: unknown name, or no `data_dir`.
// NotFound: a file is missing.
// DataLoss: a file differs from its format; the message names file, expected and got.
[[nodiscard]] absl::StatusOr<Dataset> LoadDataset(std::string_view name, std::string_view data_dir);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_DATASET_H_
