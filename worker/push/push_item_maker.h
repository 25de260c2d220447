// SPDX-License-Identifier: Apache-2.0
// PushItemMaker: makes the item that carries one partition of a push to its server: the payload,
// and what the message's header says of it.
//
//   PushItemMaker items({.payloads = {.worker = rank}});
//   SLIMPS_ASSIGN_OR_RETURN(PreparedPush push, items.Make(job, i, grad, bound, *codec, *codec));
//   courier.Dispatch(server, {std::move(push.item)}, priority);   // after setting item.done
//
// Thread-safe, as PayloadMaker says.
#ifndef SLIMPS_WORKER_PUSH_PUSH_ITEM_MAKER_H_
#define SLIMPS_WORKER_PUSH_PUSH_ITEM_MAKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/codec/state/state_store.h"
#include "proto/base/clock.h"
#include "worker/courier/outgoing_item.h"
#include "worker/device/device.h"
#include "worker/push/payload_maker.h"
#include "worker/push/push_job.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/shared_momentum.h"

namespace slimps {

struct PushItemMakerOptions {
  PayloadMakerOptions payloads;
  bool checksums = true;  // hash payloads
  // Returns PushItem.change_codec. null: always "".
  std::function<std::string(const TensorPlan&, uint64_t round)> change_codec;
  // Makes momenta of the gradients of partitions that it covers. null: there are none. It outlives
  // the maker.
  SharedMomentum* momentum = nullptr;
  // Returns true if gradients must not be compressed: their optimizer freezes its variance later.
  // null: never.
  std::function<bool()> sends_whole_gradients;
  const Clock* clock = MachineClock();
};

struct PreparedPush {
  OutgoingItem item;  // without `done`
  absl::Duration encode;
  EncodeStats stats;
  uint64_t elements = 0;  // of the gradient
  bool compressed = false;
};

class PushItemMaker final {
 public:
  explicit PushItemMaker(PushItemMakerOptions options)
      : options_(std::move(options)), payloads_(options_.payloads) {}

  // Makes the item. `grad_buf` is the partition's gradient; null: the job has a ready payload or
  // nothing. None of its absolute values is above `gradient_bound`.
  // `codec` and `compressor` are those of PayloadMaker::Make, and so are the errors.
  [[nodiscard]] absl::StatusOr<PreparedPush> Make(const PushJob& job, size_t partition,
                                                  std::shared_ptr<HostBuffer> grad_buf,
                                                  float gradient_bound, const Codec& codec,
                                                  const Codec& compressor);

  // Returns what codecs keep of each partition. REQUIRES: as StateStore says.
  StateStore& states() { return payloads_.states(); }

 private:
  // Makes the momentum that is pushed from the part's gradient, or from zero if the worker
  // contributes none, and says so in `push`. Does nothing if the partition's pushes are gradients.
  absl::Status MakeMomentum(const PushJob& job, GradientPart* part, wire::PushItem* push);
  absl::Status AddGradient(const GradientPart& part, const Codec& codec, const Codec& compressor,
                           PreparedPush* prepared, wire::PushItem* push);
  void AddReady(const ReadyPayload& ready, PreparedPush* prepared, wire::PushItem* push) const;
  // Moves the payload into the item.
  void AddPayload(Payload payload, wire::Format format, OutgoingItem* item,
                  wire::PushItem* push) const;

  const PushItemMakerOptions options_;
  const std::unique_ptr<const Codec> whole_ = MakeCodec(CodecSpec{.name = "none"}).value();
  PayloadMaker payloads_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_ITEM_MAKER_H_
