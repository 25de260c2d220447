// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/sparse/mstopk.h"
#include "compress/codec/sparse/randomk.h"
#include "compress/codec/sparse/redsync.h"
#include "compress/codec/sparse/threshold.h"
#include "compress/codec/sparse/topk.h"

namespace slimps {

std::vector<CodecEntry> SparseCodecs() {
  return {
      {"topk", {"ratio", "k", "value", "error_feedback"}, MakeTopKCodec},
      {"randomk", {"ratio", "k", "seed", "scaled", "value", "error_feedback"}, MakeRandomKCodec},
      {"mstopk", {"ratio", "k", "passes", "value", "error_feedback"}, MakeMsTopKCodec},
      {"redsync", {"ratio", "k", "error_feedback"}, MakeRedSyncCodec},
      {"threshold", {"tau", "value", "error_feedback"}, MakeThresholdCodec}};
}

}  // namespace slimps
