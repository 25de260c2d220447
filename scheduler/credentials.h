// SPDX-License-Identifier: Apache-2.0
// Holds nodes to what the key of their connection says they are. Owned by SchedulerState. Pure.
//
//   SLIMPS_RETURN_IF_ERROR(credentials.BindRegistration(user_id, &header));   // wants its own rank
//   SLIMPS_RETURN_IF_ERROR(credentials.Check(user_id, member.entry.node()));
#ifndef SLIMPS_SCHEDULER_CREDENTIALS_H_
#define SLIMPS_SCHEDULER_CREDENTIALS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/membership/node_name.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-compatible. Without nodes the job has no keys, and everybody passes.
class Credentials final {
 public:
  explicit Credentials(const std::vector<AllowedNode>& nodes);

  // Makes the registration want the rank that the key is bound to.
  // PermissionDenied: no key was asked for, or the registration wants another role or rank.
  [[nodiscard]] absl::Status BindRegistration(const std::string& user_id,
                                              wire::Register* registration) const;

  // PermissionDenied: `node` is not the one whose key the connection was made with.
  [[nodiscard]] absl::Status Check(const std::string& user_id, const wire::NodeRef& node) const;

  // Returns the public key of each role and rank.
  std::map<std::pair<wire::Role, uint32_t>, std::string> PublicKeys() const;

 private:
  std::map<std::string, AllowedNode> nodes_;  // by user id
};

inline Credentials::Credentials(const std::vector<AllowedNode>& nodes) {
  for (const AllowedNode& node : nodes) nodes_[NodeName(node.role, node.rank)] = node;
}

inline absl::Status Credentials::BindRegistration(const std::string& user_id,
                                                  wire::Register* registration) const {
  if (nodes_.empty()) return absl::OkStatus();
  const auto found = nodes_.find(user_id);
  if (found == nodes_.end()) return absl::PermissionDeniedError("no key of this job");
  const AllowedNode& node = found->second;
  const bool wants_another = registration->wanted_rank() >= 0 &&
                             static_cast<uint32_t>(registration->wanted_rank()) != node.rank;
  if (registration->role() != node.role || wants_another) {
    const std::string wanted =
        registration->wanted_rank() < 0
            ? absl::StrCat("a ", RoleName(registration->role()))
            : NodeName(registration->role(), static_cast<uint32_t>(registration->wanted_rank()));
    return absl::PermissionDeniedError(
        absl::StrCat("this is the key of ", user_id, ", and its holder wants to be ", wanted));
  }
  registration->set_wanted_rank(static_cast<int32_t>(node.rank));
  return absl::OkStatus();
}

inline absl::Status Credentials::Check(const std::string& user_id,
                                       const wire::NodeRef& node) const {
  if (nodes_.empty() || user_id == NodeName(node)) return absl::OkStatus();
  return absl::PermissionDeniedError("this is another node's key");
}

inline std::map<std::pair<wire::Role, uint32_t>, std::string> Credentials::PublicKeys() const {
  std::map<std::pair<wire::Role, uint32_t>, std::string> keys;
  for (const auto& [user_id, node] : nodes_) keys[{node.role, node.rank}] = node.public_key;
  return keys;
}

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_CREDENTIALS_H_
