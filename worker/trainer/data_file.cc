// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/data_file.h"

#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {

namespace {

constexpr size_t kReadBytes = 1 << 18;
// CIFAR-10's streams use 32 MiB dictionaries. A stream that needs more memory than this is refused.
constexpr uint64_t kXzMemoryLimit = 256 << 20;

absl::Status CannotOpen(const std::string& path) {
  const int error = errno;
  const std::string text = absl::StrCat("cannot open ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
}

absl::Status TooLong(const std::string& path, size_t max_bytes) {
  return absl::DataLossError(
      absl::StrCat(path, ": expected at most ", max_bytes, " bytes of content, got more"));
}

absl::Status Damaged(const std::string& path, const char* format, std::string_view why) {
  return absl::DataLossError(
      absl::StrCat(path, ": expected a whole ", format, " stream, got: ", std::string(why)));
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::StatusOr<std::vector<uint8_t>> ReadPlainFile(const std::string& path, size_t max_bytes) {
  errno = 0;
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return CannotOpen(path);
  std::vector<uint8_t> content;
  std::vector<uint8_t> chunk(kReadBytes);
  while (const size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    if (got > max_bytes - content.size()) return TooLong(path, max_bytes);
    content.insert(content.end(), chunk.begin(), chunk.begin() + got);
  }
  if (std::ferror(file.get())) {
    return absl::DataLossError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  return content;
}

absl::StatusOr<std::vector<uint8_t>> ReadGzipFile(const std::string& path, size_t max_bytes) {
  errno = 0;
  const std::unique_ptr<gzFile_s, CloseGzip> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) return CannotOpen(path);
  std::vector<uint8_t> content;
  std::vector<uint8_t> chunk(kReadBytes);
  int got = 0;
  while ((got = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()))) > 0) {
    if (static_cast<size_t>(got) > max_bytes - content.size()) return TooLong(path, max_bytes);
    content.insert(content.end(), chunk.begin(), chunk.begin() + got);
  }
  // gzread passes a file without gzip's magic through unchanged, and only gzerror tells of a cut
  // stream.
  int error = Z_OK;
  const char* text = gzerror(file.get(), &error);
  if (got < 0 || error != Z_OK) return Damaged(path, "gzip", text);
  if (gzdirect(file.get()) != 0) return Damaged(path, "gzip", "other content (no gzip magic)");
  return content;
}

absl::StatusOr<std::vector<uint8_t>> ReadXzFile(const std::string& path, size_t max_bytes) {
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<uint8_t> packed, ReadPlainFile(path, max_bytes));
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kXzMemoryLimit, 0) != LZMA_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": cannot start the xz decoder"));
  }
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
  stream.next_in = packed.data();
  stream.avail_in = packed.size();
  std::vector<uint8_t> content;
  std::vector<uint8_t> chunk(kReadBytes);
  lzma_ret result = LZMA_OK;
  while (result == LZMA_OK) {
    stream.next_out = chunk.data();
    stream.avail_out = chunk.size();
    result = lzma_code(&stream, LZMA_FINISH);
    const size_t got = chunk.size() - stream.avail_out;
    if (got > max_bytes - content.size()) return TooLong(path, max_bytes);
    content.insert(content.end(), chunk.begin(), chunk.begin() + got);
  }
  if (result != LZMA_STREAM_END) {
    return Damaged(path, "xz", absl::StrCat("liblzma's error ", static_cast<int>(result)));
  }
  return content;
}

}  // namespace slimps
