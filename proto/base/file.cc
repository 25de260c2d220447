// SPDX-License-Identifier: Apache-2.0
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

constexpr size_t kStreamBytes = size_t{64} << 10;
constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

int ErrorOf(int result) { return result < 0 ? errno : 0; }

class RealDisk final : public Disk {
 public:
  int Create(const std::string& path, int* file) const override {
    *file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly);
    if (*file < 0) return errno;
    // It may be left from before, with another mode. A device keeps its own, as does a file system
    // without modes.
    struct stat found {};
    const bool is_file = fstat(*file, &found) == 0 && S_ISREG(found.st_mode);
    if (is_file && (found.st_mode & 077) != 0) (void)fchmod(*file, kOwnerOnly);
    return 0;
  }
  int Write(int file, std::string_view bytes) const override {
    while (!bytes.empty()) {
      const ssize_t written = write(file, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return 0;
  }
  int Sync(int file) const override {
    const int error = ErrorOf(fsync(file));
    return error == EINVAL || error == EROFS ? 0 : error;  // a device or pipe: nothing to sync
  }
  int Close(int file) const override { return ErrorOf(close(file)); }
  int Rename(const std::string& from, const std::string& to) const override {
    return ErrorOf(rename(from.c_str(), to.c_str()));
  }
  int SyncFolder(const std::string& folder) const override {
    const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // It is possible to write to a folder that one cannot read. It is then not synced.
    if (file < 0) return errno == EACCES ? 0 : errno;
    const int error = Sync(file);
    close(file);
    return error;
  }
  int Remove(const std::string& path) const override { return ErrorOf(unlink(path.c_str())); }
};

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename would replace the device by a file, so devices and pipes are written directly.
bool IsDeviceOrPipe(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

// Returns the draft's name. It holds the pid, so that two processes with the same path do not share
// a draft.
std::string DraftOf(const std::string& path) { return absl::StrCat(path, ".", getpid(), ".tmp"); }

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

}  // namespace

const Disk* MachineDisk() {
  static const RealDisk* const disk = new RealDisk();
  return disk;
}

FileWriter::FileWriter(std::string path, const Disk* disk) : path_(std::move(path)), disk_(disk) {
  const bool direct = IsDeviceOrPipe(path_);
  if (!direct) draft_ = DraftOf(path_);
  Check(disk_->Create(direct ? path_ : draft_, &file_));
}

FileWriter::~FileWriter() { Abandon(); }

bool FileWriter::Check(int error) {
  if (error != 0 && status_.ok()) status_ = CannotWrite(path_, error);
  return status_.ok();
}

void FileWriter::Abandon() {
  if (file_ >= 0) disk_->Close(std::exchange(file_, -1));
  if (!draft_.empty()) disk_->Remove(std::exchange(draft_, std::string()));
}

void FileWriter::Append(std::string_view bytes) {
  if (status_.ok()) Check(disk_->Write(file_, bytes));
}

absl::Status FileWriter::Commit() {
  const bool direct = draft_.empty();
  if (status_.ok() && Check(disk_->Sync(file_)) && Check(disk_->Close(std::exchange(file_, -1))) &&
      !direct && Check(disk_->Rename(draft_, path_))) {
    draft_.clear();
    Check(disk_->SyncFolder(FolderOf(path_)));
  }
  Abandon();
  return status_;
}

FileStreamBuffer::FileStreamBuffer(FileWriter* writer) : writer_(writer), buffer_(kStreamBytes) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

FileStreamBuffer::int_type FileStreamBuffer::overflow(int_type next) {
  if (sync() != 0) return traits_type::eof();
  if (traits_type::eq_int_type(next, traits_type::eof())) return traits_type::not_eof(next);
  return sputc(traits_type::to_char_type(next));
}

int FileStreamBuffer::sync() {
  writer_->Append({pbase(), static_cast<size_t>(pptr() - pbase())});
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return writer_->status().ok() ? 0 : -1;
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(path, error);
  std::error_code has_no_modes;
  if (made) std::filesystem::permissions(path, std::filesystem::perms::owner_all, has_no_modes);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot make the folder ", path, ": ", error.message()));
}

absl::Status WriteFileDurably(const std::string& path, std::string_view content, const Disk* disk) {
  FileWriter writer(path, disk);
  writer.Append(content);
  return writer.Commit();
}

absl::Status CheckWritable(const std::string& path, const Disk* disk) {
  struct stat found {};
  const bool is_folder = stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  if (is_folder || path.empty() || path.back() == '/') return CannotWrite(path, EISDIR);
  // Opening a pipe would make its reader see an end, or wait for a reader.
  if (IsDeviceOrPipe(path)) {
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : CannotWrite(path, errno);
  }
  return FileWriter(path, disk).status();
}

}  // namespace slimps
