// SPDX-License-Identifier: Apache-2.0
// What one partition keeps of rounds that are clipped by the norm of several partitions' mean
// gradients together. Such a round is not stepped when its pushes are complete. The partition
// measures its own squares; the workers pull those of all partitions, add them up, and say what the
// mean is multiplied by (wire::PushItem.gradient_scale):
//
//   pushes complete --> squares --> pulls of norms --> workers add up
//             step <-- scale = min(1, max / norm) <-- pushes of scales
//
// Norms are kept as long as versions of the weights are: of the current one and the one before.
#ifndef SLIMPS_SERVER_CLIPPING_CLIPPED_ROUNDS_H_
#define SLIMPS_SERVER_CLIPPING_CLIPPED_ROUNDS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "server/saved/image.h"

namespace slimps {

// Owned by the shard thread. Pure.
class ClippedRounds final {
 public:
  // Makes the step of `round` wait for its scale. Idempotent.
  void Clip(uint64_t round) { rounds_[round].clipped = true; }

  // Sets what the mean gradient of `round` is multiplied by; 0: the step is skipped.
  // AlreadyExists: another scale came before.
  [[nodiscard]] absl::Status SetScale(uint64_t round, double scale);

  // Notes the sum of squares of the round's mean gradient.
  void NoteNorm(uint64_t round, double norm2) { rounds_[round].norm2 = norm2; }

  bool MustMeasure(uint64_t round) const {
    const Round* const found = Find(round);
    return found != nullptr && found->clipped && !found->norm2.has_value();
  }
  bool AwaitsScale(uint64_t round) const {
    const Round* const found = Find(round);
    return found != nullptr && found->clipped && !found->scale.has_value();
  }

  // Return nullopt for a round that was not clipped, or is not measured.
  std::optional<double> Norm2(uint64_t round) const;
  std::optional<double> Scale(uint64_t round) const;

  // Forgets rounds that nobody asks for once `version` is the current one.
  void Applied(uint64_t version);

  // Returns the last round before the first one after `version` that lacks its scale, at most
  // `counted`: what a snapshot has for certain.
  uint64_t ScaledUpTo(uint64_t version, uint64_t counted) const;

  void Save(saved::Partition* fields) const;
  void Restore(const saved::Partition& fields);

 private:
  struct Round {
    bool clipped = false;
    std::optional<double> norm2, scale;
  };
  const Round* Find(uint64_t round) const {
    const auto found = rounds_.find(round);
    return found == rounds_.end() ? nullptr : &found->second;
  }

  std::map<uint64_t, Round> rounds_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_CLIPPING_CLIPPED_ROUNDS_H_
