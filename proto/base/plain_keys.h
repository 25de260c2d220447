// SPDX-License-Identifier: Apache-2.0
// Rewrites messages for people. slimps itself calls a key by its typed name (key.h), which is
// unambiguous in logs. A user named it "w" or 5 and knows it as that.
//
//   WithPlainKeys("push of key s:w: element 0 is nan")   // "push of key w: element 0 is nan"
#ifndef SLIMPS_PROTO_BASE_PLAIN_KEYS_H_
#define SLIMPS_PROTO_BASE_PLAIN_KEYS_H_

#include <string>
#include <string_view>

namespace slimps {

// Removes the type from every typed name that follows the word "key" or "tensor". Pure.
// Thread-safe.
std::string WithPlainKeys(std::string_view message);

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_PLAIN_KEYS_H_
