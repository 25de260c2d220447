// SPDX-License-Identifier: Apache-2.0
#include "scheduler/credentials.h"

#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"

namespace slimps {

Credentials::Credentials(const std::vector<AllowedNode>& nodes) {
  for (const AllowedNode& node : nodes) nodes_[NodeName(node.role, node.rank)] = node;
}

absl::Status Credentials::BindRegistration(const std::string& user_id,
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

absl::Status Credentials::Check(const std::string& user_id, const wire::NodeRef& node) const {
  if (nodes_.empty() || user_id == NodeName(node)) return absl::OkStatus();
  return absl::PermissionDeniedError("this is another node's key");
}

std::string Credentials::KeyOf(const wire::Register& bound) const {
  const auto found =
      nodes_.find(NodeName(bound.role(), static_cast<uint32_t>(bound.wanted_rank())));
  return found == nodes_.end() ? "" : found->second.public_key;
}

}  // namespace slimps
