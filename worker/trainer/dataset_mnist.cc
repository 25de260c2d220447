// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/trainer/data_file.h"
#include "worker/trainer/dataset_formats.h"

namespace slimps {

namespace {

constexpr uint32_t kImagesMagic = 2051;
constexpr uint32_t kLabelsMagic = 2049;
constexpr size_t kMaxBytes = 256 << 20;
constexpr uint32_t kMaxSide = 1024;
constexpr float kMean = 0.1307f;
constexpr float kDeviation = 0.3081f;

uint32_t BigEndian(const std::vector<uint8_t>& bytes, size_t offset) {
  return uint32_t{bytes[offset]} << 24 | uint32_t{bytes[offset + 1]} << 16 |
         uint32_t{bytes[offset + 2]} << 8 | uint32_t{bytes[offset + 3]};
}

absl::Status Differs(const std::string& path, const char* what, uint64_t expected, uint64_t got) {
  return absl::DataLossError(absl::StrCat(path, ": expected ", what, " ", expected, ", got ", got));
}

// Checks the header of an IDX file: `header_bytes` of big-endian numbers, of which the first is
// `magic`.
absl::Status CheckHeader(const std::string& path, const std::vector<uint8_t>& bytes, uint32_t magic,
                         size_t header_bytes) {
  if (bytes.size() < header_bytes) {
    return Differs(path, "a header of bytes", header_bytes, bytes.size());
  }
  if (BigEndian(bytes, 0) != magic) return Differs(path, "IDX magic", magic, BigEndian(bytes, 0));
  return absl::OkStatus();
}

// Reads one pair of files. The first pair sets `shape` to {1, rows, columns}; the second must
// agree.
absl::Status ReadPair(const std::string& dir, const std::string& stem, std::vector<int64_t>* shape,
                      Split* split) {
  const std::string images_path = absl::StrCat(dir, "/", stem, "-images-idx3-ubyte.gz");
  const std::string labels_path = absl::StrCat(dir, "/", stem, "-labels-idx1-ubyte.gz");
  SLIMPS_ASSIGN_OR_RETURN(std::vector<uint8_t> images, ReadGzipFile(images_path, kMaxBytes));
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<uint8_t> labels, ReadGzipFile(labels_path, kMaxBytes));
  SLIMPS_RETURN_IF_ERROR(CheckHeader(images_path, images, kImagesMagic, 16));
  SLIMPS_RETURN_IF_ERROR(CheckHeader(labels_path, labels, kLabelsMagic, 8));
  const uint64_t count = BigEndian(images, 4), rows = BigEndian(images, 8);
  const uint64_t columns = BigEndian(images, 12);
  if (count == 0) return Differs(images_path, "a count of images of at least", 1, 0);
  if (rows == 0 || rows > kMaxSide) return Differs(images_path, "rows of 1 to", kMaxSide, rows);
  if (columns == 0 || columns > kMaxSide) {
    return Differs(images_path, "columns of 1 to", kMaxSide, columns);
  }
  // The product cannot overflow: it is at most 2^32 * kMaxSide^2.
  if (images.size() - 16 != count * rows * columns) {
    return Differs(images_path, "bytes of pixels", count * rows * columns, images.size() - 16);
  }
  if (BigEndian(labels, 4) != count) {
    return Differs(labels_path, "a count of labels of", count, BigEndian(labels, 4));
  }
  if (labels.size() - 8 != count)
    return Differs(labels_path, "bytes of labels", count, labels.size() - 8);
  const std::vector<int64_t> got = {1, static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
  if (!shape->empty() && *shape != got) {
    return absl::DataLossError(absl::StrCat(images_path, ": expected images of ", (*shape)[1], "x",
                                            (*shape)[2], ", got ", rows, "x", columns));
  }
  *shape = got;
  split->count = count;
  images.erase(images.begin(), images.begin() + 16);
  split->values = std::move(images);
  split->labels.assign(labels.begin() + 8, labels.end());
  const int64_t largest = *std::max_element(split->labels.begin(), split->labels.end());
  if (largest > 9) return Differs(labels_path, "labels of at most", 9, largest);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Dataset> LoadMnist(const std::string& dir) {
  Dataset data{.name = "mnist",
               .scale = {1.0f / (255.0f * kDeviation)},
               .shift = {-kMean / kDeviation},
               .classes = 10};
  SLIMPS_RETURN_IF_ERROR(ReadPair(dir, "train", &data.sample_shape, &data.train));
  SLIMPS_RETURN_IF_ERROR(ReadPair(dir, "t10k", &data.sample_shape, &data.test));
  return data;
}

}  // namespace slimps
