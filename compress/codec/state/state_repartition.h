// SPDX-License-Identifier: Apache-2.0
// Cuts one tensor's states from one grid of partitions to another. Old and new partitions overlap
// in pieces, which their elements' places in the tensor tell.
//
//   from  |-----0-----|-----1-----|--2--|
//   to    |--0--|--1--|--2--|--3--|--4--|
#ifndef SLIMPS_COMPRESS_CODEC_STATE_STATE_REPARTITION_H_
#define SLIMPS_COMPRESS_CODEC_STATE_STATE_REPARTITION_H_

#include "absl/status/status.h"
#include "compress/codec/state/codec_state.h"
#include "proto/base/key.h"
#include "proto/base/partition_grid.h"

namespace slimps {

// Cuts the states of `key`, made under grid `from`, anew under grid `to`. Each element keeps its
// values; elements of partitions of `from` without a state get zeros. Pure.
// InvalidArgument: the grids are not of one tensor, or a state does not fit `from`. Nothing has
// changed.
[[nodiscard]] absl::Status RepartitionStates(KeyId key, const PartitionGrid& from,
                                             const PartitionGrid& to, CodecStates* states);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_STATE_REPARTITION_H_
