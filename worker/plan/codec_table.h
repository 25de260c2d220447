// SPDX-License-Identifier: Apache-2.0
// CodecTable: the codecs that a plan has used or may use, each made once.
//
//   SLIMPS_ASSIGN_OR_RETURN(const Codec* const codec, codecs.Find("topk:ratio=0.01"));
//
// Thread-compatible: CompressionPlan's mutex guards it.
#ifndef SLIMPS_WORKER_PLAN_CODEC_TABLE_H_
#define SLIMPS_WORKER_PLAN_CODEC_TABLE_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "proto/slimps.pb.h"

namespace slimps {

class CodecTable final {
 public:
  // Returns the codec, which lives as long as this table. Errors: those of MakeCodec.
  [[nodiscard]] absl::StatusOr<const Codec*> Find(const std::string& spec);

  // Finds every codec that a decision on pushes names. Errors: those of MakeCodec.
  [[nodiscard]] absl::Status FindAll(const wire::CodecMap& map);

 private:
  std::map<std::string, std::unique_ptr<Codec>> codecs_;  // by spec; never erased
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PLAN_CODEC_TABLE_H_
