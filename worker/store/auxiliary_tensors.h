// SPDX-License-Identifier: Apache-2.0
// AuxiliaryTensors: the auxiliary keys that go with the tensors of one Init, where the exchange of
// a tensor's codec has phases (compress/codec/phases.h). They are declared and placed as tensors
// are, and nobody else sees them. Where a policy may choose among several codecs for a tensor, they
// share the keys of the same name, which have the rows of the one that needs most.
//
//   const AuxiliaryTensors auxiliary(codecs, tensors, options);
//   SLIMPS_ASSIGN_OR_RETURN(DeclaredTensors declared,
//                           DeclareTensors(auxiliary.all(), options, ...));
//   std::vector<std::vector<PhaseKey>> keys = auxiliary.Take(&declared.plans);
//   SLIMPS_RETURN_IF_ERROR(auxiliary.SendValues(keys, values, courier));     // rank 0
//
// Thread-compatible.
#ifndef SLIMPS_WORKER_STORE_AUXILIARY_TENSORS_H_
#define SLIMPS_WORKER_STORE_AUXILIARY_TENSORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "compress/codec/phases.h"
#include "worker/courier/courier.h"
#include "worker/phases/phased_pushes.h"
#include "worker/store/store_init.h"
#include "worker/tensor/init_tensor.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class AuxiliaryTensors final {
 public:
  // `codecs` has, for each tensor, those that its pushes may use.
  // REQUIRES: what the tensors point to outlives this object.
  AuxiliaryTensors(const std::vector<std::vector<const Codec*>>& codecs,
                   const std::vector<InitTensor>& tensors, const DeclareOptions& options);

  // The tensors, cut as the codec wants them, then their auxiliary keys.
  const std::vector<InitTensor>& all() const { return all_; }

  // Takes the auxiliary keys out of the plans of all(). Returns them by tensor.
  std::vector<std::vector<PhaseKey>> Take(std::vector<TensorPlan>* plans) const;

  // Sends the keys' first values, zeros: version 0, which no worker pulls. Errors: those of
  // SendInitialValues.
  [[nodiscard]] absl::Status SendValues(const std::vector<std::vector<PhaseKey>>& keys,
                                        const InitialValueOptions& options, Courier* courier) const;

 private:
  struct OneKey {
    AuxiliaryShape shape;
    bool keeps_memory = false;
  };
  struct OfTensor {
    size_t first = 0;  // of its keys in all_
    std::vector<OneKey> keys;
  };

  static void AddKeys(const PhasedCodec& phases, std::span<const int64_t> shape,
                      std::vector<OneKey>* keys);

  std::vector<InitTensor> all_;
  std::vector<OfTensor> of_tensors_;
  std::vector<float> zeros_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_AUXILIARY_TENSORS_H_
