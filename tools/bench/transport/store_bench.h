// SPDX-License-Identifier: Apache-2.0
// Runs the commands that `slimps bench transport` gives a worker, on a KVStore. Every command is
// collective: all workers get the same commands in the same order. Owned by one thread.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto bench, StoreBench::Create(store.get()));
//   absl::StatusOr<std::string> json =
//       bench->Answer(*ParseCommand("push_pull bytes=4194304 keys=8 rounds=10"));
//
//   push_pull bytes=B keys=K rounds=R    pushes and pulls K tensors of B bytes, R times each
//   latency bytes=B count=N pause_us=P   N push-pulls, one after the other, each after a pause of P
//                                        microseconds
//   model name=MODEL part_bytes=0 rounds=R
//                                        R rounds of that model's tensors; with part_bytes > 0, of
//                                        the same bytes in tensors of that size and one rest
//   verify                               checks that the weights are those of SGD; otherwise the
//                                        error names what differs
//
// push_pull and model also take lend=1: the gradients are lent.
//
// Tensors are made when they are first named, and stay.
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

// Returns the numbers of elements of tensors that together have `bytes` of fp32. Each has
// `part_bytes`; the last one has the rest.
std::vector<size_t> EqualParts(size_t bytes, size_t part_bytes);

class StoreBench final {
 public:
  // Sets the servers' optimizer. REQUIRES: `store` outlives this.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<StoreBench>> Create(KVStore* store);

  // Runs a command and returns its answer as JSON.
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
