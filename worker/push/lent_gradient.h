// SPDX-License-Identifier: Apache-2.0
// GradientLoan: a gradient in host memory that its owner lends to a push, in the place of grad_buf.
// Codecs read it where it lies, which saves the copy's pass over memory.
//
//   const auto loan = std::make_shared<GradientLoan>(lent);
//   GradientBuffers grad_bufs = LendPartitions(*tensor, loan);
//   ... submit the push with them ...
//   loan->Accept(std::move(lent.returned));
//   ... the memory is given back when the last buffer and the last `loan` have been dropped ...
#ifndef SLIMPS_WORKER_PUSH_LENT_GRADIENT_H_
#define SLIMPS_WORKER_PUSH_LENT_GRADIENT_H_

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/device/place.h"
#include "worker/push/staging.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// A gradient on loan. Its destructor calls what was given to Accept. Thread-safe.
class GradientLoan final {
 public:
  // REQUIRES: the memory is the host's.
  explicit GradientLoan(const LentGradient& lent)
      : values_(lent.values),
        until_(lent.until_acknowledged ? Loan::kUntilAcknowledged : Loan::kUntilEncoded) {}
  ~GradientLoan();
  GradientLoan(const GradientLoan&) = delete;
  GradientLoan& operator=(const GradientLoan&) = delete;

  // `returned` gets the first error.
  void Fail(const absl::Status& why);

  // Notes that the push was taken: its end calls `returned`.
  void Accept(std::function<void(absl::Status)> returned);

  std::span<const float> values() const { return values_; }
  Loan until() const { return until_; }

 private:
  const std::span<const float> values_;
  const Loan until_;
  Mutex mutex_;
  std::function<void(absl::Status)> returned_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Returns one buffer per partition. Each keeps the loan.
// REQUIRES: the loan has the tensor's elements.
GradientBuffers LendPartitions(const TensorPlan& tensor, const std::shared_ptr<GradientLoan>& loan);

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_LENT_GRADIENT_H_
