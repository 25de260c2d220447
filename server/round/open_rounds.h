// SPDX-License-Identifier: Apache-2.0
// The pushes of one partition that wait for their rounds under dist_sync: who has pushed what
// (round_ledger.h), and what the pushes chose for their round.
//
//   SLIMPS_ASSIGN_OR_RETURN(PushVerdict verdict, rounds.Push(record, change, hyper));
//   while (rounds.ledger().NextRoundComplete()) Apply(rounds.partial(), rounds.TakeNext());
//
// Each push names how the version that its round makes is pulled (ChangeCodec). It may also bring
// the learning rate and weight decay of its round's step. Where pushes differ, the lowest rank that
// brings one counts. What any push of a round unmasks is unmasked.
//
// If many bytes wait in the server, the first contributions of a round, without a gap in the ranks,
// are summed before the others come (partial_sum.h). The bits stay the same.
#ifndef SLIMPS_SERVER_ROUND_OPEN_ROUNDS_H_
#define SLIMPS_SERVER_ROUND_OPEN_ROUNDS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"
#include "server/round/change_codecs.h"
#include "server/round/partial_sum.h"
#include "server/round/partition_spec.h"
#include "server/round/round_ledger.h"
#include "server/saved/image.h"

namespace slimps {

// Owned by the shard thread.
class OpenRounds final {
 public:
  // What the pushes of one round ask for: how its version is pulled, and its step's
  // hyperparameters. The ranks are the lowest that asked.
  struct Choice {
    static constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();
    uint32_t worker = kNobody;
    std::shared_ptr<const ChangeCodec> codec;  // null: pulled as it is
    uint32_t hyper_worker = kNobody;
    std::optional<wire::Hyper> hyper = std::nullopt;  // nullopt: the optimizer's own numbers hold
    std::vector<uint32_t> unmasked = {};              // by any of them (frozen_variance.h)
  };
  struct Round {
    Choice choice;
    std::vector<Contribution> contributions;  // that follow partial(), in rank order
  };

  // REQUIRES: `spec` outlives the rounds; spec.waiting is not null.
  explicit OpenRounds(const PartitionSpec& spec);
  ~OpenRounds() { ClearPartial(); }

  // Counts a push. Errors: RoundLedger::Push's. REQUIRES: `unmasked` are runs.
  [[nodiscard]] absl::StatusOr<PushVerdict> Push(PushRecord push,
                                                 std::shared_ptr<const ChangeCodec> change,
                                                 std::optional<wire::Hyper> hyper,
                                                 std::span<const uint32_t> unmasked = {});

  // Takes `worker` out from that round on (RoundLedger::Leave).
  [[nodiscard]] absl::Status Leave(uint32_t worker, uint64_t from_round);

  // RoundLedger's.
  void SetAway(uint32_t worker) { ledger_.SetAway(worker); }
  void Return(uint32_t worker) { ledger_.Return(worker); }

  const RoundLedger& ledger() const { return ledger_; }

  // Closes the next round, whose contributions stay: no worker comes to it any more. Sums them if
  // the sum is enough smaller.
  // REQUIRES: ledger().NextRoundComplete(). Throws std::bad_alloc, and may then be called again.
  void CloseNext();

  // Takes the next round.
  // REQUIRES: ledger().NextRoundComplete().
  Round TakeNext();

  // The sum of the first contributions of the next round, or of the one just taken. ClearPartial
  // drops it, once it was used.
  const PartialSum& partial() const { return partial_; }
  void ClearPartial();

  void Save(saved::OpenRounds* fields, PartitionImage* image) const;

  // Takes over what Save saved. `codecs` has the codecs that pushes named.
  // REQUIRES: nothing was pushed.
  // DataLoss: the image has no such rounds.
  // InvalidArgument: this build does not know such a codec.
  [[nodiscard]] absl::Status Restore(const saved::OpenRounds& fields, const PartitionImage& image,
                                     ChangeCodecs* codecs);

 private:
  // Replaces the next round's first contributions by their sum, if the sum is enough smaller.
  // Throws std::bad_alloc, having changed nothing.
  void Fold();

  const PartitionSpec& spec_;
  RoundLedger ledger_;
  PartialSum partial_;                  // contributions that ledger_ released
  std::map<uint64_t, Choice> choices_;  // by round not yet taken
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_OPEN_ROUNDS_H_
