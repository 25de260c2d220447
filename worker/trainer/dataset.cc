// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/dataset.h"

#include "absl/strings/str_cat.h"
#include "worker/trainer/dataset_formats.h"

namespace slimps {

namespace {

// Where Debian's python3-sklearn keeps the UCI handwritten digits.
constexpr char kDebianDigitsDir[] = "/usr/lib/python3/dist-packages/sklearn/datasets/data";

}  // namespace

size_t Dataset::SampleElements() const {
  size_t elements = 1;
  for (const int64_t extent : sample_shape) elements *= static_cast<size_t>(extent);
  return elements;
}

void Dataset::AppendSample(const Split& split, size_t index, std::vector<float>* out) const {
  const size_t elements = SampleElements();
  const size_t per_channel = elements / scale.size();
  const uint8_t* bytes = split.values.data() + index * elements;
  for (size_t channel = 0; channel < scale.size(); ++channel) {
    for (size_t i = 0; i < per_channel; ++i) {
      out->push_back(bytes[channel * per_channel + i] * scale[channel] + shift[channel]);
    }
  }
}

absl::StatusOr<Dataset> LoadDataset(std::string_view name, std::string_view data_dir) {
  const std::string dir(data_dir);
  if (name == "digits") return LoadDigits(dir.empty() ? kDebianDigitsDir : dir);
  if (name != "mnist" && name != "cifar10" && name != "text") {
    return absl::InvalidArgumentError(absl::StrCat(
        "dataset '", std::string(name), "' is unknown; known: digits, mnist, cifar10, text"));
  }
  if (dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dataset ", std::string(name), " needs a data_dir that holds its files"));
  }
  if (name == "mnist") return LoadMnist(dir);
  if (name == "cifar10") return LoadCifar10(dir);
  return LoadText(dir);
}

}  // namespace slimps
