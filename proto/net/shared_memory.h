// Memory that other processes of this machine can read: where payloads lie that are to pass by reference. Made of
// segments, each a memfd that this process holds open and has mapped; another process opens it as /proc/PID/fd/FD
// (segment_mapping.h). Nothing of it has a name in any file system, so that nothing stays behind when a process dies.
//
//   SetPayloadMemory(&SharedMemory::OfProcess());              // large payload buffers lie in it from now on
//   if (auto range = memory.Find(payload.bytes())) ...         // how others find these bytes
//
//   segment:  +--------------------+---------------------------------------------------+
//             | SegmentHeader, 4 K | buffers, from kSegmentHeaderBytes on; first fit    |
//             +--------------------+---------------------------------------------------+
//   memfd, sealed: it can never shrink under who reads it.
//
// Pages come when they are first written, and are not reserved: where the system has none left, writing to a buffer ends
// the process (docs/decisions/same-host.md).
//
// A segment whose buffers are all freed is given back to the system (one spare is kept: fresh pages are dear); its pages
// go at once, even where another process has it mapped still.
#ifndef SLIMPS_PROTO_NET_SHARED_MEMORY_H_
#define SLIMPS_PROTO_NET_SHARED_MEMORY_H_

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

// How another process of this machine finds a segment; `id` is random, and says that it is the right one.
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

  // The process's own, never destroyed.
  static SharedMemory& OfProcess();
  // Larger buffers get a segment each.
  explicit SharedMemory(size_t segment_bytes = size_t{64} << 20);
  // REQUIRES: all was freed.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Whether this system has such memory.
  bool ok() const { return greeting_ != nullptr; }
  // A segment without buffers: whoever can open it can open all.
  SegmentName greeting() const;

  std::byte* Allocate(size_t bytes) override;
  void Free(std::byte* data, size_t bytes) override;
  // None: the bytes do not lie in one segment.
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

#endif  // SLIMPS_PROTO_NET_SHARED_MEMORY_H_
