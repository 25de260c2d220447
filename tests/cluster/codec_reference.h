// SPDX-License-Identifier: Apache-2.0
// The expected result of a job of several workers. One thread computes it from codecs, Decode and
// plain arithmetic, without store, server or network. Steps are exact in fp32 (powers of two), so
// tests compare the results bit for bit.
#ifndef SLIMPS_TESTS_CLUSTER_CODEC_REFERENCE_H_
#define SLIMPS_TESTS_CLUSTER_CODEC_REFERENCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec/codec.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct ReferenceTensor {
  Key key;
  wire::DType dtype = wire::FLOAT32;
  wire::LayerKind layer = wire::OTHER;
  std::vector<float> value;  // version 0
  int64_t row_elements = 1;  // divides the elements

  std::vector<int64_t> shape() const {
    return {static_cast<int64_t>(value.size()) / row_elements, row_elements};
  }
};

struct ReferenceOptions {
  std::string compression = "none";
  size_t threshold_bytes = 0;  // tensors below it go raw
  size_t partition_elements = 100;
  uint32_t workers = 2;
  float grad_scale = 1;
  float learning_rate = 0;  // 0: no optimizer, the store keeps what is pushed
  float rescale_grad = 1;
  bool average = true;         // over the workers that count
  float momentum = 0;          // of the optimizer; 0 or 0.5, so that steps are exact
  std::string pulls = "none";  // the codec of the change that is pulled
  wire::StoreMode mode = wire::DIST_SYNC;
  // Up to this round the tensor fills the threshold table: odd rounds from 3 on go raw.
  uint64_t measured_rounds = 0;
};

// True if the profile of a job with these tensors, at most four of a size, measures `tensor`.
bool IsProfiled(const ReferenceTensor& tensor, const std::vector<ReferenceTensor>& tensors);

// The workers whose pushes count in a round, by partition. nullopt: all.
using CountedWorkers = std::vector<std::optional<std::set<uint32_t>>>;

// Computes the weights of one tensor over a job's rounds. Thread-compatible.
class ReferenceTensorJob final {
 public:
  ReferenceTensorJob(ReferenceTensor tensor, const ReferenceOptions& options);

  // Applies one round of all workers' gradients. Under dist_async each worker takes one turn, in
  // the order of ranks.
  // REQUIRES: where some do not count, the mode is dist_sync and nothing is averaged.
  void Round(std::span<const std::vector<float>> gradients, const CountedWorkers& counted = {});

  // Forgets what the worker keeps from round to round: a new process takes its place.
  void Forget(uint32_t worker);

  // Returns the weights as a worker pulls them.
  std::vector<float> Pulled() const;

 private:
  struct State {
    std::vector<float> residual, momentum;
  };

  std::vector<float> SentBy(uint32_t worker, std::span<const float> gradient);
  const Codec& CodecOfRound() const;
  std::vector<float> SentPartition(uint32_t worker, size_t partition,
                                   std::span<const float> gradient);
  void Step(std::vector<float> sum, uint32_t contributors);
  bool IsPulledAsChange() const {
    return options_.pulls != "none" && tensor_.dtype == wire::FLOAT32;
  }
  // Moves seen_ to the weights, as far as the codec of pulls says.
  void MoveSeen();
  void MoveSeenPartition(const Codec& codec, size_t partition, std::span<const float> weights,
                         std::span<float> seen);

  const ReferenceTensor tensor_;
  const ReferenceOptions options_;
  const std::unique_ptr<Codec> compressor_;
  const std::unique_ptr<Codec> codec_;  // for this tensor
  const std::unique_ptr<Codec> raw_;    // for rounds that go raw
  std::vector<float> weights_, velocity_;
  std::vector<float> seen_;  // by workers, if pulls are compressed
  uint64_t round_ = 0;
  std::map<std::pair<uint32_t, size_t>, State> states_;  // by worker and partition
};

// REQUIRES: `spec` names a valid codec.
std::unique_ptr<Codec> MakeCodecOrDie(const std::string& spec);

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_CODEC_REFERENCE_H_
