// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/trainer/data_file.h"
#include "worker/trainer/dataset_formats.h"

namespace slimps {

namespace {

constexpr size_t kMaxBytes = 256 << 20;

// Cuts whole windows only. The last label needs one character after the windows.
Split CutWindows(std::span<const uint8_t> characters) {
  Split split;
  split.count = characters.empty() ? 0 : (characters.size() - 1) / kTextWindow;
  const size_t used = split.count * kTextWindow;
  split.values.assign(characters.begin(), characters.begin() + used);
  if (used > 0) split.labels.assign(characters.begin() + 1, characters.begin() + 1 + used);
  return split;
}

}  // namespace

absl::StatusOr<Dataset> LoadText(const std::string& dir) {
  const std::string path = dir + "/input.txt";
  SLIMPS_ASSIGN_OR_RETURN(std::vector<uint8_t> characters, ReadPlainFile(path, kMaxBytes));
  std::array<bool, 256> seen{};
  for (const uint8_t c : characters) seen[c] = true;
  std::array<uint8_t, 256> index{};
  int64_t classes = 0;
  for (size_t c = 0; c < seen.size(); ++c) {
    if (seen[c]) index[c] = static_cast<uint8_t>(classes++);
  }
  for (uint8_t& c : characters) c = index[c];
  const size_t train = characters.size() * 9 / 10;
  Dataset data{.name = "text",
               .sample_shape = {static_cast<int64_t>(kTextWindow)},
               .scale = {1.0f},
               .shift = {0.0f},
               .labels_per_sample = kTextWindow,
               .classes = classes};
  data.train = CutWindows(std::span<const uint8_t>(characters).first(train));
  data.test = CutWindows(std::span<const uint8_t>(characters).subspan(train));
  if (data.train.count == 0 || data.test.count == 0) {
    return absl::DataLossError(absl::StrCat(path, ": expected at least ", 10 * (kTextWindow + 1),
                                            " characters, got ", characters.size()));
  }
  return data;
}

}  // namespace slimps
