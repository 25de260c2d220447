// What a file holds that a store writes and reads as a whole: a magic number, fields, and a checksum of all that.
//
//   ContentBuilder content("SLPSOPTS");
//   content.Add(uint32_t{1});
//   content.AddText("s:conv1");
//   std::string file = std::move(content).Seal();
//
//   SLIMPS_ASSIGN_OR_RETURN(ContentReader reader, ContentReader::Open(file, "SLPSOPTS", "optimizer states"));
//   SLIMPS_RETURN_IF_ERROR(reader.Read(&version, "version"));   // "optimizer states: version: expected 4 more bytes, got 0"
//
// Numbers are little-endian; the last 8 bytes are XXH3-64 of all before. Pure. Thread-compatible.
#ifndef SLIMPS_WORKER_CHECKED_CONTENT_H_
#define SLIMPS_WORKER_CHECKED_CONTENT_H_

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
  // `bytes`: how long the whole will be, where that is known.
  explicit ContentBuilder(std::string_view magic, size_t bytes = 0) {
    content_.reserve(bytes);
    content_ += magic;
  }

  template <typename T>
  void Add(T value) {
    content_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  // Its bytes behind their number, uint32.
  void AddText(std::string_view text);
  void AddBytes(std::string_view bytes) { content_.append(bytes); }
  // The whole content.
  std::string Seal() &&;

 private:
  std::string content_;
};

class ContentReader final {
 public:
  // Nothing inside is believed before the checksum holds. InvalidArgument: another magic number. DataLoss: cut short, or
  // damaged. `content` must outlive the reader; `what` begins every message.
  [[nodiscard]] static absl::StatusOr<ContentReader> Open(std::string_view content,
                                                          std::string_view magic, std::string what);

  // DataLoss: there are not so many bytes. `field` is for the message.
  [[nodiscard]] absl::StatusOr<std::string_view> Take(uint64_t bytes, const char* field);
  template <typename T>
  [[nodiscard]] absl::Status Read(T* value, const char* field) {
    absl::StatusOr<std::string_view> bytes = Take(sizeof *value, field);
    if (!bytes.ok()) return bytes.status();
    std::memcpy(value, bytes->data(), sizeof *value);
    return absl::OkStatus();
  }
  // As AddText wrote it.
  [[nodiscard]] absl::StatusOr<std::string_view> TakeText(const char* field);
  // What has not been taken yet.
  std::string_view rest() const { return rest_; }
  // InvalidArgument, with `what` before it.
  absl::Status Wrong(const std::string& why) const;

 private:
  ContentReader(std::string_view rest, std::string what) : rest_(rest), what_(std::move(what)) {}

  std::string_view rest_;  // ends before the checksum
  std::string what_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_CHECKED_CONTENT_H_
