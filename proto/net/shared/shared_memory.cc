// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

namespace slimps {
namespace {

constexpr size_t kPageBytes = 4096;

size_t RoundUp(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Returns a memfd of `bytes` zeros that can neither shrink nor grow; -1 if the system gives none.
int OpenSealed(size_t bytes) {
  const int fd = memfd_create("slimps", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

}  // namespace

// A segment, mapped while this object lives.
struct SharedMemory::Segment {
  ~Segment() {
    if (base == nullptr) return;
    header()->retired.store(1, std::memory_order_release);
    // Frees the pages at once. A process that still has the segment mapped keeps only the page of
    // the header.
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kSegmentHeaderBytes,
              static_cast<off_t>(bytes - kSegmentHeaderBytes));
    munmap(base, bytes);
    close(fd);
  }
  SegmentHeader* header() const { return reinterpret_cast<SegmentHeader*>(base); }
  SegmentName name() const {
    return {static_cast<uint64_t>(getpid()), static_cast<uint32_t>(fd), header()->id};
  }

  int fd = -1;
  std::byte* base = nullptr;
  size_t bytes = 0;
  size_t bytes_in_use = 0;
  std::map<size_t, size_t> free;  // offset to bytes, neighbours joined
};

SharedMemory& SharedMemory::OfProcess() {
  static SharedMemory* const memory = new SharedMemory();
  return *memory;
}

SharedMemory::SharedMemory(size_t segment_bytes)
    : segment_bytes_(RoundUp(segment_bytes)), greeting_(MakeSegment(kSegmentHeaderBytes)) {}

SharedMemory::~SharedMemory() = default;

SegmentName SharedMemory::greeting() const { return greeting_->name(); }

std::unique_ptr<SharedMemory::Segment> SharedMemory::MakeSegment(size_t bytes) {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) != sizeof(id)) return nullptr;
  const int fd = OpenSealed(bytes);
  if (fd < 0) return nullptr;
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  madvise(base, bytes, MADV_HUGEPAGE);  // only advice: few systems have huge pages for memfds
  auto segment = std::make_unique<Segment>();
  segment->fd = fd;
  segment->base = static_cast<std::byte*>(base);
  segment->bytes = bytes;
  auto* const header = new (base) SegmentHeader;
  header->id = id;
  std::memcpy(header->magic, kSegmentMagic, sizeof(kSegmentMagic));
  if (bytes > kSegmentHeaderBytes) {
    segment->free.emplace(kSegmentHeaderBytes, bytes - kSegmentHeaderBytes);
  }
  return segment;
}

std::byte* SharedMemory::TakeFirstFit(Segment* segment, size_t bytes) {
  const auto fit = std::find_if(segment->free.begin(), segment->free.end(),
                                [&](const auto& hole) { return hole.second >= bytes; });
  if (fit == segment->free.end()) return nullptr;
  const auto [offset, room] = *fit;
  segment->free.erase(fit);
  if (room > bytes) segment->free.emplace(offset + bytes, room - bytes);
  segment->bytes_in_use += bytes;
  return segment->base + offset;
}

std::byte* SharedMemory::Allocate(size_t bytes) {
  constexpr size_t kMax = std::numeric_limits<ptrdiff_t>::max() / 2;
  if (!ok() || bytes == 0 || bytes > kMax) return nullptr;
  const size_t rounded = RoundUp(bytes);
  MutexLock lock(&mutex_);
  std::byte* data = nullptr;
  for (auto it = segments_.begin(); it != segments_.end() && data == nullptr; ++it) {
    data = TakeFirstFit(it->second.get(), rounded);
  }
  if (data == nullptr) {
    std::unique_ptr<Segment> made =
        MakeSegment(kSegmentHeaderBytes + std::max(rounded, segment_bytes_));
    if (made == nullptr) return nullptr;
    data = TakeFirstFit(made.get(), rounded);
    const std::byte* const base = made->base;
    segments_.emplace(base, std::move(made));
  }
  bytes_in_use_ += rounded;
  return data;
}

void SharedMemory::Free(std::byte* data, size_t bytes) {
  const size_t rounded = RoundUp(bytes);
  MutexLock lock(&mutex_);
  const auto found = std::prev(segments_.upper_bound(data));
  Segment& segment = *found->second;
  auto [hole, added] = segment.free.emplace(static_cast<size_t>(data - segment.base), rounded);
  const auto next = std::next(hole);
  if (next != segment.free.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    segment.free.erase(next);
  }
  if (hole != segment.free.begin()) {
    const auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      segment.free.erase(hole);
    }
  }
  segment.bytes_in_use -= rounded;
  bytes_in_use_ -= rounded;
  GiveBackIfEmpty(segment.base);
}

void SharedMemory::GiveBackIfEmpty(const std::byte* base) {
  const auto found = segments_.find(base);
  if (found->second->bytes_in_use > 0) return;
  const bool ordinary = found->second->bytes == kSegmentHeaderBytes + segment_bytes_;
  const bool spare_elsewhere = std::any_of(
      segments_.begin(), segments_.end(),
      [&](const auto& other) { return other.first != base && other.second->bytes_in_use == 0; });
  if (!ordinary || spare_elsewhere) segments_.erase(found);
}

std::optional<SharedRange> SharedMemory::Find(std::span<const std::byte> bytes) const {
  MutexLock lock(&mutex_);
  const auto after = segments_.upper_bound(bytes.data());
  if (after == segments_.begin()) return std::nullopt;
  const Segment& segment = *std::prev(after)->second;
  const auto offset = static_cast<size_t>(bytes.data() - segment.base);
  if (offset >= segment.bytes || bytes.size() > segment.bytes - offset) return std::nullopt;
  return SharedRange{segment.name(), offset};
}

SharedMemory::Stats SharedMemory::stats() const {
  MutexLock lock(&mutex_);
  Stats stats{.segments = segments_.size(), .bytes_in_use = bytes_in_use_};
  for (const auto& [base, segment] : segments_) stats.bytes_reserved += segment->bytes;
  return stats;
}

}  // namespace slimps
