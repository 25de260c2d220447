// SPDX-License-Identifier: Apache-2.0
// How a tensor is cut into partitions. The scheduler cuts by this rule, and what workers save of
// their partitions is cut anew by it. Plain data.
//
//   |--- partition_elements ---|--- partition_elements ---|-- the rest --|
//     partition 0                1                          2
#ifndef SLIMPS_PROTO_BASE_PARTITION_GRID_H_
#define SLIMPS_PROTO_BASE_PARTITION_GRID_H_

#include <algorithm>
#include <cstddef>

namespace slimps {

struct PartitionGrid {
  size_t elements = 0;            // of the whole tensor
  size_t partition_elements = 0;  // of every partition except the last, which may have fewer

  // REQUIRES: elements > 0 and partition_elements > 0, as below.
  size_t partitions() const { return (elements - 1) / partition_elements + 1; }

  size_t FirstOf(size_t partition) const { return partition * partition_elements; }

  // REQUIRES: partition < partitions().
  size_t ElementsOf(size_t partition) const {
    return std::min(partition_elements, elements - FirstOf(partition));
  }
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_PARTITION_GRID_H_
