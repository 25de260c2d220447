// Barriers, which may also sum a few numbers over those who come. Pure.
//
// A barrier is (name, ticket). Each node counts its visits of a name; this table says where the count stands, so that
// nodes which lost count visit together again. A barrier has one outcome, the same for all:
//
//   open --all of the group came, or left the job--> released, with the sums
//        --a node waits no more--------------------> given up: those who came, and who comes late, get an error
//        --two visits disagree---------------------> an error for those who came, and who comes late
//
// Tickets that are over never open again.
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

namespace slimps {

// Thread-compatible.
class BarrierTable final {
 public:
  struct Options {
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    size_t max_names = 1024;
    size_t max_name_bytes = 256;  // a Welcome has all names
    size_t max_open = 4096;       // barriers that some have come to
  };
  using Node = std::pair<wire::Role, uint32_t>;
  struct Release {
    wire::BarrierRelease message;
    std::vector<Node> to;  // rising
  };

  explicit BarrierTable(Options options) : options_(options) {}

  // `node` has come, or waits no more. Returns what is to be sent: the release to all who came, when that ended the
  // barrier; the release again to `node` alone, when it asks for one that has been; else nothing. InvalidArgument: not of
  // the group, or no such group, or a name too long. FailedPrecondition: `node` comes late, to a barrier that was given
  // up, or to an older one than the newest that is over; names the node, both tickets, and who gave up.
  // ResourceExhausted: too many names. Nodes that disagree on the group, the purpose or on how many values they bring
  // are all released with InvalidArgument.
  [[nodiscard]] absl::StatusOr<std::vector<Release>> Arrive(const Node& node,
                                                            const wire::Barrier& barrier);
  // `node` left the job. Returns the barriers that waited for it alone.
  std::vector<Release> Leave(const Node& node);

  // Of each name, the newest ticket that is over.
  std::vector<wire::BarrierTicket> Tickets() const;
  uint64_t NewestOver(const std::string& name) const;  // 0: none

 private:
  struct Visit {
    wire::Role group = wire::ROLE_UNSPECIFIED;
    std::string purpose;
    std::vector<double> values;
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
  };

  absl::Status CheckVisit(const Node& node, const wire::Barrier& barrier) const;
  // Of a ticket that is not open, of a name that is `over` up to its newest.
  absl::StatusOr<std::vector<Release>> AnswerLate(const Node& node, const wire::Barrier& barrier,
                                                  const Over& over) const;
  // Whom it waits for, by rank, servers first.
  std::vector<Node> Missing(const Visits& visits) const;
  bool IsComplete(const Visits& visits) const;
  // InvalidArgument: `newcomer` comes for something else than the others.
  static absl::Status CheckAgreement(const Id& id, const Visits& visits, const Node& newcomer);
  Release End(const Id& id, const absl::Status& status, std::optional<GivenUp> given_up);
  Release GiveUp(const Id& id, const GivenUp& given_up);

  const Options options_;
  std::map<Id, Visits> open_;
  std::map<std::string, Over> newest_;  // by name, for those who missed it
  std::set<Node> left_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_BARRIER_H_
