// SPDX-License-Identifier: Apache-2.0
#include "proto/status_proto.h"

#include <algorithm>
#include <string>

namespace slimps {

wire::StatusProto ToStatusProto(const absl::Status& status) {
  constexpr size_t kMaxBytes = 4096;
  wire::StatusProto proto;
  proto.set_code(static_cast<uint32_t>(status.code()));
  std::string text(status.message());
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  // A proto3 string must be UTF-8. A cut in the middle of a character would make the whole header
  // unreadable.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  proto.set_message(std::move(text));
  return proto;
}

absl::Status FromStatusProto(const wire::StatusProto& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  const bool known = proto.code() <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(
      known ? static_cast<absl::StatusCode>(proto.code()) : absl::StatusCode::kUnknown,
      proto.message());
}

}  // namespace slimps
