// SPDX-License-Identifier: Apache-2.0
// Decides which server holds which partition of which key. Owned by SchedulerState. Pure.
//
//   PlacementTable table({.num_workers = 2, .num_servers = 2});
//   SLIMPS_ASSIGN_OR_RETURN(auto answers, table.Declare(/*worker=*/0, request, declare_keys));
//   for (auto& answer : answers) Reply(answer.worker, answer.request, answer.placement);
//
// Every worker declares the same keys (Init is collective). A declaration is answered when all
// workers have declared all of its keys, so a disagreement reaches all of them. New keys of a
// declaration are cut (partition_grid.h) and placed together, largest partition first. Each goes to
// the server with the fewest bytes so far (lowest rank among equals). The result depends on what is
// declared and in which order, never on which worker is faster.
//
// Each key knows which declarations wait for it, so that all declarations of a job together cost
// workers x keys steps.
#ifndef SLIMPS_SCHEDULER_PLACEMENT_H_
#define SLIMPS_SCHEDULER_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/limits.h"
#include "proto/slimps.pb.h"
#include "scheduler/watch/job_view.h"

namespace slimps {

// Thread-compatible.
class PlacementTable final {
 public:
  struct Options {
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    size_t max_keys = size_t{1} << 18;
    size_t max_partitions_of_key = kDefaultLimits.max_partitions;
    size_t max_partitions = size_t{1} << 20;  // of all keys together
    uint64_t max_elements_of_key = kDefaultLimits.max_elements;
    size_t max_waiting_of_worker = 64;  // its declarations that wait for other workers
  };
  struct Answer {
    uint32_t worker = 0;
    uint64_t request = 0;
    // InvalidArgument: workers disagree (names the key, both workers, expected and got).
    // FailedPrecondition: a worker left without declaring.
    absl::StatusOr<wire::Placement> placement;
  };

  explicit PlacementTable(Options options);

  // Notes what `worker` declares in its request of that number. Returns the declarations that can
  // be answered now, rising by worker and request; this one may be among them or follow later. A
  // repeat changes nothing: while the first waits it returns nothing, afterwards it is answered
  // again. An error concerns only this declaration, which leaves no trace.
  // Where the workers' declarations of one number (wire::DeclareKeys.number) have other keys, all
  // that wait, this one and those to come are answered with what differs.
  // InvalidArgument: malformed.
  // ResourceExhausted: over a limit.
  [[nodiscard]] absl::StatusOr<std::vector<Answer>> Declare(uint32_t worker, uint64_t request,
                                                            const wire::DeclareKeys& declared);

  // Notes that `worker` will declare nothing more. Returns the declarations that waited for it.
  [[nodiscard]] std::vector<Answer> Leave(uint32_t worker);

  // Returns keys for which declarations wait, and the workers that have not declared them.
  Undeclared FindUndeclared() const;

  // The fp32 bytes placed on each server.
  const std::vector<uint64_t>& server_bytes() const { return server_bytes_; }

  // How often it has looked at a key so far.
  uint64_t steps() const { return steps_; }

 private:
  using RequestId = std::pair<uint32_t, uint64_t>;  // worker, request
  // One way in which workers declare a key. There is one only, unless workers disagree.
  struct Variant {
    wire::KeyInfo info;
    uint64_t partition_elements = 0;
    uint32_t lowest_worker = 0;
  };
  struct KeyEntry {
    std::vector<Variant> variants;
    std::vector<uint8_t> variant_of;  // by worker, counted from 1; 0: not declared yet
    uint32_t declared_by = 0;         // how many workers
    std::optional<uint32_t> left_without;
    std::optional<wire::KeyPlace> place;
    std::vector<RequestId> waiting;
  };
  struct Waiting {
    std::vector<KeyEntry*> keys;
    size_t missing = 0;  // keys of it that are not settled
    uint64_t number = 0;
  };
  // What the first worker declared in its declaration of some number.
  struct Declared {
    uint32_t worker = 0;
    std::set<uint64_t> keys;
    absl::Status failure = {};  // another worker declared other keys
  };

  absl::Status CheckKey(uint32_t worker, const wire::KeyInfo& info, uint64_t partition_elements);
  absl::Status CheckDeclaration(uint32_t worker, const wire::DeclareKeys& declared,
                                size_t* partitions);
  // Returns InvalidArgument if others declare other keys in their declaration of this number.
  absl::Status CompareKeys(uint32_t worker, const wire::DeclareKeys& declared);
  // Returns true if that settled the key, placeable or failed.
  bool AddTo(KeyEntry* entry, uint32_t worker, const wire::KeyInfo& info,
             uint64_t partition_elements);
  bool HasFailed(const KeyEntry& entry) const;
  bool IsSettled(const KeyEntry& entry) const;
  absl::Status CheckAgreement(const KeyEntry& entry) const;
  // Adds to `ready` the declarations that can be answered now.
  // REQUIRES: the key is settled.
  void WakeWaiting(KeyEntry* entry, std::set<RequestId>* ready);
  std::vector<Answer> AnswerReady(const std::set<RequestId>& ready);
  absl::StatusOr<wire::Placement> PlacementOf(const std::vector<KeyEntry*>& keys);
  void Place(const std::vector<KeyEntry*>& entries);

  const Options options_;
  std::unordered_map<uint64_t, KeyEntry> keys_;  // by KeyId; entries never move
  size_t partitions_ = 0;                        // of all keys
  std::set<uint32_t> left_;
  std::map<RequestId, Waiting> waiting_;
  std::map<uint64_t, Declared> declared_;  // by number
  size_t compared_keys_ = 0;  // of declared_, an empty one counts as one; at most max_keys
  std::vector<uint64_t> server_bytes_;
  uint64_t steps_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_PLACEMENT_H_
