// SPDX-License-Identifier: Apache-2.0
// The content of a file that a store writes and reads as a whole: a magic number, fields, and a
// checksum of all that.
//
//   ContentBuilder content("SLPSOPTS");
//   content.Add(uint32_t{1});
//   content.AddText("s:conv1");
//   std::string file = std::move(content).Seal();
//
//   SLIMPS_ASSIGN_OR_RETURN(ContentReader reader,
//                           ContentReader::Open(file, "SLPSOPTS", "optimizer states"));
//   SLIMPS_RETURN_IF_ERROR(reader.Read(&version, "version"));
//   // "optimizer states: version: expected 4 more bytes, got 0"
//
// Numbers are little-endian. The last 8 bytes are XXH3-64 of all bytes before. Pure.
// Thread-compatible.
#ifndef SLIMPS_WORKER_SAVED_CHECKED_CONTENT_H_
#define SLIMPS_WORKER_SAVED_CHECKED_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

class ContentBuilder final {
 public:
  // `bytes`: the length of the whole, if it is known; reserves memory.
  explicit ContentBuilder(std::string_view magic, size_t bytes = 0) {
    content_.reserve(bytes);
    content_ += magic;
  }

  template <typename T>
  void Add(T value) {
    content_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  // Adds the number of bytes as a uint32, then the bytes.
  void AddText(std::string_view text);
  void AddBytes(std::string_view bytes) { content_.append(bytes); }

  // Adds the checksum and returns the whole content.
  std::string Seal() &&;

 private:
  std::string content_;
};

class ContentReader final {
 public:
  // Checks the whole content; no field counts before the checksum holds. `what` begins every
  // message. REQUIRES: `content` outlives the reader.
  // InvalidArgument: another magic number.
  // DataLoss: cut short, or damaged.
  [[nodiscard]] static absl::StatusOr<ContentReader> Open(std::string_view content,
                                                          std::string_view magic, std::string what);

  // Returns the next `bytes` bytes. `field` is for the message.
  // DataLoss: fewer bytes are left.
  [[nodiscard]] absl::StatusOr<std::string_view> Take(uint64_t bytes, const char* field);
  template <typename T>
  [[nodiscard]] absl::Status Read(T* value, const char* field) {
    absl::StatusOr<std::string_view> bytes = Take(sizeof *value, field);
    if (!bytes.ok()) return bytes.status();
    std::memcpy(value, bytes->data(), sizeof *value);
    return absl::OkStatus();
  }

  // Returns what AddText wrote.
  [[nodiscard]] absl::StatusOr<std::string_view> TakeText(const char* field);

  // Returns what has not been taken yet.
  std::string_view rest() const { return rest_; }

  // Returns InvalidArgument with `what` before `why`.
  absl::Status Wrong(const std::string& why) const;

 private:
  ContentReader(std::string_view rest, std::string what) : rest_(rest), what_(std::move(what)) {}

  std::string_view rest_;  // ends before the checksum
  std::string what_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_SAVED_CHECKED_CONTENT_H_
