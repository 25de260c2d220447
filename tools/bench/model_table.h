// How long a model's whole gradient takes to encode and to decode with each codec, partition by partition, as a worker
// and a server do it: the encode-decode table of the field (Agarwal et al., "On the Utility of Gradient Compression in
// Distributed Training Systems", MLSys 2022, table 2).
#ifndef SLIMPS_TOOLS_BENCH_MODEL_TABLE_H_
#define SLIMPS_TOOLS_BENCH_MODEL_TABLE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/bench_data.h"
#include "tools/bench/codec_settings.h"
#include "tools/bench/models.h"
#include "tools/bench/team.h"

namespace slimps {

struct ModelTimes {
  double encode_seconds = 0;  // with error feedback where the codec has it on
  double decode_seconds = 0;  // validation and DecodeAdd, of one worker's payloads
  size_t payload_bytes = 0;
};

struct ModelSize {
  size_t elements = 0;
  size_t partitions = 0;
};

ModelSize SizeOf(std::span<const ModelTensor> tensors);

// Medians over `rounds` rounds. `data` is for at least the model's elements.
[[nodiscard]] absl::StatusOr<ModelTimes> TimeModel(std::span<const ModelTensor> tensors,
                                                   const CodecSetting& setting,
                                                   const Kernels& kernels, const Team& team,
                                                   int rounds, BenchData& data);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODEL_TABLE_H_
