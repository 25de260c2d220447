// SPDX-License-Identifier: Apache-2.0
// Barriers, which may also sum a few numbers over the nodes that come. Owned by SchedulerState.
// Pure.
//
// A barrier is (name, ticket). Each node counts its visits of a name. This table knows where the
// count stands, so nodes that lost count meet again. A barrier has one outcome, the same for all:
//
//   open --all of the group came or left-------> released, with the sums
//        --a node gives up-------------------> given up: an error for all that came or come late
//        --two visits disagree---------------> an error for all that came or come late
//
// A ticket that is over never opens again. A worker that was started again comes once more to all
// that its former process had come to before its first push or after its last, and is answered as
// before: where a barrier only opened, by its number, and else from memory. That has the sums from
// the first on, up to max_remembered_bytes.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto releases, barriers.Arrive({wire::WORKER, 0}, barrier));
//   for (const auto& release : releases) Send(release.message, release.to);
#ifndef SLIMPS_SCHEDULER_BARRIER_H_
#define SLIMPS_SCHEDULER_BARRIER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/slimps.pb.h"
#include "scheduler/watch/job_view.h"

namespace slimps {

// Thread-compatible.
class BarrierTable final {
 public:
  static constexpr size_t kBytesOfTraining = size_t{64} << 10;

  // Returns how many bytes are remembered of a barrier to which nodes come like this. 0: it only
  // opens, so that its number is enough.
  static size_t BytesToRemember(const wire::Barrier& barrier);

  struct Options {
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    size_t max_names = 1024;
    size_t max_name_bytes = 256;  // a Welcome carries all names
    size_t max_purpose_bytes = 1024;
    size_t max_open = 4096;  // barriers that some node has come to
    size_t max_remembered_bytes = size_t{64} << 20;
  };
  using Node = std::pair<wire::Role, uint32_t>;
  struct Release {
    wire::BarrierRelease message;
    std::vector<Node> to;  // sorted
  };

  explicit BarrierTable(Options options)
      : options_(options), remembers_(options.max_remembered_bytes) {}

  // Notes that `node` has come or, with gave_up_after_ms, that it waits no more. Returns what to
  // send:
  // - the release to all nodes that came, if that ended the barrier;
  // - the release to `node` alone, if it asks for one that is over and known, or that had no values
  //   and no purpose and opened;
  // - otherwise nothing.
  // If nodes disagree on the group, the purpose or the number of values, all that came are released
  // with InvalidArgument.
  // InvalidArgument: `node` is not in the group, no such group, or a name too long.
  // FailedPrecondition: `node` comes late, to a barrier that was given up or whose sums are not
  // known any more, and is not the newest that is over. Names the node and what ended the barrier.
  // ResourceExhausted: too many names or open barriers.
  [[nodiscard]] absl::StatusOr<std::vector<Release>> Arrive(const Node& node,
                                                            const wire::Barrier& barrier);

  // Notes that `node` left the job. Returns the releases of the barriers that waited for it alone.
  std::vector<Release> Leave(const Node& node);

  // Notes that `node`, which had left, is in the job again. Barriers to come wait for it.
  void Return(const Node& node) { left_.erase(node); }

  // Bounds the memory for the sums that come from now on by kBytesOfTraining. What workers sum
  // between two steps is not asked for again, and there may be many steps.
  void NoteAllHavePushed();

  // Returns the newest ticket of each name that is over.
  std::vector<wire::BarrierTicket> Tickets() const;
  uint64_t NewestOver(const std::string& name) const;  // 0: none

  // Returns the barriers that some have come to, with those that have not.
  std::vector<OpenBarrier> Open() const;

 private:
  struct Visit {
    wire::Role group = wire::ROLE_UNSPECIFIED;
    std::string purpose;
    std::vector<double> values;
    size_t bytes_to_remember = 0;
  };
  using Id = std::pair<std::string, uint64_t>;  // name, ticket
  using Visits = std::map<Node, Visit>;
  struct GivenUp {
    Node by;
    absl::Duration after;
  };
  struct Over {
    Release release;
    std::optional<GivenUp> given_up;
    bool any_failed = false;  // this one or an earlier one of its name
  };

  absl::Status CheckVisit(const Node& node, const wire::Barrier& barrier) const;
  // Answers a visit to a ticket that is over. `over` is the newest ticket of that name that is
  // over.
  absl::StatusOr<std::vector<Release>> AnswerLate(const Node& node, const wire::Barrier& barrier,
                                                  const Over& over) const;
  // Returns the nodes that the barrier waits for: servers first, each role by rank.
  std::vector<Node> Missing(const Visits& visits) const;
  bool IsComplete(const Visits& visits) const;
  // InvalidArgument: `newcomer` comes for something else than the others.
  static absl::Status CheckAgreement(const Id& id, const Visits& visits, const Node& newcomer);
  Release End(const Id& id, const absl::Status& status, std::optional<GivenUp> given_up);
  Release GiveUp(const Id& id, const GivenUp& given_up);

  const Options options_;
  std::map<Id, Visits> open_;
  std::map<std::string, Over> newest_;  // by name, for nodes that missed it
  struct Remembered {
    std::string purpose;
    wire::BarrierRelease release;
  };
  std::map<Id, Remembered> remembered_;
  size_t remembers_;  // so many more bytes
  bool all_have_pushed_ = false;
  std::set<Node> left_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_BARRIER_H_
