// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/trainer/batch_plan.h"
#include "worker/trainer/data_file.h"
#include "worker/trainer/dataset_formats.h"

namespace slimps {

namespace {

constexpr size_t kPixels = 64;
constexpr int kBrightest = 16;
// Mean and deviation of all pixels of the set, which range from 0 to 16.
constexpr float kMean = 4.884f;
constexpr float kDeviation = 6.017f;
constexpr size_t kMaxBytes = 4 << 20;
// The split is part of what "digits" means here: it does not depend on the run's seed.
constexpr uint64_t kSplitSeed = 20250;

absl::Status BadLine(const std::string& path, size_t line, std::string_view expected,
                     std::string_view got) {
  return absl::DataLossError(absl::StrCat(path, " line ", line, ": expected ",
                                          std::string(expected), ", got '", std::string(got), "'"));
}

// Takes the next whole number of `*rest`, up to a comma or the end. Returns -1 if there is none in
// [0, limit].
int TakeNumber(std::string_view* rest, int limit) {
  const size_t comma = rest->find(',');
  const std::string_view field = rest->substr(0, comma);
  rest->remove_prefix(comma == std::string_view::npos ? rest->size() : comma + 1);
  if (field.empty() || field.size() > 3) return -1;
  int value = 0;
  for (const char c : field) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value <= limit ? value : -1;
}

absl::Status ParseLine(const std::string& path, size_t line_number, std::string_view line,
                       Split* out) {
  std::string_view rest = line;
  for (size_t i = 0; i < kPixels; ++i) {
    const int value = TakeNumber(&rest, kBrightest);
    if (value < 0) return BadLine(path, line_number, "64 pixels 0..16 and a label 0..9", line);
    out->values.push_back(static_cast<uint8_t>(value));
  }
  const int label = TakeNumber(&rest, 9);
  if (label < 0 || !rest.empty()) {
    return BadLine(path, line_number, "64 pixels 0..16 and a label 0..9", line);
  }
  out->labels.push_back(label);
  ++out->count;
  return absl::OkStatus();
}

void CopySample(const Split& from, size_t index, Split* to) {
  const auto first = from.values.begin() + index * kPixels;
  to->values.insert(to->values.end(), first, first + kPixels);
  to->labels.push_back(from.labels[index]);
  ++to->count;
}

}  // namespace

absl::StatusOr<Dataset> LoadDigits(const std::string& dir) {
  const std::string path = dir + "/digits.csv.gz";
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<uint8_t> content, ReadGzipFile(path, kMaxBytes));
  std::string_view rest(reinterpret_cast<const char*>(content.data()), content.size());
  Split all;
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    SLIMPS_RETURN_IF_ERROR(ParseLine(path, line, rest.substr(0, end), &all));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  if (all.count < 5) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected at least 5 samples, got ", all.count));
  }
  Dataset data{.name = "digits",
               .sample_shape = {1, 8, 8},
               .scale = {1.0f / kDeviation},
               .shift = {-kMean / kDeviation},
               .classes = 10};
  const std::vector<uint32_t> order = ShuffledOrder(all.count, kSplitSeed, /*epoch=*/0);
  const size_t train = all.count * 4 / 5;
  for (size_t i = 0; i < all.count; ++i) {
    CopySample(all, order[i], i < train ? &data.train : &data.test);
  }
  return data;
}

}  // namespace slimps
