// SPDX-License-Identifier: Apache-2.0
#include "python/extension/exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "python/extension/layer.h"
#include "python/extension/status.h"

namespace slimps::python {

namespace py = pybind11;

namespace {

ExchangeOptions OptionsOf(const ExchangeSettings& settings) {
  ExchangeOptions options{
      .non_finite = settings.skip_non_finite ? NonFinite::kSkip : NonFinite::kStop,
      .timeout = absl::Seconds(settings.timeout_s)};
  if (settings.backup_model) options.backup = MirroringBackup(settings.local_lr);
  return options;
}

}  // namespace

Exchange::Exchange(Store* store, const std::vector<std::string>& names,
                   const std::vector<std::vector<int64_t>>& shapes,
                   const std::vector<std::string>& layers, const std::vector<py::object>& arrays,
                   const wire::OptimizerSpec& optimizer, const ExchangeSettings& settings)
    : store_(store) {
  CheckCount("shapes", names.size(), shapes.size());
  CheckCount("layers", names.size(), layers.size());
  CheckCount("arrays", names.size(), arrays.size());
  std::vector<HeldArray> held;
  for (size_t i = 0; i < names.size(); ++i) {
    held.emplace_back(arrays[i], HeldArray::Access::kWrite);
    shared_->parameters.push_back({.name = names[i],
                                   .shape = shapes[i],
                                   .layer = ToLayer(layers[i], shapes[i]),
                                   .values = held.back().floats()});
  }
  store_->Keep(std::move(held));
  store_->Call([shared = shared_, optimizer, options = OptionsOf(settings)](KVStore* kvstore) {
    auto started = StartExchange(kvstore, shared->parameters, optimizer, options);
    if (!started.ok()) return started.status();
    shared->exchange = *std::move(started);
    return absl::OkStatus();
  });
}

void Exchange::Call(std::function<absl::Status(WeightExchange*)> call,
                    std::vector<HeldArray> arrays) {
  store_->Call(
      [shared = shared_, call = std::move(call)](KVStore*) { return call(shared->exchange.get()); },
      std::move(arrays));
}

void Exchange::BeginStep() {
  Call([](WeightExchange* exchange) { return exchange->BeginStep(); });
}

void Exchange::OnGradient(size_t index, const py::object& gradient) {
  const std::vector<Parameter>& parameters = shared_->parameters;
  if (index >= parameters.size()) {
    throw py::index_error(
        absl::StrCat("exchange: expected an index below ", parameters.size(), ", got ", index));
  }
  store_->CheckCaller();
  gradients_.emplace_back(gradient, HeldArray::Access::kRead);
  const std::span<const float> values = gradients_.back().floats();
  py::gil_scoped_release no_gil;  // a push waits if grad_buf has no room
  shared_->exchange->OnGradient(index, values);
}

void Exchange::EndStep() {
  Call([](WeightExchange* exchange) { return exchange->EndStep(); }, std::exchange(gradients_, {}));
}

void Exchange::SetHyper(size_t index, double learning_rate, double weight_decay) {
  if (index >= shared_->parameters.size()) {
    throw py::index_error(absl::StrCat("exchange: no parameter ", index));
  }
  store_->CheckCaller();
  RaiseIfError(shared_->exchange->SetHyper(
      index, {.learning_rate = learning_rate, .weight_decay = weight_decay}));
}

void Exchange::Drain() {
  Call([](WeightExchange* exchange) { return exchange->Drain(); });
}

py::dict Exchange::Times() const {
  const ExchangeTimes times = shared_->exchange->times();
  py::dict found;
  found["wait_s"] = absl::ToDoubleSeconds(times.wait);
  found["local_update_s"] = absl::ToDoubleSeconds(times.local_update);
  found["overlap_s"] = absl::ToDoubleSeconds(times.overlap);
  return found;
}

}  // namespace slimps::python
