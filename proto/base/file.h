// The seam of what must last: files are written whole or not at all, and are on the disk when the writer says so.
//
//   SLIMPS_RETURN_IF_ERROR(WriteFileDurably(path, content));
//
// What is written goes to a draft beside the file, is synced, takes the file's name, and the folder is synced: whoever
// reads, and whoever starts the machine again after a power cut, sees the old file or the new one.
#ifndef SLIMPS_PROTO_BASE_FILE_H_
#define SLIMPS_PROTO_BASE_FILE_H_

#include <cstddef>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace slimps {

// What writing needs of a disk: the machine's, or one of a test that is full or tears what it writes. Each call returns 0 or
// an errno. Thread-safe.
class Disk {
 public:
  virtual ~Disk() = default;
  // Opens an empty file for writing, made if need be.
  virtual int Create(const std::string& path, int* file) const = 0;
  // All of `bytes`, behind what was written before.
  virtual int Write(int file, std::string_view bytes) const = 0;
  // Returns when what was written is on the disk.
  virtual int Sync(int file) const = 0;
  virtual int Close(int file) const = 0;
  virtual int Rename(const std::string& from, const std::string& to) const = 0;
  // Returns when the names of `folder` are on the disk.
  virtual int SyncFolder(const std::string& folder) const = 0;
  virtual int Remove(const std::string& path) const = 0;
};

// The default wherever a Disk is taken. Never destroyed.
const Disk* MachineDisk();

// A file in the making, for what is too large to hold as a whole. Remembers the first error, after which it writes no more.
// Devices and pipes (/dev/stdout) are written directly. Thread-compatible; two processes may write the same path.
class FileWriter final {
 public:
  explicit FileWriter(std::string path, const Disk* disk = MachineDisk());
  // Without Commit the file stays what it was, and no draft is left.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Append(std::string_view bytes);
  // Once. Unavailable: the first error, as "cannot write PATH: REASON"; the file stays what it was, but for an error of the
  // very last step (syncing the folder), after which it may be either.
  [[nodiscard]] absl::Status Commit();
  const absl::Status& status() const { return status_; }

 private:
  bool Check(int error);  // whether there was none, so far.
  void Abandon();

  const std::string path_;
  const Disk* const disk_;
  std::string draft_;  // empty: written directly
  int file_ = -1;
  absl::Status status_;
};

// For a std::ostream over a FileWriter; flush that before Commit.
class FileStreamBuffer final : public std::streambuf {
 public:
  // `writer` outlives it.
  explicit FileStreamBuffer(FileWriter* writer);

 private:
  int_type overflow(int_type next) override;
  int sync() override;

  FileWriter* const writer_;
  std::vector<char> buffer_;
};

// Replaces `path` by `content`. Unavailable: as FileWriter::Commit. Thread-safe for different paths.
[[nodiscard]] absl::Status WriteFileDurably(const std::string& path, std::string_view content,
                                            const Disk* disk = MachineDisk());

// Unavailable: nothing can be written beside `path`, and why ("cannot write PATH: REASON"). Told before the work, not after
// it; the file stays what it is.
[[nodiscard]] absl::Status CheckWritable(const std::string& path, const Disk* disk = MachineDisk());

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_FILE_H_
