// SPDX-License-Identifier: Apache-2.0
// Notes how each worker says that it compresses, and finds workers that differ. That may be on
// purpose, but is more often a mistake. Owned by SchedulerState. Pure.
#ifndef SLIMPS_SCHEDULER_DECISIONS_COMPRESSION_ROLL_H_
#define SLIMPS_SCHEDULER_DECISIONS_COMPRESSION_ROLL_H_

#include <cstdint>
#include <map>
#include <string>

namespace slimps {

// Thread-compatible.
class CompressionRoll final {
 public:
  explicit CompressionRoll(uint32_t num_workers) : num_workers_(num_workers) {}

  // Notes what `worker` says. Its newest word counts. Empty says nothing: some workers cannot tell.
  void Note(uint32_t worker, const std::string& compression);

  // Returns "worker 0, worker 2: 1bit; worker 1: none" if all workers have said something and
  // differ. Otherwise returns "".
  const std::string& differences() const { return differences_; }

 private:
  const uint32_t num_workers_;
  std::map<uint32_t, std::string> said_;
  std::string differences_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_DECISIONS_COMPRESSION_ROLL_H_
