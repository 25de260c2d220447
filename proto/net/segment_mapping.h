// Another process's segment of SharedMemory, mapped to be read.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto mapping, SegmentMapping::Open(name));
//   SLIMPS_ASSIGN_OR_RETURN(auto bytes, mapping->Bytes(offset, size));
#ifndef SLIMPS_PROTO_NET_SEGMENT_MAPPING_H_
#define SLIMPS_PROTO_NET_SEGMENT_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/net/shared_memory.h"

namespace slimps {

// Readable for as long as it lives, whatever becomes of the process that made the segment. Thread-safe.
class SegmentMapping final {
 public:
  // Trusts nothing in `name`. Unavailable: there is no such segment, or this process may not open it. InvalidArgument:
  // what is there is no segment of ours, or one that could shrink under its reader.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const SegmentMapping>> Open(
      const SegmentName& name);
  ~SegmentMapping();
  SegmentMapping(const SegmentMapping&) = delete;
  SegmentMapping& operator=(const SegmentMapping&) = delete;

  // InvalidArgument: outside of the segment's buffers, or not aligned for floats.
  [[nodiscard]] absl::StatusOr<std::span<const std::byte>> Bytes(uint64_t offset,
                                                                 uint64_t bytes) const;
  // Whether the owner has given the segment back.
  bool retired() const;

 private:
  SegmentMapping(const std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}

  const std::byte* const base_;
  const size_t bytes_;
};

// The segments of one process, each mapped once. Thread-compatible.
class SegmentCache final {
 public:
  // As SegmentMapping::Open. ResourceExhausted: the process has named more segments than any has.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const SegmentMapping>> Get(const SegmentName& name);
  size_t size() const { return mappings_.size(); }

 private:
  std::map<uint64_t, std::shared_ptr<const SegmentMapping>> mappings_;  // by the segment's id
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SEGMENT_MAPPING_H_
