// SPDX-License-Identifier: Apache-2.0
// ResidualTransfer: saves and loads what codecs and a policy that adapts keep on this worker.
//
//   ResidualTransfer residuals(options, &keys, &codecs, &tensors);
//   SLIMPS_ASSIGN_OR_RETURN(const std::string content, residuals.Save());
//   SLIMPS_ASSIGN_OR_RETURN(auto loaded, residuals.Parse(content));   // changes nothing
//   SLIMPS_RETURN_IF_ERROR(residuals.Use(std::move(loaded), /*rounds_pushed=*/0));
//
// Owned by the store. Thread-safe; the calling thread waits.
#ifndef SLIMPS_WORKER_STORE_SAVING_RESIDUAL_TRANSFER_H_
#define SLIMPS_WORKER_STORE_SAVING_RESIDUAL_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/state/state_store.h"
#include "proto/slimps.pb.h"
#include "worker/kvstore.h"
#include "worker/store/codec_choice.h"
#include "worker/store/tensor_traffic.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class ResidualTransfer final {
 public:
  struct Loaded {
    std::unique_ptr<StateStore> states = std::make_unique<StateStore>();
    wire::SavedPolicy policy;
  };

  // REQUIRES: the arguments outlive this object.
  ResidualTransfer(const KVStoreOptions& options, const KeyTable* keys, CodecChoice* codecs,
                   TensorTraffic* tensors)
      : options_(options), keys_(keys), codecs_(codecs), tensors_(tensors) {}

  // KVStore::SaveResiduals.
  absl::StatusOr<std::string> Save();

  // Errors: KVStore::LoadResiduals'.
  [[nodiscard]] absl::StatusOr<Loaded> Parse(std::string_view content) const;

  // Replaces what is there. The next push is that of round `rounds_pushed` + 1.
  // REQUIRES: no push was made.
  [[nodiscard]] absl::Status Use(Loaded loaded, uint64_t rounds_pushed);

 private:
  // The keys that a file of residuals names: those of tensors, and of what codecs keep of them.
  std::vector<const TensorPlan*> KeysWithStates() const;

  const KVStoreOptions& options_;
  const KeyTable* const keys_;
  CodecChoice* const codecs_;
  TensorTraffic* const tensors_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_SAVING_RESIDUAL_TRANSFER_H_
