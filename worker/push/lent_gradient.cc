// SPDX-License-Identifier: Apache-2.0
#include "worker/push/lent_gradient.h"

#include <utility>

namespace slimps {
namespace {

class LentPartition final : public HostBuffer {
 public:
  LentPartition(std::shared_ptr<GradientLoan> loan, const PartitionPlan& partition)
      : loan_(std::move(loan)),
        values_(loan_->values().subspan(partition.offset, partition.elements)) {}

  // loan() says that it is only read.
  std::span<float> floats() override {
    return {const_cast<float*>(values_.data()), values_.size()};
  }
  Loan loan() const override { return loan_->until(); }

 private:
  const std::shared_ptr<GradientLoan> loan_;
  const std::span<const float> values_;
};

}  // namespace

GradientLoan::~GradientLoan() {
  if (returned_) returned_(status_);
}

void GradientLoan::Fail(const absl::Status& why) {
  MutexLock lock(&mutex_);
  status_.Update(why);
}

void GradientLoan::Accept(std::function<void(absl::Status)> returned) {
  MutexLock lock(&mutex_);
  returned_ = std::move(returned);
}

GradientBuffers LendPartitions(const TensorPlan& tensor,
                               const std::shared_ptr<GradientLoan>& loan) {
  GradientBuffers buffers;
  for (const PartitionPlan& partition : tensor.partitions) {
    buffers.push_back(std::make_shared<LentPartition>(loan, partition));
  }
  return buffers;
}

}  // namespace slimps
