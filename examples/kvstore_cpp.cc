// SPDX-License-Identifier: Apache-2.0
// Workers train a linear classifier together through the parameter servers, in C++, with 1bit
// gradients.
//
//   bazel build //examples:kvstore_cpp
//   tools/slimps launch --workers 2 --servers 2 -- bazel-bin/examples/kvstore_cpp threshold=auto
//
// Arguments are further options of the store. With the options set below, the weights (32 KiB) are
// compressed. The biases are not, since they are smaller than the threshold. Each worker makes
// samples of its own. At the end worker 0 prints the loss, the accuracy, samples per second, bytes,
// and the compression ratio of the pushes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "worker/kvstore.h"
#include "worker/kvstore_options.h"

namespace {

constexpr size_t kFeatures = 1024, kClasses = 8, kBatch = 64;
constexpr int kRounds = 60;

// Makes samples: one of class c is noise around the c-th of some fixed centres.
class Samples final {
 public:
  explicit Samples(uint32_t worker) : random_(worker + 1) {
    std::minstd_rand of_all(12345);
    for (float& value : centres_) value = Number(of_all);
  }

  size_t Draw(std::span<float> sample) {
    const size_t label = random_() % kClasses;
    for (size_t k = 0; k < kFeatures; ++k) {
      sample[k] = 0.1f * centres_[label * kFeatures + k] + Number(random_);
    }
    return label;
  }

 private:
  static float Number(std::minstd_rand& random) {  // from -1 to 1
    return static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
  }

  std::minstd_rand random_;
  std::vector<float> centres_ = std::vector<float>(kClasses * kFeatures);
};

struct Model {
  std::vector<float> weights = std::vector<float>(kClasses * kFeatures);
  std::vector<float> biases = std::vector<float>(kClasses);
};

struct Batch {
  double loss = 0;  // mean cross-entropy
  double right = 0;
  Model gradient;  // summed over the batch
};

Batch Backward(const Model& model, Samples* samples) {
  Batch batch;
  std::vector<float> sample(kFeatures);
  for (size_t b = 0; b < kBatch; ++b) {
    const size_t label = samples->Draw(sample);
    std::array<double, kClasses> scores{};
    for (size_t c = 0; c < kClasses; ++c) {
      scores[c] = model.biases[c];
      for (size_t k = 0; k < kFeatures; ++k) {
        scores[c] += model.weights[c * kFeatures + k] * sample[k];
      }
    }
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - highest);
    batch.loss += (highest + std::log(sum) - scores[label]) / kBatch;
    batch.right += scores[label] == highest ? 1.0 : 0.0;
    for (size_t c = 0; c < kClasses; ++c) {
      const double share = std::exp(scores[c] - highest) / sum;
      const auto error = static_cast<float>(share - (c == label ? 1.0 : 0.0));
      batch.gradient.biases[c] += error;
      for (size_t k = 0; k < kFeatures; ++k) {
        batch.gradient.weights[c * kFeatures + k] += error * sample[k];
      }
    }
  }
  return batch;
}

absl::Status SetOptions(int argc, char** argv, slimps::KVStoreOptions* options) {
  SLIMPS_RETURN_IF_ERROR(slimps::SetJobFromEnvironment(std::getenv, options));
  options->compression = "1bit";
  options->fixed_threshold_bytes = 4096;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected OPTION=VALUE, got \"", argv[i], "\""));
    }
    SLIMPS_RETURN_IF_ERROR(
        slimps::SetOption(argument.substr(0, equals), argument.substr(equals + 1), options));
  }
  return absl::OkStatus();
}

absl::Status Train(slimps::KVStore& store) {
  Model model;
  SLIMPS_RETURN_IF_ERROR(store.Init({
      {.key = "weights", .shape = {kClasses, kFeatures}, .value = model.weights},
      {.key = "biases", .shape = {kClasses}, .value = model.biases},
  }));
  slimps::wire::OptimizerSpec sgd;
  sgd.set_kind(slimps::wire::OptimizerSpec::SGD);
  sgd.set_learning_rate(0.1);
  sgd.set_rescale_grad(1.0 / (kBatch * store.num_workers()));
  SLIMPS_RETURN_IF_ERROR(store.SetOptimizer(sgd));
  SLIMPS_RETURN_IF_ERROR(store.Barrier());

  Samples samples(store.rank());
  Batch batch;
  const absl::Time start = absl::Now();
  for (int round = 1; round <= kRounds; ++round) {
    batch = Backward(model, &samples);
    SLIMPS_RETURN_IF_ERROR(store.Push("weights", batch.gradient.weights, /*priority=*/0));
    SLIMPS_RETURN_IF_ERROR(store.Push("biases", batch.gradient.biases, /*priority=*/1));
    SLIMPS_RETURN_IF_ERROR(store.Pull("weights", model.weights, /*priority=*/0));
    SLIMPS_RETURN_IF_ERROR(store.Pull("biases", model.biases, /*priority=*/1));
    if (store.rank() == 0 && round % 20 == 0) {
      std::cout << absl::StrFormat("round %d: loss %.4f\n", round, batch.loss) << std::flush;
    }
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> sums,
                          store.AllReduceSum({batch.loss, batch.right}));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (store.rank() != 0) return absl::OkStatus();
  const slimps::StoreTotals totals = store.totals();
  const double workers = store.num_workers();
  std::cout << absl::StrFormat(
      "loss %.4f, accuracy %.1f %%, %.0f samples/s, pushed %d bytes (ratio %.1f), pulled %d "
      "bytes\n",
      sums[0] / workers, 100 * sums[1] / (workers * kBatch), workers * kBatch * kRounds / seconds,
      totals.bytes_pushed,
      static_cast<double>(totals.pushed.elements * sizeof(float)) /
          static_cast<double>(totals.bytes_pushed),
      totals.bytes_pulled);
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  slimps::KVStoreOptions options;
  SLIMPS_RETURN_IF_ERROR(SetOptions(argc, argv, &options));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<slimps::KVStore> store,
                          slimps::KVStore::Create("dist_sync", options));
  const absl::Status trained = Train(*store);
  if (!trained.ok()) {
    store->Abort(trained);  // otherwise the other workers would wait for this one
    return trained;
  }
  return store->Close();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "kvstore_cpp: " << status.message() << "\n";
  return 1;
}
