// SPDX-License-Identifier: Apache-2.0
// One loader per published file format. Each checks sizes, magic numbers and label ranges.
// Thread-safe.
// NotFound: a file is missing.
// DataLoss: a file differs from its format; the message names file, expected and got.
#ifndef SLIMPS_WORKER_TRAINER_DATASET_FORMATS_H_
#define SLIMPS_WORKER_TRAINER_DATASET_FORMATS_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/trainer/dataset.h"

namespace slimps {

// UCI handwritten digits: digits.csv.gz as scikit-learn ships it. A line has 64 pixels 0..16 and a
// label 0..9. The file has no test split, so a fixed permutation is cut 80 : 20. Samples are
// {1, 8, 8}, normalised by the mean 4.884 and deviation 6.017 of all pixels.
[[nodiscard]] absl::StatusOr<Dataset> LoadDigits(const std::string& dir);

// MNIST: LeCun's IDX files in gzip, {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz, with
// big-endian headers. Samples are {1, rows, columns}, normalised by MNIST's mean 0.1307 and
// deviation 0.3081.
[[nodiscard]] absl::StatusOr<Dataset> LoadMnist(const std::string& dir);

// CIFAR-10: Krizhevsky's binary layout, data_batch_{1..5} and test_batch, each .bin or .bin.xz. A
// record has one label byte and 3 x 1024 pixel bytes. Samples are {3, 32, 32}, normalised per
// channel.
[[nodiscard]] absl::StatusOr<Dataset> LoadCifar10(const std::string& dir);

// Text: input.txt cut into windows of kTextWindow characters. The labels are the same characters
// one place on. The first 90 % are the training split. The vocabulary is the bytes that occur, in
// byte order.
inline constexpr size_t kTextWindow = 64;
[[nodiscard]] absl::StatusOr<Dataset> LoadText(const std::string& dir);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_DATASET_FORMATS_H_
