// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_exchange.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/status_macros.h"
#include "worker/capi/c_api_handle.h"
#include "worker/capi/c_api_structs.h"
#include "worker/capi/c_api_support.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps {
namespace {

// Shared with calls under way.
struct Exchange {
  std::vector<Parameter> parameters;
  std::unique_ptr<WeightExchange> exchange;  // uses `parameters`
};

}  // namespace
}  // namespace slimps

struct slimps_exchange {
  slimps_store store;  // a handle; declared first, so that it outlives `state`
  std::shared_ptr<slimps::Exchange> state;
};

namespace slimps {
namespace {

// What slimps_exchange_create is given, copied.
struct Plan {
  std::shared_ptr<Exchange> state = std::make_shared<Exchange>();
  wire::OptimizerSpec optimizer;
  ExchangeOptions options;
};

absl::StatusOr<Parameter> ToParameter(const std::string& what, const slimps_parameter& given) {
  SLIMPS_RETURN_IF_ERROR(CheckText((what + ".name").c_str(), given.name));
  SLIMPS_ASSIGN_OR_RETURN(Shape shape, ToShape(what, given.shape, given.dimensions));
  SLIMPS_ASSIGN_OR_RETURN(const wire::LayerKind layer, ToLayer(what, given.layer, shape));
  SLIMPS_RETURN_IF_ERROR(CheckChoice(what + ".spare", given.spare, 1));
  SLIMPS_ASSIGN_OR_RETURN(const std::span<float> values,
                          ToSpan((what + ".values").c_str(), given.values, shape.elements));
  SLIMPS_ASSIGN_OR_RETURN(const Place place,
                          SaidOrFoundPlace(what + ".place", given.place, given.values));
  return Parameter{.name = given.name,
                   .shape = std::move(shape.extents),
                   .layer = layer,
                   .values = values,
                   .spare = given.spare == 1,
                   .place = place};
}

absl::StatusOr<ExchangeOptions> ToOptions(const slimps_exchange_settings* given) {
  SLIMPS_RETURN_IF_ERROR(CheckPointer("settings", given));
  SLIMPS_ASSIGN_OR_RETURN(const auto settings,
                          ReadSized<slimps_exchange_settings>("settings", given));
  SLIMPS_RETURN_IF_ERROR(CheckChoice("settings.backup_model", settings.backup_model, 1));
  SLIMPS_RETURN_IF_ERROR(CheckChoice("settings.skip_non_finite", settings.skip_non_finite, 1));
  SLIMPS_RETURN_IF_ERROR(CheckChoice("settings.overlap_forward", settings.overlap_forward, 1));
  if (!(settings.timeout_s >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "settings.timeout_s: expected a number of seconds or 0, got ", settings.timeout_s));
  }
  ExchangeOptions options{
      .non_finite = settings.skip_non_finite == 1 ? NonFinite::kSkip : NonFinite::kStop,
      .clip_norm = settings.clip_norm,
      .timeout = absl::Seconds(settings.timeout_s),
      .overlap_forward = settings.overlap_forward == 1};
  if (!(settings.local_lr >= 0) || (settings.local_lr > 0 && settings.backup_model == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("settings.local_lr: expected 0 or, for the backup model's step, a learning "
                     "rate, got ",
                     settings.local_lr));
  }
  if (settings.backup_model == 1) {
    options.backup =
        MirroringBackup(settings.local_lr == 0 ? std::nullopt : std::optional(settings.local_lr));
  }
  return options;
}

absl::StatusOr<Plan> ToPlan(const slimps_parameter* parameters, size_t count,
                            const slimps_optimizer* optimizer,
                            const slimps_exchange_settings* settings) {
  SLIMPS_ASSIGN_OR_RETURN(const auto given, ReadSizedArray("parameters", parameters, count));
  Plan plan;
  for (size_t i = 0; i < count; ++i) {
    SLIMPS_ASSIGN_OR_RETURN(Parameter one,
                            ToParameter(absl::StrCat("parameters[", i, "]"), given[i]));
    plan.state->parameters.push_back(std::move(one));
  }
  SLIMPS_RETURN_IF_ERROR(CheckPointer("optimizer", optimizer));
  plan.optimizer = optimizer->spec;
  SLIMPS_ASSIGN_OR_RETURN(plan.options, ToOptions(settings));
  return plan;
}

// Runs `body(WeightExchange*)`, which may have to wait.
template <typename Body>
slimps_status AwaitStep(const char* function, slimps_exchange* exchange, Body body) noexcept {
  if (exchange == nullptr) {
    return Guarded(function, [&] { return CheckPointer("exchange", exchange); });
  }
  return Await(function, &exchange->store,
               [state = exchange->state, body](KVStore*) { return body(state->exchange.get()); });
}

// Runs `body(const Exchange&)` on the calling thread.
template <typename Body>
slimps_status AskExchange(const char* function, const slimps_exchange* exchange,
                          const Body& body) noexcept {
  if (exchange == nullptr) {
    return Guarded(function, [&] { return CheckPointer("exchange", exchange); });
  }
  return AskIdle(function, &exchange->store, [&](KVStore*) { return body(*exchange->state); });
}

absl::Status CheckIndex(const Exchange& exchange, size_t index) {
  if (index < exchange.parameters.size()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("index: expected one below ", exchange.parameters.size(), ", got ", index));
}

// Pushes `elements` floats by `push(WeightExchange*)`, which returns a Status: at once, or as one
// that may have to wait. `check(const Exchange&)` comes first. It returns if the push waits for a
// GPU, a StatusOr<bool>.
template <typename Check, typename Body>
slimps_status PushPart(const char* function, slimps_exchange* exchange, size_t elements,
                       const Check& check, Body push) noexcept {
  bool may_wait = false;
  const slimps_status status =
      AskExchange(function, exchange, [&](const Exchange& one) -> absl::Status {
        SLIMPS_ASSIGN_OR_RETURN(const bool waits_for_gpu, check(one));
        may_wait = waits_for_gpu ||
                   exchange->store.shared->store()->push_may_wait(elements * sizeof(float));
        return may_wait ? absl::OkStatus() : push(one.exchange.get());
      });
  return may_wait ? AwaitStep(function, exchange, push) : status;
}

// `place()` returns where the gradient lies, a StatusOr<Place>.
template <typename FindPlace>
slimps_status PushGradient(const char* function, slimps_exchange* exchange, size_t index,
                           const float* gradient, size_t elements, FindPlace place) {
  const auto check = [=](const Exchange& one) -> absl::StatusOr<bool> {
    SLIMPS_RETURN_IF_ERROR(CheckIndex(one, index));
    SLIMPS_RETURN_IF_ERROR(place().status());
    SLIMPS_RETURN_IF_ERROR(ToSpan("gradient", gradient, elements).status());
    return false;
  };
  return PushPart(function, exchange, elements, check, [=](WeightExchange* one) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const Place at, place());
    one->OnGradient(index, {gradient, elements}, at);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace slimps

using slimps::AskExchange;
using slimps::AwaitStep;
using slimps::CheckPointer;
using slimps::Exchange;
using slimps::WeightExchange;

extern "C" {

slimps_status slimps_exchange_create(slimps_store* store, const slimps_parameter* parameters,
                                     size_t count, const slimps_optimizer* optimizer,
                                     const slimps_exchange_settings* settings,
                                     slimps_exchange** exchange) {
  const auto plan = [&]() -> absl::StatusOr<slimps::Plan> {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("exchange", exchange));
    return slimps::ToPlan(parameters, count, optimizer, settings);
  };
  // Not the store itself: its last owner must not be a thread that it waits for.
  const auto shared = store == nullptr ? std::weak_ptr<slimps::SharedStore>()
                                       : std::weak_ptr<slimps::SharedStore>(store->shared);
  const auto call = store == nullptr ? nullptr : store->call;
  return slimps::AwaitWith(
      __func__, store, plan, [=](slimps::KVStore* open, const slimps::Plan& given) -> absl::Status {
        SLIMPS_ASSIGN_OR_RETURN(
            given.state->exchange,
            slimps::StartExchange(open, given.state->parameters, given.optimizer, given.options));
        auto made = std::make_unique<slimps_exchange>();
        made->state = given.state;
        made->store.call = call;
        made->store.shared = shared.lock();
        if (made->store.shared == nullptr) {
          return absl::FailedPreconditionError("the store was destroyed meanwhile");
        }
        *exchange = made.release();
        return absl::OkStatus();
      });
}

slimps_status slimps_exchange_begin_step(slimps_exchange* exchange) {
  return AwaitStep(__func__, exchange, [](WeightExchange* one) { return one->BeginStep(); });
}

slimps_status slimps_exchange_gradient(slimps_exchange* exchange, size_t index,
                                       const float* gradient, size_t elements) {
  const auto found = [=]() -> absl::StatusOr<slimps::Place> { return slimps::PlaceOf(gradient); };
  return slimps::PushGradient(__func__, exchange, index, gradient, elements, found);
}

slimps_status slimps_exchange_gradient_at(slimps_exchange* exchange, size_t index,
                                          const float* gradient, size_t elements,
                                          const slimps_place* place) {
  const slimps_place given = place == nullptr ? slimps_place{} : *place;
  const auto said = [=] { return slimps::ToPlace("place", given, SLIMPS_CUDA_BFLOAT16, gradient); };
  return slimps::PushGradient(__func__, exchange, index, gradient, elements, said);
}

slimps_status slimps_exchange_is_read(const slimps_exchange* exchange, size_t index,
                                      int32_t* is_read) {
  return AskExchange(__func__, exchange, [&](const Exchange& one) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckIndex(one, index));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("is_read", is_read));
    *is_read = one.exchange->IsRead(index) ? 1 : 0;
    return absl::OkStatus();
  });
}

