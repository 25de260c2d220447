// SPDX-License-Identifier: Apache-2.0
#include "worker/phases/clip_round.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "worker/courier/coalescer.h"

namespace slimps {
namespace {

constexpr double kEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_'s

struct Part {
  const TensorPlan* plan = nullptr;
  uint32_t index = 0;
  uint64_t round = 0;
  double norm2 = 0;

  const PartitionPlan& place() const { return plan->partitions[index]; }
};

template <typename Item>
void Identify(const Part& part, Item* item) {
  item->mutable_id()->set_key(part.plan->key.id());
  item->mutable_id()->set_partition(part.index);
  item->set_elements(part.place().elements);
}

// One round under way. Thread-safe.
class Clipping final : public std::enable_shared_from_this<Clipping> {
 public:
  Clipping(Courier* courier, std::vector<Part> parts, ClipRoundOptions options)
      : courier_(courier),
        options_(std::move(options)),
        parts_(std::move(parts)),
        missing_(parts_.size()) {}

  void Begin() {
    if (parts_.empty()) return options_.done(absl::OkStatus());
    ToAll([this](size_t i, const Part& part) {
      wire::PullItem pull;
      Identify(part, &pull);
      pull.set_min_version(part.round);
      pull.set_timeout_ms(HoldMs(options_.timeout));
      pull.set_norm(true);
      return OutgoingItem{.item = pull,
                          .payload = {},
                          .key_name = part.plan->key.typed_name(),
                          .done = [self = shared_from_this(), i](const Answer& answer) {
                            OrTell(self->options_.on_out_of_memory,
                                   [&] { self->OnNorm(i, answer); });
                          }};
    });
  }

 private:
  // Sends each part's server the item that `make` returns.
  void ToAll(const std::function<OutgoingItem(size_t, const Part&)>& make) {
    Coalescer coalescer;
    const auto send = [this](std::vector<Batch> batches) {
      for (Batch& batch : batches) {
        courier_->Dispatch(batch.server, std::move(batch.items), batch.priority);
      }
    };
    for (size_t i = 0; i < parts_.size(); ++i) {
      send(coalescer.Add(parts_[i].place().server, make(i, parts_[i]), Courier::kBeforeAll));
    }
    send(coalescer.TakeAll());
  }

  void OnNorm(size_t part, const Answer& answer) {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      status_.Update(answer.status);
      parts_[part].norm2 =
          answer.pull.has_norm2() ? answer.pull.norm2() : std::numeric_limits<double>::quiet_NaN();
      if (--missing_ > 0) return;
      status = status_;
    }
    if (status.ok()) Finish();
    options_.done(status);
  }

  void Finish() {
    double norm2 = 0;
    for (const Part& one : parts_) norm2 += one.norm2;
    const double norm = std::sqrt(norm2);
    const double scale =
        std::isfinite(norm) ? std::min(1.0, options_.max_norm / (norm + kEpsilon)) : 0;
    SendScale(scale);
    *options_.out = {.norm = norm, .scale = scale};
  }

  void SendScale(double scale) {
    ToAll([this, scale](size_t, const Part& part) {
      wire::PushItem push;
      Identify(part, &push);
      push.set_round(part.round);
      push.set_gradient_scale(scale);
      return OutgoingItem{.item = push,
                          .payload = {},
                          .key_name = part.plan->key.typed_name(),
                          .done = [on_refused = options_.on_refused](const Answer& answer) {
                            if (!answer.status.ok()) on_refused(answer.status);
                          }};
    });
  }

  Courier* const courier_;
  ClipRoundOptions options_;
  // Guarded by mutex_ until all are there; constant then.
  std::vector<Part> parts_;
  Mutex mutex_;
  size_t missing_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void ClipRound(Courier* courier, const std::vector<ClippedTensor>& tensors,
               ClipRoundOptions options) {
  std::vector<Part> parts;
  for (const ClippedTensor& tensor : tensors) {
    for (uint32_t i = 0; i < tensor.plan->partitions.size(); ++i) {
      parts.push_back({.plan = tensor.plan, .index = i, .round = tensor.round});
    }
  }
  // One order for all workers, however they name their tensors.
  std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.plan->key.id(); });
  std::make_shared<Clipping>(courier, std::move(parts), std::move(options))->Begin();
}

}  // namespace slimps
