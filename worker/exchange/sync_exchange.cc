// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/activity.h"
#include "worker/exchange/round_arrivals.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {

namespace {

// Owned by the training thread.
class SyncExchange final : public WeightExchange {
 public:
  SyncExchange(KVStore* store, std::span<const Parameter> parameters,
               const ExchangeOptions& options, const LoadedCheckpoint& resumed)
      : store_(store),
        parameters_(parameters),
        options_(options),
        pusher_(store, parameters,
                {.non_finite = options.non_finite,
                 .lend = true,
                 .timeout = options.timeout,
                 .clock = options.clock}),
        steps_(resumed.rounds) {}

  absl::Status BeginStep() override {
    pusher_.BeginRound();
    return absl::OkStatus();
  }

  void OnGradient(size_t index, std::span<const float> gradient, const Place& place) override {
    pusher_.OnGradient(index, gradient, place);
  }

  absl::Status OnRows(size_t index, std::span<const int64_t> rows, std::span<const float> values,
                      const Place& place) override {
    pusher_.OnRows(index, rows, values, place);
    return absl::OkStatus();
  }

  bool IsRead(size_t index) const override { return pusher_.IsRead(index); }

  absl::Status EndStep() override {
    absl::Status ended;
    try {
      ended = ExchangeRound();
    } catch (...) {
      (void)pusher_.AwaitLoans();  // the caller takes the gradients back
      throw;
    }
    // Mostly long over: weights come after their gradients.
    const absl::Status given_back = pusher_.AwaitLoans();
    ++steps_;
    return given_back.ok() ? ended : given_back;
  }

  absl::Status SetHyper(size_t index, const Hyper& hyper) override {
    return store_->SetHyper(pusher_.key(index), hyper);
  }

  absl::Status SetClipNorm(double norm) override { return pusher_.SetClipNorm(norm); }
  const Clipping& clipping() const override { return pusher_.clipping(); }
  absl::Status Drain() override { return store_->Wait(); }
  absl::Status Save(const std::string& folder) override { return store_->Save(folder); }
  size_t steps() const override { return steps_; }
  ExchangeTimes times() const override { return times_; }

 private:
  absl::Status ExchangeRound() {
    SLIMPS_RETURN_IF_ERROR(pusher_.EndRound());
    const TraceSpan span(TraceStage::kWait, {});
    const Activity::Call noted(store_->activity(), "EndStep");
    const SteadyTime start = options_.clock->Now();
    const auto arrivals = std::make_shared<RoundArrivals>(pusher_.size(), options_.clock);
    for (size_t i = 0; i < pusher_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      const auto arrived = [arrivals](absl::Status status) { arrivals->Arrived(status); };
      if (parameter.place.on_host()) {
        // PullOnto's condition holds: nothing but pulls writes to the parameters.
        store_->PullOnto(pusher_.key(i), parameter.values, PriorityOf(i), arrived);
      } else {
        store_->PullTo(pusher_.key(i),
                       {.values = parameter.values, .place = parameter.place, .done = arrived},
                       PriorityOf(i));
      }
    }
    const absl::Status arrived = arrivals->Wait(start + options_.timeout);
    const absl::Duration waited = options_.clock->Now() - start;
    times_.wait += waited;
    times_.overlap += OverlapOf(pusher_.first_push(), arrivals->last_arrival(), waited);
    SLIMPS_RETURN_IF_ERROR(arrived);
    return pusher_.AwaitNorm();  // another worker may have heard it first
  }

  KVStore* const store_;
  const std::span<const Parameter> parameters_;
  const ExchangeOptions options_;
  GradientPusher pusher_;
  size_t steps_;  // finished
  ExchangeTimes times_;
};

}  // namespace

std::unique_ptr<WeightExchange> MakeSyncExchange(KVStore* store,
                                                 std::span<const Parameter> parameters,
                                                 const ExchangeOptions& options,
                                                 const LoadedCheckpoint& resumed) {
  return std::make_unique<SyncExchange>(store, parameters, options, resumed);
}

}  // namespace slimps