slimps_status slimps_exchange_rows(slimps_exchange* exchange, size_t index, const int64_t* rows,
                                   size_t num_rows, const float* values, size_t elements) {
  const auto check = [=](const Exchange& one) -> absl::StatusOr<bool> {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckIndex(one, index));
    SLIMPS_RETURN_IF_ERROR(slimps::ToSpan("rows", rows, num_rows).status());
    SLIMPS_RETURN_IF_ERROR(slimps::ToSpan("values", values, elements).status());
    return !slimps::PlaceOf(values).on_host();
  };
  return slimps::PushPart(__func__, exchange, elements, check, [=](WeightExchange* one) {
    return one->OnRows(index, {rows, num_rows}, {values, elements}, slimps::PlaceOf(values));
  });
}

slimps_status slimps_exchange_end_step(slimps_exchange* exchange) {
  return AwaitStep(__func__, exchange, [](WeightExchange* one) { return one->EndStep(); });
}

slimps_status slimps_exchange_await_weights(slimps_exchange* exchange, size_t index) {
  bool waits = false;
  const slimps_status known = AskExchange(__func__, exchange, [&](const Exchange& one) {
    const absl::Status checked = slimps::CheckIndex(one, index);
    waits = checked.ok() && !one.exchange->HasWeights(index);
    return checked;
  });
  if (!waits) return known;
  return AwaitStep(__func__, exchange,
                   [=](WeightExchange* one) { return one->AwaitWeights(index); });
}

