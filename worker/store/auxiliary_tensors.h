// SPDX-License-Identifier: Apache-2.0
// AuxiliaryTensors: the auxiliary keys that go with the tensors of one Init, where the codec's
// exchange has phases (compress/codec/phases.h). They are declared and placed as tensors are, and
// nobody else sees them.
//
//   const AuxiliaryTensors auxiliary(codec, tensors, options);
//   SLIMPS_ASSIGN_OR_RETURN(DeclaredTensors declared,
//                           DeclareTensors(auxiliary.all(), options, ...));
//   std::vector<std::vector<TensorPlan>> keys = auxiliary.Take(&declared.plans);
//   SLIMPS_RETURN_IF_ERROR(auxiliary.SendValues(keys, values, courier));     // rank 0
//
// Thread-compatible.
#ifndef SLIMPS_WORKER_STORE_AUXILIARY_TENSORS_H_
#define SLIMPS_WORKER_STORE_AUXILIARY_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "worker/courier/courier.h"
#include "worker/store/store_init.h"
#include "worker/tensor/init_tensor.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class AuxiliaryTensors final {
 public:
  // REQUIRES: what the tensors point to outlives this object.
  AuxiliaryTensors(const Codec& codec, const std::vector<InitTensor>& tensors,
                   const DeclareOptions& options);

  // The tensors, cut as the codec wants them, then their auxiliary keys.
  const std::vector<InitTensor>& all() const { return all_; }

  // Takes the auxiliary keys out of the plans of all(). Returns them by tensor, and then by phase.
  std::vector<std::vector<TensorPlan>> Take(std::vector<TensorPlan>* plans) const;

  // Sends the keys' first values, zeros: version 0, which no worker pulls. Errors: those of
  // SendInitialValues.
  [[nodiscard]] absl::Status SendValues(const std::vector<std::vector<TensorPlan>>& keys,
                                        const InitialValueOptions& options, Courier* courier) const;

 private:
  struct OfTensor {
    size_t first = 0;               // of its keys in all_
    std::vector<Combine> combines;  // by phase
  };

  std::vector<InitTensor> all_;
  std::vector<OfTensor> of_tensors_;
  std::vector<float> zeros_;
};

// Checks that the codec takes some tensor. Where each tensor travels as it would without the codec,
// its options are a mistake.
// InvalidArgument: it takes none, though there are matrices (names the largest).
[[nodiscard]] absl::Status CheckTakesSome(const Codec& codec,
                                          const std::vector<const TensorPlan*>& tensors);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_AUXILIARY_TENSORS_H_
