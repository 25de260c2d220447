// SPDX-License-Identifier: Apache-2.0
// The weights w that a partition's optimizer steps, beside what workers see of them, w_seen
// (versioned_weights.h).
//
//   const auto next = weights.BeginNext(codec);      // all that may fail
//   AggregateRound({.before = next.before, .after = next.after, .change = next.change, ...}, ...);
//   weights.Commit();                                // the version grows by one
//
// The codec says how the version is pulled:
//   as it is, or half precision  The weights travel in that precision, and w_seen is w rounded to
//                                it. The next version does not make up for the rounding.
//   as a change                  x = w - w_seen of the version before; w_seen += decode(encode(x)).
//                                Pullers that hold the version before get the encoded x. Others get
//                                w_seen in fp32.
// So every worker that pulls a version gets the same bits, whatever it held. A version is pulled as
// it is if its change cannot be encoded or is no smaller than the weights. From the first change
// on, w is kept beside w_seen and stepped in place.
#ifndef SLIMPS_SERVER_ROUND_MASTER_WEIGHTS_H_
#define SLIMPS_SERVER_ROUND_MASTER_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "proto/base/buffer.h"
#include "server/round/change_codecs.h"
#include "server/round/change_encoder.h"
#include "server/round/partition_spec.h"
#include "server/round/versioned_weights.h"
#include "server/saved/image.h"

namespace slimps {

// Owned by the shard thread.
class MasterWeights final {
 public:
  // The memory of the next version. Valid until Commit or the next BeginNext.
  struct Next {
    std::span<const float> before;
    std::span<float> after;           // may be `before`
    ChangeEncoder* change = nullptr;  // encodes in the round's own pass; nullptr: none does
  };

  // Makes version 0, uninitialised. REQUIRES: `spec` outlives the weights.
  explicit MasterWeights(const PartitionSpec& spec);

  // Returns w.
  std::span<const float> current() const { return apart_ ? master_.floats() : versions_.current(); }

  // w_seen by version.
  VersionedWeights& versions() { return versions_; }
  const VersionedWeights& versions() const { return versions_; }

  // Returns the context in which the next version's answer is encoded.
  EncodeContext ChangeContext() const;

  // Begins the version after the current one. `codec` null: it is pulled as it is. Gives up a
  // version that was begun and not committed.
  Next BeginNext(std::shared_ptr<const ChangeCodec> codec);

  // Begins the version that a round of momenta makes. Its answers to workers that hold the version
  // before are up to `answer_bytes` long.
  struct NextByMomentum {
    std::span<const float> before;
    std::span<float> after;
    std::span<std::byte> answer;
  };
  NextByMomentum BeginByMomentum(size_t answer_bytes);

  // Makes that version current. If workers saw other numbers than the weights before, it is pulled
  // whole.
  // REQUIRES: BeginByMomentum was called since the last Commit, and `after` was written.
  void CommitByMomentum(const EncodedChange& answer);

  // Makes the version begun current.
  // REQUIRES: BeginNext was called since the last Commit, and `after` was written.
  void Commit();

  // Begins the version after the current one, which is a payload of so many bytes, and returns
  // where to write it. CommitEncoded makes it current; workers decode it.
  std::span<std::byte> BeginEncoded(size_t bytes);
  void CommitEncoded(const EncodedChange& payload);

  // Saves w and w_seen; copies w if it is apart.
  void Save(ImageUse use, saved::Weights* fields, PartitionImage* image) const;

  // Takes over what Save saved.
  // REQUIRES: nothing was committed.
  // DataLoss: the image has no such weights.
  [[nodiscard]] absl::Status Restore(const saved::Weights& fields, const PartitionImage& image);

 private:
  // The version begun.
  struct Begun {
    std::shared_ptr<const ChangeCodec> codec;  // null: as it is
    std::span<float> after;
    // Set only for a change:
    SeenWeights seen;
    std::span<std::byte> payload;
    AlignedBuffer converted;               // seen.before, if workers saw half precision
    std::optional<ChangeEncoder> encoder;  // if the codec encodes block by block
  };

  void BeginChange(Begun& begun);
  void CommitChange(Begun& begun);

  const PartitionSpec& spec_;
  VersionedWeights versions_;  // w_seen; also w, unless apart_
  AlignedBuffer master_;       // empty until the first change
  bool apart_ = false;         // master_ holds w
  bool seen_exactly_ = false;  // between BeginByMomentum and CommitByMomentum
  std::optional<Begun> begun_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_MASTER_WEIGHTS_H_
