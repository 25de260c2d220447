// Exchange: worker/exchange/weight_exchange.h as the Python package sees it. The parameters' arrays are a framework's own
// memory, float32 and contiguous; weights are written into them.
//
//   exchange = _slimps.Exchange(store, names, shapes, layers, arrays, spec, options)   # collective
//   exchange.begin_step(); exchange.on_gradient(3, gradient); exchange.end_step()
//
// One thread at a time. The arrays live as long as the store: a pull may be under way when the exchange is gone.
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
  bool skip_non_finite = false;  // else they end the step with an error
  double timeout_s = 60;
};

// Every method is called with the GIL held; those that wait do so without it.
class Exchange final {
 public:
  Exchange(Store* store, const std::vector<std::string>& names,
           const std::vector<std::vector<int64_t>>& shapes, const std::vector<std::string>& layers,
           const std::vector<pybind11::object>& arrays, const wire::OptimizerSpec& optimizer,
           const ExchangeSettings& settings);

  void BeginStep();
  // `gradient` is held until EndStep.
  void OnGradient(size_t index, const pybind11::object& gradient);
  void EndStep();
  void SetHyper(size_t index, double learning_rate, double weight_decay);
  void Drain();
  pybind11::dict Times() const;

 private:
  // Shared with a call that is under way when Python is interrupted.
  struct Shared {
    std::vector<Parameter> parameters;
    std::unique_ptr<WeightExchange> exchange;
  };
  void Call(std::function<absl::Status(WeightExchange*)> call, std::vector<HeldArray> arrays = {});

  Store* const store_;  // Python keeps it alive
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<HeldArray> gradients_;  // of this step
};

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_EXCHANGE_H_
