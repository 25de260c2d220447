// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/checked_content.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

void ContentBuilder::AddText(std::string_view text) {
  Add(static_cast<uint32_t>(text.size()));
  AddBytes(text);
}

std::string ContentBuilder::Seal() && {
  Add(HashText(content_));
  return std::move(content_);
}

absl::StatusOr<ContentReader> ContentReader::Open(std::string_view content, std::string_view magic,
                                                  std::string what) {
  if (content.substr(0, magic.size()) != magic) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected content that begins with ",
                                                   std::string(magic), ", got ", content.size(),
                                                   " bytes of something else"));
  }
  uint64_t checksum = 0;
  if (content.size() < magic.size() + sizeof checksum) {
    return absl::DataLossError(absl::StrCat(what, ": cut short, to ", content.size(), " bytes"));
  }
  const std::string_view body = content.substr(0, content.size() - sizeof checksum);
  std::memcpy(&checksum, content.data() + body.size(), sizeof checksum);
  const uint64_t found = HashText(body);
  if (found != checksum) {
    return absl::DataLossError(absl::StrCat(what, ": damaged: expected checksum ",
                                            absl::Hex(checksum), ", got ", absl::Hex(found)));
  }
  return ContentReader(body.substr(magic.size()), std::move(what));
}

absl::StatusOr<std::string_view> ContentReader::Take(uint64_t bytes, const char* field) {
  if (bytes > rest_.size()) {
    return absl::DataLossError(
        absl::StrCat(what_, ": ", field, ": expected ", bytes, " more bytes, got ", rest_.size()));
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

absl::StatusOr<std::string_view> ContentReader::TakeText(const char* field) {
  uint32_t bytes = 0;
  SLIMPS_RETURN_IF_ERROR(Read(&bytes, field));
  return Take(bytes, field);
}

absl::Status ContentReader::Wrong(const std::string& why) const {
  return absl::InvalidArgumentError(absl::StrCat(what_, ": ", why));
}

}  // namespace slimps
