// What `slimps bench transport` asks of a worker: its commands, done on a KVStore. Every command is collective: all
// workers get the same ones in the same order.
//
//   StoreBench bench(store.get());
//   absl::StatusOr<std::string> json = bench.Answer(*ParseCommand("push_pull bytes=4194304 keys=8 rounds=10"));
//
//   push_pull bytes=B keys=K rounds=R    K tensors of B bytes in flight, R times each
//   latency bytes=B count=N pause_us=P   N push-pulls, one after the other, P microseconds of rest before each
//   model name=MODEL part_bytes=0 rounds=R   rounds of that model's tensors; with part_bytes, of the same bytes in
//                                            tensors of that size and a rest
//   verify                               the weights are those of SGD, else the error names what differs
//
// Tensors are made when first named, and stay. Owned by one
// thread.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_STORE_BENCH_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_STORE_BENCH_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/transport/command.h"
#include "tools/bench/transport/tensor_set.h"
#include "worker/kvstore.h"

namespace slimps {

// Elements of tensors that hold `bytes` of fp32 together: each `part_bytes`, the last one what is left.
std::vector<size_t> EqualParts(size_t bytes, size_t part_bytes);

class StoreBench final {
 public:
  // Tells `store`, which outlives this, how the servers step.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<StoreBench>> Create(KVStore* store);

  [[nodiscard]] absl::StatusOr<std::string> Answer(const Command& command);

 private:
  explicit StoreBench(KVStore* store) : store_(store) {}

  absl::StatusOr<Times> PushPull(const Command& command);
  absl::StatusOr<Times> Latency(const Command& command);
  absl::StatusOr<Times> Model(const Command& command);
  absl::StatusOr<std::string> Verify();
  absl::StatusOr<TensorSet*> Tensors(const std::string& name, const std::vector<size_t>& elements);

  KVStore* const store_;
  std::map<std::string, std::unique_ptr<TensorSet>> sets_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_STORE_BENCH_H_
