// SPDX-License-Identifier: Apache-2.0
// Holds nodes to what the key of their connection says they are. Owned by SchedulerState. Pure.
//
//   SLIMPS_RETURN_IF_ERROR(credentials.BindRegistration(user_id, &header));   // wants its own rank
//   SLIMPS_RETURN_IF_ERROR(credentials.Check(user_id, member.entry.node()));
#ifndef SLIMPS_SCHEDULER_CREDENTIALS_H_
#define SLIMPS_SCHEDULER_CREDENTIALS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/net/identity/node_keys.h"
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

  // Returns the public key that a registration is bound to; "" if the job has no keys.
  std::string KeyOf(const wire::Register& bound) const;

 private:
  std::map<std::string, AllowedNode> nodes_;  // by user id
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_CREDENTIALS_H_
