// SPDX-License-Identifier: Apache-2.0
// Tensors that a bench pushes and pulls through a KVStore, as a training loop does, and checks
// against plain SGD. Owned by one thread.
//
//   // Numbers of elements; collective.
//   SLIMPS_ASSIGN_OR_RETURN(auto set, TensorSet::Init(store, "4MiB", {1 << 20, 1 << 20}));
//   SLIMPS_ASSIGN_OR_RETURN(Times times, set->RunPipelined(10));
//   SLIMPS_RETURN_IF_ERROR(set->Check());
//
// Each tensor is in flight at most once, either as a gradient or as weights. A tensor's next
// gradient is pushed as soon as its weights have arrived, independently of the other tensors, so
// that both directions carry data. The values make SGD's result exact in fp32: a gradient's
// elements are whole numbers from 1 to 7, the learning rate is 2^-10, and weights begin at 0.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_TENSOR_SET_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_TENSOR_SET_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/buffer.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"
#include "tools/bench/transport/completions.h"
#include "worker/kvstore.h"

namespace slimps {

struct Times {
  double seconds = 0;                                 // the whole run
  std::optional<double> push_seconds = std::nullopt;  // the part spent in Push
  std::vector<double> samples_us;                     // one per push-pull, or one per round
};

// kLent: codecs and the transport read the gradient where it lies (KVStore::PushLent), and a tensor
// is in flight until it is given back.
enum class Gradients { kCopied, kLent };

// The optimizer that every worker must set before its first push; Check relies on it.
wire::OptimizerSpec BenchOptimizer();

class TensorSet final {
 public:
  // Initialises the keys "NAME/0", "NAME/1" and so on, which the servers keep until the job ends.
  // Collective. REQUIRES: `store` outlives the set.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<TensorSet>> Init(
      KVStore* store, const std::string& name, const std::vector<size_t>& elements);

  // Pushes and pulls each tensor `rounds` times. There is a sample per push-pull, from Push until
  // its weights have arrived.
  [[nodiscard]] absl::StatusOr<Times> RunPipelined(uint64_t rounds, Gradients gradients);

  // Runs `rounds` rounds: pushes every tensor, last tensor first as in backward, then waits for all
  // weights. The first tensors have the highest priority. There is a sample per round.
  [[nodiscard]] absl::StatusOr<Times> RunRounds(uint64_t rounds, Gradients gradients);

  // Makes blocking push-pulls of the first tensor, each after a pause. There is a sample for each.
  [[nodiscard]] absl::StatusOr<Times> RunOneByOne(uint64_t count, absl::Duration pause);

  // DataLoss: weights are not those after so many rounds of SGD; names tensor and element.
  [[nodiscard]] absl::Status Check() const;

  size_t bytes() const;

 private:
  struct Tensor {
    Key key;
    AlignedBuffer gradient;
    AlignedBuffer weights;
    uint64_t rounds = 0;  // pulled so far
    uint64_t left = 0;    // still to push in this run
    double pushed_at = 0;
    // What is still to come of this push-pull: the weights, and a gradient that was lent.
    std::unique_ptr<std::atomic<int>> to_come = std::make_unique<std::atomic<int>>(0);
  };

  TensorSet(KVStore* store, const std::string& name, const std::vector<size_t>& elements);

  absl::Status PushPullAsync(size_t tensor, int priority, Gradients gradients);
  absl::Status Push(Tensor& tensor, int priority, Gradients gradients,
                    std::function<void(absl::Status)> returned);
  absl::Status CheckTensor(const Tensor& tensor) const;

  KVStore* const store_;
  std::vector<Tensor> tensors_;
  Completions completions_;
  double push_seconds_ = 0;  // in this run
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_TENSOR_SET_H_
