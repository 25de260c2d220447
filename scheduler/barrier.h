// Barriers, which may also sum a few numbers over those who come. Pure.
//
// A barrier is (name, ticket): each node counts its own visits of a name, so a repeated message is told from the next
// visit. It opens when every node of its group has come; nodes that left the job count as having come with nothing.
#ifndef SLIMPS_SCHEDULER_BARRIER_H_
#define SLIMPS_SCHEDULER_BARRIER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-compatible.
class BarrierTable final {
 public:
  struct Options {
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    size_t max_names = 4096;
    size_t max_open = 4096;  // barriers that some have come to
  };
  using Node = std::pair<wire::Role, uint32_t>;
  struct Release {
    wire::BarrierRelease message;
    std::vector<Node> to;
  };

  explicit BarrierTable(Options options) : options_(options) {}

  // `node` has come. Returns what is to be sent: the release to all who came, when this was the last; the release
  // again to `node` alone, when it asks for one that has been; else nothing. InvalidArgument: not of the group, or no
  // such group. FailedPrecondition: a ticket that this name is past. ResourceExhausted: too many names.
  // Nodes that disagree on the group or on how many values they bring are all released with InvalidArgument.
  [[nodiscard]] absl::StatusOr<std::vector<Release>> Arrive(const Node& node,
                                                            const wire::Barrier& barrier);
  // `node` left the job. Returns the barriers that waited for it alone.
  std::vector<Release> Leave(const Node& node);

 private:
  struct Visit {
    wire::Role group = wire::ROLE_UNSPECIFIED;
    std::vector<double> values;
  };
  using Id = std::pair<std::string, uint64_t>;  // name, ticket
  using Visits = std::map<Node, Visit>;

  bool IsComplete(const Visits& visits) const;
  static Release Open(const Id& id, const Visits& visits);
  std::vector<Release> OpenIfComplete(const Id& id);

  const Options options_;
  std::map<Id, Visits> open_;
  std::map<std::string, wire::BarrierRelease> newest_;  // by name, for those who missed it
  std::set<Node> left_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_BARRIER_H_
