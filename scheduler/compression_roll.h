// How each worker says that it compresses, and who differs: on purpose perhaps, by mistake more often. Pure.
#ifndef SLIMPS_SCHEDULER_COMPRESSION_ROLL_H_
#define SLIMPS_SCHEDULER_COMPRESSION_ROLL_H_

#include <cstdint>
#include <map>
#include <string>

namespace slimps {

// Thread-compatible.
class CompressionRoll final {
 public:
  explicit CompressionRoll(uint32_t num_workers) : num_workers_(num_workers) {}

  // Notes what `worker` says; the newest counts. Empty: it says nothing, as workers that cannot.
  void Note(uint32_t worker, const std::string& compression);
  // "worker 0, worker 2: 1bit; worker 1: none", once all workers have said something and not the same; else empty.
  const std::string& differences() const { return differences_; }

 private:
  const uint32_t num_workers_;
  std::map<uint32_t, std::string> said_;
  std::string differences_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_COMPRESSION_ROLL_H_
