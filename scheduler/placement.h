// Which server holds which partition of which key. Pure.
//
// Every worker declares the same keys (Init is collective); a declaration is answered when all workers have declared
// every key of it, so that a disagreement reaches all of them. A batch of new keys is placed largest partition first,
// each on the server with the fewest bytes so far (lowest rank among equals): the result depends on what is declared
// and in which order batches come, never on which worker is faster.
#ifndef SLIMPS_SCHEDULER_PLACEMENT_H_
#define SLIMPS_SCHEDULER_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-compatible.
class PlacementTable final {
 public:
  struct Options {
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    size_t max_keys = size_t{1} << 18;
    size_t max_partitions_of_key = 65536;
    size_t max_partitions = size_t{1} << 20;  // of all keys together
    uint64_t max_elements_of_key = uint64_t{1} << 32;
  };

  explicit PlacementTable(Options options);

  // Notes what `worker` declares. An error concerns this declaration alone (a malformed one, which leaves no trace);
  // disagreement between workers is found by Answer. A repeat changes nothing.
  [[nodiscard]] absl::Status Declare(uint32_t worker, const wire::DeclareKeys& declared);
  // What to answer to a declaration that was accepted; nullopt while workers are missing. InvalidArgument: workers
  // disagree (names the key, both workers, expected and got). FailedPrecondition: a worker left without declaring.
  std::optional<absl::StatusOr<wire::Placement>> Answer(const wire::DeclareKeys& declared);
  // `worker` will declare nothing more.
  void Leave(uint32_t worker);

  // fp32 bytes per server.
  const std::vector<uint64_t>& server_bytes() const { return server_bytes_; }

 private:
  struct Declaration {
    wire::KeyInfo info;
    uint64_t partition_elements = 0;
  };
  struct KeyEntry {
    std::map<uint32_t, Declaration> by_worker;
    std::optional<wire::KeyPlace> place;
  };

  absl::Status CheckKey(uint32_t worker, const wire::KeyInfo& info,
                        uint64_t partition_elements) const;
  absl::Status CheckAgreement(const KeyEntry& entry) const;
  std::optional<uint32_t> FirstMissing(const KeyEntry& entry) const;
  void Place(const std::vector<KeyEntry*>& entries);

  const Options options_;
  std::map<uint64_t, KeyEntry> keys_;  // by KeyId
  size_t partitions_ = 0;              // of all of them
  std::set<uint32_t> left_;
  std::vector<uint64_t> server_bytes_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_PLACEMENT_H_
