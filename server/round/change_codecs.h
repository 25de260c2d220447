// SPDX-License-Identifier: Apache-2.0
// The codecs that workers name for pulls (PushItem.change_codec), made once per shard.
//
//   SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const ChangeCodec> change,
//                           codecs.Find(item.change_codec()));
//   partition.Push(round, worker, elements, payload, std::move(change));
#ifndef SLIMPS_SERVER_ROUND_CHANGE_CODECS_H_
#define SLIMPS_SERVER_ROUND_CHANGE_CODECS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compress/codec/block_codec.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "proto/base/clock.h"

namespace slimps {

// How a version is pulled: as weights in some precision, or as their change from the version
// before. Owned by the shard thread, because the workspace is.
struct ChangeCodec {
  std::unique_ptr<const Codec> codec;
  const BlockCodec* by_blocks = nullptr;       // the codec, if it encodes block by block; else null
  std::shared_ptr<EncodeWorkspace> workspace;  // shared by a shard's codecs
  const Clock* clock = nullptr;                // times the encoding; may be null

  // If false, the weights themselves travel, in the codec's format.
  bool encodes_change() const { return IsEncoded(codec->format()); }
};

// Owned by the shard thread. The codecs that it returns may outlive it.
class ChangeCodecs final {
 public:
  static constexpr size_t kMaxKept = 64;

  // REQUIRES: `clock` outlives all codecs.
  explicit ChangeCodecs(const Clock* clock) : clock_(clock) {}

  // Returns the codec of `spec`. Returns nullptr for "": the version is pulled as it is.
  // InvalidArgument: unknown name or option, or a codec that cannot encode a change of weights
  // (says why).
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const ChangeCodec>> Find(const std::string& spec);
  size_t size() const { return codecs_.size(); }

 private:
  const Clock* const clock_;
  const std::shared_ptr<EncodeWorkspace> workspace_ = std::make_shared<EncodeWorkspace>();
  std::map<std::string, std::shared_ptr<const ChangeCodec>> codecs_;  // by spec
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_CHANGE_CODECS_H_
