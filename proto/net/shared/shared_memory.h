// SPDX-License-Identifier: Apache-2.0
// Memory that other processes of this machine can read: the place of payloads that pass by
// reference. It is made of segments. Each is a memfd that this process holds open and has mapped.
// Another process opens it as /proc/PID/fd/FD (segment_mapping.h). It has no name in any file
// system, so nothing stays behind when a process dies.
//
//   SetPayloadMemory(&SharedMemory::OfProcess());       // large payload buffers will lie in it
//   if (auto range = memory.Find(payload.bytes())) ...  // how others find these bytes
//
//   segment:  +--------------------+---------------------------------------------------+
//             | SegmentHeader, 4 K | buffers, from kSegmentHeaderBytes on; first fit    |
//             +--------------------+---------------------------------------------------+
//   The memfd is sealed: it can never shrink under its readers.
//
// The system provides pages when they are first written and reserves none. If it has none left,
// writing to a buffer ends the process (docs/decisions/same-host.md).
//
// A segment whose buffers are all freed is given back to the system. One spare is kept, because
// fresh pages are dear. The pages go at once, even if another process still has the segment mapped.
#ifndef SLIMPS_PROTO_NET_SHARED_SHARED_MEMORY_H_
#define SLIMPS_PROTO_NET_SHARED_SHARED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "proto/base/buffer.h"
#include "proto/base/mutex.h"

namespace slimps {

inline constexpr size_t kSegmentHeaderBytes = 4096;
inline constexpr char kSegmentMagic[8] = {'S', 'L', 'P', 'S', 'S', 'E', 'G', '1'};

// At the start of each segment.
struct SegmentHeader {
  char magic[8] = {};
  uint64_t id = 0;
  // Publishes that the owner has given the segment back.
  std::atomic<uint32_t> retired{0};
};

// Names a segment so that another process of this machine finds it. `id` is random and proves that
// it found the right one.
struct SegmentName {
  uint64_t pid = 0;
  uint32_t fd = 0;
  uint64_t id = 0;
};

struct SharedRange {
  SegmentName segment;
  uint64_t offset = 0;
};

// Thread-safe.
class SharedMemory final : public PayloadMemory {
 public:
  struct Stats {
    size_t segments = 0;
    size_t bytes_reserved = 0;  // of address space
    size_t bytes_in_use = 0;
  };

  // Returns the process's own, which is never destroyed.
  static SharedMemory& OfProcess();

  // A buffer larger than `segment_bytes` gets a segment of its own.
  explicit SharedMemory(size_t segment_bytes = size_t{64} << 20);

  // REQUIRES: every buffer was freed.
  ~SharedMemory();

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // True if this system provides this kind of memory.
  bool ok() const { return greeting_ != nullptr; }

  // Returns a segment without buffers. A process that can open it can open all segments.
  SegmentName greeting() const;

  std::byte* Allocate(size_t bytes) override;
  void Free(std::byte* data, size_t bytes) override;

  // Returns where other processes find these bytes; nullopt if they do not lie in one segment.
  std::optional<SharedRange> Find(std::span<const std::byte> bytes) const;

  Stats stats() const;

 private:
  struct Segment;

  static std::unique_ptr<Segment> MakeSegment(size_t bytes);
  static std::byte* TakeFirstFit(Segment* segment, size_t bytes);
  void GiveBackIfEmpty(const std::byte* base) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t segment_bytes_;
  const std::unique_ptr<Segment> greeting_;
  mutable Mutex mutex_;
  std::map<const std::byte*, std::unique_ptr<Segment>> segments_
      ABSL_GUARDED_BY(mutex_);  // by base
  size_t bytes_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_SHARED_MEMORY_H_
