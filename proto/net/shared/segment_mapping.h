// SPDX-License-Identifier: Apache-2.0
// A segment of another process's SharedMemory, mapped for reading.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto mapping, SegmentMapping::Open(name));
//   SLIMPS_ASSIGN_OR_RETURN(auto bytes, mapping->Bytes(offset, size));
#ifndef SLIMPS_PROTO_NET_SHARED_SEGMENT_MAPPING_H_
#define SLIMPS_PROTO_NET_SHARED_SEGMENT_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/net/shared/shared_memory.h"

namespace slimps {

// The bytes stay readable while this object lives, even after the process that made the segment has
// ended. Thread-safe.
class SegmentMapping final {
 public:
  // Opens and maps the segment. Trusts nothing in `name`.
  // Unavailable: there is no such segment, or this process may not open it.
  // InvalidArgument: it is no segment of ours, or could shrink under its reader.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const SegmentMapping>> Open(
      const SegmentName& name);
  ~SegmentMapping();
  SegmentMapping(const SegmentMapping&) = delete;
  SegmentMapping& operator=(const SegmentMapping&) = delete;

  // Returns `bytes` bytes from `offset` on.
  // InvalidArgument: they are not within the segment's buffers, or not aligned for floats.
  [[nodiscard]] absl::StatusOr<std::span<const std::byte>> Bytes(uint64_t offset,
                                                                 uint64_t bytes) const;
  // True if the owner has given the segment back.
  bool retired() const;

 private:
  SegmentMapping(const std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}

  const std::byte* const base_;
  const size_t bytes_;
};

// Maps each segment of one process once. Thread-compatible.
class SegmentCache final {
 public:
  // Returns the mapping of the segment. Errors are those of SegmentMapping::Open, and:
  // ResourceExhausted: the process has named more segments than any process has.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const SegmentMapping>> Get(const SegmentName& name);
  size_t size() const { return mappings_.size(); }

 private:
  std::map<uint64_t, std::shared_ptr<const SegmentMapping>> mappings_;  // by the segment's id
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_SEGMENT_MAPPING_H_
