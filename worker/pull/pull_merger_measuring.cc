// SPDX-License-Identifier: Apache-2.0
// PullMerger: measured pulls. They go one by one, and their values are thrown away.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "worker/pull/pull_merger.h"
#include "worker/pull/pulled_form.h"

namespace slimps {
namespace {

// True if `answer` has the form that a version made with `change_codec` should have.
bool IsAsAgreed(const std::string& change_codec, const wire::PullReplyItem& answer) {
  const PulledForm form = PulledFormOf(change_codec);
  if (answer.is_change() != (form == PulledForm::kChange)) return false;
  switch (form) {
    case PulledForm::kAsKept:
      return answer.format() == wire::RAW_F32;  // keys in half precision are not measured
    case PulledForm::kF16:
      return answer.format() == wire::RAW_F16;
    case PulledForm::kBf16:
      return answer.format() == wire::RAW_BF16;
    case PulledForm::kChange:
      break;
  }
  return true;
}

}  // namespace

void PullMerger::AwaitMeasured(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  if (left_to_measure_ == 0) return;
  ++waiters_;
  work_.NotifyAll();
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || left_to_measure_ == 0;
  };
  // A measurement that this wait misses goes on.
  (void)measured_.Await(&mutex_, timeout, done);
  --waiters_;
}

void PullMerger::Measure(const std::shared_ptr<State>& pulled) {
  const TensorPlan& tensor = *pulled->job.tensor;
  const uint64_t version = pulled->job.min_version;
  if (version == 0 || tensor.partitions.empty()) return;
  if (options_.measures == nullptr || !options_.measures(tensor, version)) return;
  auto state = std::make_shared<State>();
  state->job = {.tensor = &tensor, .min_version = version, .priority = pulled->job.priority};
  state->pending = tensor.partitions.size();
  // The server answers in the same form only if asked with the same held versions as the first
  // time.
  state->asked_with = pulled->asked_with;
  state->measured_version = version;
  to_measure_.push_back(std::move(state));
  MutexLock lock(&mutex_);
  ++left_to_measure_;
}

void PullMerger::MeasureNext() {
  if (measuring_ || to_measure_.empty()) return;
  {
    MutexLock lock(&mutex_);
    if (under_way_ > 0 && waiters_ == 0) return;
  }
  measuring_ = true;
  ByServer by_server;
  AddRequests(std::exchange(to_measure_.front(), nullptr), &by_server);
  to_measure_.pop_front();
  Dispatch(std::move(by_server));
}

absl::Status PullMerger::GaugeAnswer(State& state, const Reply& reply) const {
  const TensorPlan& tensor = *state.job.tensor;
  const uint64_t version = *state.measured_version;
  const Answer& answer = reply.answer;
  const size_t elements = tensor.partitions[reply.partition].elements;
  const auto format = static_cast<PayloadFormat>(answer.pull.format());
  SLIMPS_RETURN_IF_ERROR(answer.status);
  // A server keeps two versions. On a slow link only the weights of a newer version may come, and
  // they take as long. So they count as a sample; a change must be of this very version.
  const bool of_version =
      answer.pull.is_change() ? answer.pull.version() == version : answer.pull.version() >= version;
  if (!of_version || answer.round_trip == absl::ZeroDuration() ||
      answer.pull.elements() != elements ||
      !IsAsAgreed(options_.change_codec == nullptr ? "" : options_.change_codec(tensor, version),
                  answer.pull)) {
    return absl::FailedPreconditionError("no sample");
  }
  SLIMPS_RETURN_IF_ERROR(ValidatePayload(format, answer.payload.bytes(), elements));
  state.first_byte = std::min(state.first_byte, reply.arrived - answer.round_trip);
  state.last_answer = std::max(state.last_answer, reply.arrived);
  if (!answer.pull.is_change()) return absl::OkStatus();
  // Decodes into scratch memory: only the time counts.
  alignas(kBufferAlignment) std::array<float, kBlockElements> scratch{};
  const SteadyTime start = options_.clock->Now();
  for (size_t first = 0; first < elements; first += kBlockElements) {
    DecodeAdd(format, answer.payload.bytes(), elements, first,
              std::span<float>(scratch).first(std::min(kBlockElements, elements - first)));
  }
  state.coding += absl::Nanoseconds(static_cast<int64_t>(answer.pull.encode_ns())) +
                  (options_.clock->Now() - start);
  return absl::OkStatus();
}

void PullMerger::Gauge(State& state, const Reply& reply) {
  state.as_agreed = state.as_agreed && GaugeAnswer(state, reply).ok();
  if (--state.pending > 0) return;
  measuring_ = false;
  if (state.as_agreed) {
    options_.on_measured({.tensor = state.job.tensor,
                          .version = *state.measured_version,
                          .communication = state.last_answer - state.first_byte,
                          .coding = state.coding});
  }
  MutexLock lock(&mutex_);
  if (left_to_measure_ > 0 && --left_to_measure_ == 0) measured_.NotifyAll();
}

}  // namespace slimps
