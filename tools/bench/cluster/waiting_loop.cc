// SPDX-License-Identifier: Apache-2.0
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "tools/bench/cluster/loop_base.h"

namespace slimps {
namespace {

class WaitingLoop final : public LoopBase {
 public:
  WaitingLoop(KVStore* store, const ModelShape& model, const TrainingLoopOptions& options)
      : LoopBase(store, model, options), arrivals_(model.tensors.size(), 0) {
    for (const ModelTensor& tensor : model.tensors) {
      weights_.push_back(AlignedBuffer::OfFloats(tensor.elements()));
    }
  }

  absl::Status Start() {
    std::vector<std::span<float>> spans;
    for (AlignedBuffer& weights : weights_) spans.push_back(weights.floats());
    return Init(spans);
  }

  absl::Status Finish() override {
    SLIMPS_RETURN_IF_ERROR(AwaitAll(newest_));
    return store_->Wait();
  }

  uint64_t WeightsHash() const override {
    uint64_t hash = 0;
    for (const AlignedBuffer& weights : weights_) hash = HashOf(hash, weights.floats());
    return hash;
  }

 private:
  absl::StatusOr<SteadyTime> AwaitWeights(size_t tensor, int64_t iteration) override {
    return arrivals_.Wait(tensor, iteration - 1, options_.timeout);
  }

  absl::Status AfterPush(size_t tensor, int64_t iteration) override {
    newest_ = iteration;
    store_->PullOnto(key(tensor), weights_[tensor].floats(), PriorityOf(tensor),
                     [this, tensor, iteration](const absl::Status& status) {
                       status.ok() ? arrivals_.Arrived(tensor, iteration) : arrivals_.Fail(status);
                     });
    return absl::OkStatus();
  }

  absl::Status AwaitAll(int64_t iteration) override {
    for (size_t i = 0; i < tensors(); ++i) {
      SLIMPS_RETURN_IF_ERROR(arrivals_.Wait(i, iteration, options_.timeout).status());
    }
    return absl::OkStatus();
  }

  std::vector<AlignedBuffer> weights_;  // stands for a framework's memory
  Arrivals arrivals_;
  int64_t newest_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeWaitingLoop(KVStore* store,
                                                              const ModelShape& model,
                                                              const TrainingLoopOptions& options) {
  auto loop = std::make_unique<WaitingLoop>(store, model, options);
  SLIMPS_RETURN_IF_ERROR(loop->Start());
  return loop;
}

}  // namespace slimps
