// SPDX-License-Identifier: Apache-2.0
// Exchange: worker/exchange/weight_exchange.h for the Python package. The parameters' arrays are
// the framework's own memory, contiguous float32; weights are written into them.
//
//   exchange = _slimps.Exchange(store, names, shapes, layers, arrays, spec, options)   # collective
//   exchange.begin_step(); exchange.on_gradient(3, gradient); exchange.end_step()
//
// Thread-compatible: one thread at a time. The store holds the arrays as long as it lives, since a
// pull may still be under way when the exchange is gone.
#ifndef SLIMPS_PYTHON_EXTENSION_EXCHANGE_H_
#define SLIMPS_PYTHON_EXTENSION_EXCHANGE_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/extension/store.h"
#include "worker/exchange/weight_exchange.h"

namespace slimps::python {

struct ExchangeSettings {
  bool backup_model = false;
  std::optional<double> local_lr;
  bool skip_non_finite = false;  // false: NaN and infinity end the step with an error
  double timeout_s = 60;
};

// The caller holds the GIL in every method. Methods that wait release it while they wait.
// Every method raises the exchange's error as a Python exception.
class Exchange final {
 public:
  // Declares the parameters and starts the exchange. Collective. REQUIRES: `store` outlives this.
  Exchange(Store* store, const std::vector<std::string>& names,
           const std::vector<std::vector<int64_t>>& shapes, const std::vector<std::string>& layers,
           const std::vector<pybind11::object>& arrays, const wire::OptimizerSpec& optimizer,
           const ExchangeSettings& settings);

  void BeginStep();

  // Pushes one parameter's gradient and holds `gradient` until EndStep.
  void OnGradient(size_t index, const pybind11::object& gradient);

  void EndStep();
  void SetHyper(size_t index, double learning_rate, double weight_decay);
  void Drain();

  // Returns ExchangeTimes as a dict of seconds.
  pybind11::dict Times() const;

 private:
  // Shared with calls that may still be under way after Python was interrupted.
  struct Shared {
    std::vector<Parameter> parameters;
    std::unique_ptr<WeightExchange> exchange;
  };

  // Runs one call of the exchange that may wait. `arrays` stay in place meanwhile.
  void Call(std::function<absl::Status(WeightExchange*)> call, std::vector<HeldArray> arrays = {});

  Store* const store_;  // Python keeps it alive
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<HeldArray> gradients_;  // of this step
};

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_EXCHANGE_H_
