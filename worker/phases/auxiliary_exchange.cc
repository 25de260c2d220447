// SPDX-License-Identifier: Apache-2.0
#include "worker/phases/auxiliary_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/format.h"
#include "proto/base/hash.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Returns how many elements of the key the phase needs.
size_t ElementsOf(const Contributed& mine) {
  if (mine.rows == 0) return mine.key->elements;
  return mine.key->elements / static_cast<size_t>(mine.key->info.shape(0)) * mine.rows;
}

wire::PushItem MakePush(const Contributed& mine, bool checksums) {
  wire::PushItem push;
  push.mutable_id()->set_key(mine.key->key.id());
  push.set_round(mine.round);
  push.set_elements(ElementsOf(mine));
  push.set_priority(mine.priority);
  if (mine.values.empty()) return push;  // ABSENT
  push.set_format(wire::RAW_F32);
  push.set_payload_bytes(mine.values.size());
  if (checksums) push.set_payload_hash(HashBytes(mine.values.bytes()));
  return push;
}

wire::PullItem MakePull(const Contributed& mine, absl::Duration timeout) {
  wire::PullItem pull;
  pull.mutable_id()->set_key(mine.key->key.id());
  pull.set_min_version(mine.round);
  pull.set_timeout_ms(HoldMs(timeout));
  pull.set_priority(mine.priority);
  pull.set_elements(ElementsOf(mine));
  return pull;
}

absl::StatusOr<Combined> Parse(const TensorPlan& key, uint64_t round, size_t elements,
                               const Answer& answer) {
  SLIMPS_RETURN_IF_ERROR(answer.status);
  const wire::PullReplyItem& pulled = answer.pull;
  if (pulled.version() != round || pulled.elements() != elements || pulled.is_change()) {
    return absl::DataLossError(absl::StrCat("key ", key.key.typed_name(), ": expected version ",
                                            round, " with ", elements, " elements, got ",
                                            pulled.is_change() ? "a change to " : "", "version ",
                                            pulled.version(), " with ", pulled.elements()));
  }
  const auto format = static_cast<PayloadFormat>(pulled.format());
  SLIMPS_RETURN_IF_ERROR(Prefixed(ValidatePayload(format, answer.payload.bytes(), elements),
                                  absl::StrCat("key ", key.key.typed_name())));
  Combined combined;
  const auto decode = [&] {
    combined.values.resize(elements);
    Decode(format, answer.payload.bytes(), elements, 0, combined.values);
    combined.contributors.assign(pulled.contributors().begin(), pulled.contributors().end());
    return absl::OkStatus();
  };
  SLIMPS_RETURN_IF_ERROR(OrOutOfMemory(decode, "a combined value", key.key.typed_name()));
  return combined;
}

}  // namespace

// One contribution under way. Its push and its pull are answered on different threads, perhaps.
struct AuxiliaryExchange::Waiting {
  void Tell(Combined combined) {
    // Relaxed: it decides only who calls.
    if (!told.exchange(true, std::memory_order_relaxed)) done(std::move(combined));
  }

  const TensorPlan* key = nullptr;
  uint64_t round = 0;
  uint64_t job_round = 0;
  size_t elements = 0;  // of the answer
  CalledOnce<Combined> done;
  std::atomic<bool> told{false};
};

void AuxiliaryExchange::Combine(Contributed mine, CalledOnce<Combined> done) {
  auto waiting = std::make_shared<Waiting>();
  waiting->key = mine.key;
  waiting->round = mine.round;
  waiting->job_round = mine.job_round;
  waiting->elements = ElementsOf(mine);
  waiting->done = std::move(done);
  const uint32_t server = mine.key->partitions[0].server;
  const size_t bytes = mine.values.size();
  OutgoingItem pull{.item = MakePull(mine, options_.timeout),
                    .payload = {},
                    .key_name = mine.key->key.typed_name(),
                    .done = [this, waiting](Answer answer) { OnPulled(*waiting, answer); }};
  MutexLock lock(&sending_);
  Add(server,
      {.item = MakePush(mine, options_.checksums),
       .payload = std::move(mine.values),
       .key_name = mine.key->key.typed_name(),
       .done = [this, waiting, bytes](Answer answer) { OnPushed(*waiting, bytes, answer); }},
      mine.priority);
  Add(server, std::move(pull), mine.priority);
}

void AuxiliaryExchange::Add(uint32_t server, OutgoingItem item, int64_t priority) {
  for (Batch& batch : coalescer_.Add(server, std::move(item), priority)) {
    courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
  }
}

void AuxiliaryExchange::Flush() {
  MutexLock lock(&sending_);
  for (Batch& batch : coalescer_.TakeAll()) {
    courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
  }
}

void AuxiliaryExchange::OnPushed(Waiting& waiting, size_t bytes, const Answer& answer) {
  // The pull brings the result. Without this push it would wait in vain.
  if (!answer.status.ok()) return waiting.Tell({.status = answer.status});
  bytes_pushed_.fetch_add(bytes, std::memory_order_relaxed);
  if (options_.on_passed) options_.on_passed(waiting.job_round, bytes, answer.round_trip);
}

void AuxiliaryExchange::OnPulled(Waiting& waiting, const Answer& answer) {
  absl::StatusOr<Combined> combined = Parse(*waiting.key, waiting.round, waiting.elements, answer);
  if (!combined.ok()) return waiting.Tell({.status = combined.status()});
  bytes_pulled_.fetch_add(answer.payload.size(), std::memory_order_relaxed);
  waiting.Tell(*std::move(combined));
}

AuxiliaryExchange::Totals AuxiliaryExchange::totals() const {
  return {.bytes_pushed = bytes_pushed_.load(std::memory_order_relaxed),
          .bytes_pulled = bytes_pulled_.load(std::memory_order_relaxed)};
}

}  // namespace slimps
