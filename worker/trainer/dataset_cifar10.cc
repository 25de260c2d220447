// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/trainer/data_file.h"
#include "worker/trainer/dataset_formats.h"

namespace slimps {

namespace {

constexpr size_t kPixelBytes = 3 * 32 * 32;
constexpr size_t kRecordBytes = 1 + kPixelBytes;
constexpr size_t kMaxBytes = 64 << 20;  // the published files are 30,730,000 bytes
// Means and deviations per channel over the training images, for pixels scaled to 0..1.
constexpr float kMean[3] = {0.4914f, 0.4822f, 0.4465f};
constexpr float kDeviation[3] = {0.2470f, 0.2435f, 0.2616f};

absl::Status AppendFile(const std::string& dir, const std::string& stem, Split* split) {
  const std::string plain = absl::StrCat(dir, "/", stem, ".bin");
  const std::string path = FileExists(plain) ? plain : plain + ".xz";
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, path == plain
                                                                ? ReadPlainFile(path, kMaxBytes)
                                                                : ReadXzFile(path, kMaxBytes));
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    return absl::DataLossError(absl::StrCat(path, ": expected whole records of ", kRecordBytes,
                                            " bytes, got ", bytes.size(), " bytes"));
  }
  for (size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    if (bytes[at] > 9) {
      return absl::DataLossError(absl::StrCat(path, " record ", at / kRecordBytes,
                                              ": expected a label 0..9, got ", int{bytes[at]}));
    }
    split->labels.push_back(bytes[at]);
    split->values.insert(split->values.end(), bytes.begin() + at + 1,
                         bytes.begin() + at + kRecordBytes);
    ++split->count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Dataset> LoadCifar10(const std::string& dir) {
  Dataset data{.name = "cifar10", .sample_shape = {3, 32, 32}, .classes = 10};
  for (int channel = 0; channel < 3; ++channel) {
    data.scale.push_back(1.0f / (255.0f * kDeviation[channel]));
    data.shift.push_back(-kMean[channel] / kDeviation[channel]);
  }
  for (int file = 1; file <= 5; ++file) {
    SLIMPS_RETURN_IF_ERROR(AppendFile(dir, absl::StrCat("data_batch_", file), &data.train));
  }
  SLIMPS_RETURN_IF_ERROR(AppendFile(dir, "test_batch", &data.test));
  return data;
}

}  // namespace slimps
