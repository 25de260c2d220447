// SPDX-License-Identifier: Apache-2.0
// Times encoding and decoding of a model's whole gradient, partition by partition, as workers and
// servers do it. The gradient is drawn, or like a recorded one. This is the encode-decode table of
// Agarwal et al., "On the Utility of Gradient Compression in Distributed Training Systems", MLSys
// 2022, table 2.
//
//   BenchData data = ModelData(model.tensors, GradientSource::kRecorded);
//   SLIMPS_ASSIGN_OR_RETURN(ModelTimes times,
//                           TimeModel(model.tensors, setting, kernels, team, /*rounds=*/5, data));
//
// Thread-compatible: `data` is used by one call at a time.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_MODEL_TABLE_H_
#define SLIMPS_TOOLS_BENCH_CODEC_MODEL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/bench/codec/bench_data.h"
#include "tools/bench/codec/codec_settings.h"
#include "tools/bench/codec/team.h"
#include "tools/bench/models/models.h"

namespace slimps {

struct ModelTimes {
  double encode_seconds = 0;  // with error feedback if the codec uses it
  double decode_seconds = 0;  // validation and DecodeAdd, of one worker's payloads
  size_t payload_bytes = 0;
};

struct ModelSize {
  size_t elements = 0;
  size_t partitions = 0;
};

ModelSize SizeOf(std::span<const ModelTensor> tensors);

// kDrawn: normally distributed. kRecorded: made from the recorded statistics of each tensor
// (gradient_maker.h) and scaled by one factor, so that the whole has kDrawn's mean square, 1.
enum class GradientSource : uint8_t { kDrawn, kRecorded };
std::string_view GradientName(GradientSource source);

// Makes the numbers of a model's gradient.
BenchData ModelData(std::span<const ModelTensor> tensors, GradientSource source);

// Returns medians over `rounds` rounds.
// REQUIRES: `data` is ModelData of these tensors.
[[nodiscard]] absl::StatusOr<ModelTimes> TimeModel(std::span<const ModelTensor> tensors,
                                                   const CodecSetting& setting,
                                                   const Kernels& kernels, const Team& team,
                                                   int rounds, BenchData& data);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_MODEL_TABLE_H_
