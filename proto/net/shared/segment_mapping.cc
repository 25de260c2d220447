// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/segment_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr size_t kMaxSegments = 4096;

std::string Describe(const SegmentName& name) {
  return absl::StrCat("segment ", absl::Hex(name.id, absl::kZeroPad16), " at /proc/", name.pid,
                      "/fd/", name.fd);
}

absl::Status Cannot(const SegmentName& name, const char* what) {
  return absl::UnavailableError(
      absl::StrCat(Describe(name), ": cannot ", what, ": ", std::strerror(errno)));
}

absl::Status NoSegment(const SegmentName& name, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(name), ": ", why));
}

class Descriptor final {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Returns the size of the open segment. The seals make sure that it can never shrink.
absl::StatusOr<size_t> SealedBytes(int fd, const SegmentName& name) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return Cannot(name, "look at it");
  const int seals = fcntl(fd, F_GET_SEALS);
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) return Cannot(name, "look at its file system");
  // Only ordinary pages are accepted. The system may run out of huge pages, which a reader would
  // learn by a signal that kills it.
  if (!S_ISREG(facts.st_mode) || seals < 0 || system.f_type != TMPFS_MAGIC) {
    return NoSegment(name, "no memfd of ordinary pages");
  }
  if ((seals & F_SEAL_SHRINK) == 0) return NoSegment(name, "not sealed against shrinking");
  if (facts.st_size < static_cast<off_t>(kSegmentHeaderBytes)) {
    return NoSegment(name, "too small for its header");
  }
  return static_cast<size_t>(facts.st_size);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SegmentMapping>> SegmentMapping::Open(
    const SegmentName& name) {
  const std::string path = absl::StrCat("/proc/", name.pid, "/fd/", name.fd);
  // Checked before it is opened, because opening a device or a pipe can have side effects.
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return Cannot(name, "find it");
  if (!S_ISREG(facts.st_mode)) return NoSegment(name, "no memfd");
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) return Cannot(name, "open it");
  SLIMPS_ASSIGN_OR_RETURN(const size_t bytes, SealedBytes(fd.get(), name));
  void* const base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Cannot(name, "map it");
  std::shared_ptr<const SegmentMapping> mapping(
      new SegmentMapping(static_cast<const std::byte*>(base), bytes));
  const auto* const header = static_cast<const SegmentHeader*>(base);
  if (std::memcmp(header->magic, kSegmentMagic, sizeof(kSegmentMagic)) != 0) {
    return NoSegment(name, "it does not begin as a segment does");
  }
  if (header->id != name.id) return NoSegment(name, "another segment is there");
  return mapping;
}

SegmentMapping::~SegmentMapping() { munmap(const_cast<std::byte*>(base_), bytes_); }

absl::StatusOr<std::span<const std::byte>> SegmentMapping::Bytes(uint64_t offset,
                                                                 uint64_t bytes) const {
  if (offset < kSegmentHeaderBytes || offset > bytes_ || bytes > bytes_ - offset || bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("reference to ", bytes, " bytes at ", offset,
                                                   " of a segment, expected some from ",
                                                   kSegmentHeaderBytes, " to ", bytes_));
  }
  if (offset % alignof(float) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reference to offset ", offset, " of a segment, expected a multiple of ", alignof(float)));
  }
  return std::span<const std::byte>(base_ + offset, bytes);
}

bool SegmentMapping::retired() const {
  return reinterpret_cast<const SegmentHeader*>(base_)->retired.load(std::memory_order_acquire) !=
         0;
}

absl::StatusOr<std::shared_ptr<const SegmentMapping>> SegmentCache::Get(const SegmentName& name) {
  const auto found = mappings_.find(name.id);
  if (found != mappings_.end()) return found->second;
  // A new segment is rare, so this is the moment to unmap those that were given back.
  std::erase_if(mappings_, [](const auto& entry) { return entry.second->retired(); });
  if (mappings_.size() >= kMaxSegments) {
    return absl::ResourceExhaustedError(
        absl::StrCat("process ", name.pid, " names more than ", kMaxSegments, " segments"));
  }
  SLIMPS_ASSIGN_OR_RETURN(auto mapping, SegmentMapping::Open(name));
  mappings_.emplace(name.id, mapping);
  return mapping;
}

}  // namespace slimps