slimps_status slimps_exchange_set_memory(slimps_exchange* exchange, const size_t* indices,
                                         float* const* values, size_t count) {
  return AskExchange(__func__, exchange, [&](const Exchange& one) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::ToSpan("indices", indices, count).status());
    SLIMPS_RETURN_IF_ERROR(slimps::ToSpan("values", values, count).status());
    for (size_t i = 0; i < count; ++i) {
      SLIMPS_RETURN_IF_ERROR(slimps::CheckIndex(one, indices[i]));
      SLIMPS_RETURN_IF_ERROR(CheckPointer("values", values[i]));
      const size_t elements = one.parameters[indices[i]].values.size();
      SLIMPS_RETURN_IF_ERROR(one.exchange->SetMemory(indices[i], {values[i], elements}));
    }
    return absl::OkStatus();
  });
}

slimps_status slimps_exchange_set_hyper(slimps_exchange* exchange, size_t index,
                                        double learning_rate, double weight_decay,
                                        double momentum) {
  return AskExchange(__func__, exchange, [&](const Exchange& one) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(slimps::CheckIndex(one, index));
    return one.exchange->SetHyper(index, slimps::ToHyper(learning_rate, weight_decay, momentum));
  });
}

slimps_status slimps_exchange_set_clip_norm(slimps_exchange* exchange, double clip_norm) {
  return AskExchange(__func__, exchange,
                     [&](const Exchange& one) { return one.exchange->SetClipNorm(clip_norm); });
}

slimps_status slimps_exchange_get_clipping(const slimps_exchange* exchange,
                                           slimps_clipping* clipping) {
  return AskExchange(__func__, exchange, [&](const Exchange& one) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("clipping", clipping));
    const slimps::Clipping& found = one.exchange->clipping();
    slimps_clipping made = {};
    made.norm = found.newest.norm;
    made.scale = found.newest.scale;
    made.skipped_steps = found.skipped_steps;
    return slimps::FillSized("clipping", made, clipping);
  });
}

slimps_status slimps_exchange_drain(slimps_exchange* exchange) {
  return AwaitStep(__func__, exchange, [](WeightExchange* one) { return one->Drain(); });
}

slimps_status slimps_exchange_get_times(const slimps_exchange* exchange,
                                        slimps_exchange_times* times) {
  return AskExchange(__func__, exchange, [&](const Exchange& one) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("times", times));
    const slimps::ExchangeTimes spent = one.exchange->times();
    slimps_exchange_times made = {};
    made.wait_s = absl::ToDoubleSeconds(spent.wait);
    made.local_update_s = absl::ToDoubleSeconds(spent.local_update);
    made.overlap_s = absl::ToDoubleSeconds(spent.overlap);
    return slimps::FillSized("times", made, times);
  });
}

void slimps_exchange_destroy(slimps_exchange* exchange) { delete exchange; }

}  // extern "C"
