// SPDX-License-Identifier: Apache-2.0
// The seam of files that must last. A file is written completely or not at all, and it is on the
// disk when the writer says so.
//
//   SLIMPS_RETURN_IF_ERROR(WriteFileDurably(path, content));
//
// The content goes to a draft beside the file. The draft is synced and renamed to the file, and the
// folder is synced. So a reader, also after a power cut, sees the old file or the new one.
#ifndef SLIMPS_PROTO_BASE_FILE_H_
#define SLIMPS_PROTO_BASE_FILE_H_

#include <cstddef>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace slimps {

// The operations that writing needs of a disk. It is the machine's disk, or one of a test that is
// full or tears what it writes. Each call returns 0 or an errno. Thread-safe.
class Disk {
 public:
  virtual ~Disk() = default;
  // Opens an empty file for writing. Makes it if it does not exist. Only this user may read it:
  // it may have weights, gradients, or what proves who a node is.
  virtual int Create(const std::string& path, int* file) const = 0;
  // Writes all of `bytes` after what was written before.
  virtual int Write(int file, std::string_view bytes) const = 0;
  // Returns when all that was written is on the disk.
  virtual int Sync(int file) const = 0;
  virtual int Close(int file) const = 0;
  virtual int Rename(const std::string& from, const std::string& to) const = 0;
  // Returns when the names in `folder` are on the disk.
  virtual int SyncFolder(const std::string& folder) const = 0;
  virtual int Remove(const std::string& path) const = 0;
};

// Returns the default wherever a Disk is taken. Never destroyed.
const Disk* MachineDisk();

// Writes a file piece by piece, when it is too large to hold in memory. Remembers the first error
// and writes nothing after it. Writes to devices and pipes (/dev/stdout) directly. Two processes
// may write the same path. Thread-compatible.
class FileWriter final {
 public:
  explicit FileWriter(std::string path, const Disk* disk = MachineDisk());
  // Without Commit the file stays what it was, and no draft is left.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Append(std::string_view bytes);
  // Completes the file. Called once.
  // Unavailable: the first error, as "cannot write PATH: REASON". The file stays what it was,
  // unless the error was in the very last step (syncing the folder); then it may be the old or the
  // new one.
  [[nodiscard]] absl::Status Commit();

  const absl::Status& status() const { return status_; }

 private:
  bool Check(int error);  // keeps the first error; returns true if there is none so far
  void Abandon();

  const std::string path_;
  const Disk* const disk_;
  std::string draft_;  // empty if the path is written directly
  int file_ = -1;
  absl::Status status_;
};

// A buffer for a std::ostream that writes to a FileWriter. Flush the stream before Commit.
// Thread-compatible.
class FileStreamBuffer final : public std::streambuf {
 public:
  // REQUIRES: `writer` outlives this buffer.
  explicit FileStreamBuffer(FileWriter* writer);

 private:
  int_type overflow(int_type next) override;
  int sync() override;

  FileWriter* const writer_;
  std::vector<char> buffer_;
};

// Makes the folder and those above it, where they do not exist. Only this user may enter the
// folder if it is new and its file system has modes.
// Unavailable: it cannot be made; the message says why.
[[nodiscard]] absl::Status MakeFolder(const std::string& path);

// Replaces the file `path` by `content`. Thread-safe for different paths.
// Unavailable: as for FileWriter::Commit.
[[nodiscard]] absl::Status WriteFileDurably(const std::string& path, std::string_view content,
                                            const Disk* disk = MachineDisk());

// Checks that a file can be written at `path`, before the work and not after it. The file stays
// what it is.
// Unavailable: it cannot be written; the message says why ("cannot write PATH: REASON").
[[nodiscard]] absl::Status CheckWritable(const std::string& path, const Disk* disk = MachineDisk());

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_FILE_H_
