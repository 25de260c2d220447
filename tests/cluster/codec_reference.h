// What a job of several workers should arrive at, computed in one thread from codecs, Decode and plain arithmetic alone:
// no store, server or network. Steps are exact in fp32 (powers of two), so results are compared bit for bit.
#ifndef SLIMPS_TESTS_CLUSTER_CODEC_REFERENCE_H_
#define SLIMPS_TESTS_CLUSTER_CODEC_REFERENCE_H_

#include <cstdint>
#include <map>
#include <memory>
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
};

struct ReferenceOptions {
  std::string compression = "none";
  size_t threshold_bytes = 0;  // tensors below it go raw
  size_t partition_elements = 100;
  uint32_t workers = 2;
  float grad_scale = 1;
  float learning_rate = 0;  // 0: no optimizer, the store keeps what is pushed
  float rescale_grad = 1;
  wire::StoreMode mode = wire::DIST_SYNC;
  // The first so many rounds are measured for the threshold table: odd ones go raw.
  uint64_t measured_rounds = 0;
};

// Thread-compatible.
class ReferenceTensorJob final {
 public:
  ReferenceTensorJob(ReferenceTensor tensor, const ReferenceOptions& options);

  // One round, or under dist_async one turn of every worker in the order of ranks.
  void Round(std::span<const std::vector<float>> gradients);
  // As a worker pulls them.
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

  const ReferenceTensor tensor_;
  const ReferenceOptions options_;
  const std::unique_ptr<Codec> compressor_;
  const std::unique_ptr<Codec> codec_;  // that this tensor is sent with
  const std::unique_ptr<Codec> raw_;    // and in rounds that go raw
  std::vector<float> weights_;
  uint64_t round_ = 0;
  std::map<std::pair<uint32_t, size_t>, State> states_;  // by worker and partition
};

// REQUIRES: a spec that makes a codec.
std::unique_ptr<Codec> MakeCodecOrDie(const std::string& spec);

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_CODEC_REFERENCE_H_
