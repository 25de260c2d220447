// Tensors that a bench pushes and pulls through a KVStore, as a training loop would, and checks against plain SGD.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto set, TensorSet::Init(store, "4MiB", {1 << 20, 1 << 20}));   // elements; collective
//   SLIMPS_ASSIGN_OR_RETURN(Times times, set->RunPipelined(10));
//   SLIMPS_RETURN_IF_ERROR(set->Check());
//
// In flight, at most: every tensor once, be it as gradient on its way or as weights on their way back. The next round's
// gradient of a tensor is pushed as soon as its weights came, whatever the others do, so that both directions move.
// Values are such that SGD's result is exact in fp32: every element of a gradient is a whole number from 1 to 7, the
// learning rate 2^-10, weights begin at 0. Owned by one thread.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_TENSOR_SET_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_TENSOR_SET_H_

#include <cstdint>
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
  double seconds = 0;                                 // of everything
  std::optional<double> push_seconds = std::nullopt;  // within Push
  std::vector<double> samples_us;                     // of one push-pull, or of one round
};

// What every worker tells the store before its first push; Check relies on it.
wire::OptimizerSpec BenchOptimizer();

class TensorSet final {
 public:
  // Collective. The store outlives the set; the servers keep the keys, "NAME/0" and so on, for ever.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<TensorSet>> Init(
      KVStore* store, const std::string& name, const std::vector<size_t>& elements);

  // Each tensor `rounds` times; samples are of each push-pull, from Push until its weights are there.
  [[nodiscard]] absl::StatusOr<Times> RunPipelined(uint64_t rounds);
  // `rounds` times: every tensor pushed, last first as backward has them, then all weights awaited; the first layers
  // have the highest priority. Samples are of each round.
  [[nodiscard]] absl::StatusOr<Times> RunRounds(uint64_t rounds);
  // Blocking push-pulls of the first tensor, `pause` before each; samples are of each.
  [[nodiscard]] absl::StatusOr<Times> RunOneByOne(uint64_t count, absl::Duration pause);
  // DataLoss, naming tensor and element: weights are not what so many rounds of SGD make.
  [[nodiscard]] absl::Status Check() const;

  size_t bytes() const;

 private:
  struct Tensor {
    Key key;
    AlignedBuffer gradient;
    AlignedBuffer weights;
    uint64_t rounds = 0;  // that were pulled
    uint64_t left = 0;    // to be pushed in this run
    double pushed_at = 0;
  };

  TensorSet(KVStore* store, const std::string& name, const std::vector<size_t>& elements);

  absl::Status PushPullAsync(size_t tensor, int priority);
  absl::Status CheckTensor(const Tensor& tensor) const;

  KVStore* const store_;
  std::vector<Tensor> tensors_;
  Completions completions_;
  double push_seconds_ = 0;  // of this run
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_TENSOR_SET_H_
