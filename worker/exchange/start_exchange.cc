#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/collective_optimizer.h"
#include "worker/combination.h"
#include "worker/exchange/weight_exchange.h"
#include "worker/local_rule.h"

namespace slimps {

namespace {

absl::Status CheckCanTrain(const KVStore& store, const wire::OptimizerSpec& optimizer,
                           const ExchangeOptions& options) {
  SLIMPS_RETURN_IF_ERROR(
      CheckCombination({.mode = FindStoreMode(store.type()).value_or(wire::DIST_SYNC),
                        .optimizer = optimizer,
                        .backup_model = options.backup.has_value()}));
  if (optimizer.kind() != wire::OptimizerSpec::NONE) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "training without a server optimizer: expected one; the store would hold sums of gradients, "
      "and a model would compute on those instead of weights");
}

absl::Status InitParameters(const wire::OptimizerSpec& optimizer,
                            std::span<const Parameter> parameters, KVStore* store) {
  std::vector<InitTensor> tensors;
  for (const Parameter& parameter : parameters) {
    tensors.push_back({.key = parameter.name,
                       .shape = parameter.shape,
                       .value = parameter.values,
                       .layer = parameter.layer});
  }
  SLIMPS_RETURN_IF_ERROR(store->Init(tensors));
  SLIMPS_RETURN_IF_ERROR(SetOptimizerTogether(optimizer, store));
  for (size_t i = 0; i < parameters.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(store->Pull(parameters[i].name, parameters[i].values, PriorityOf(i)));
  }
  return absl::OkStatus();
}

}  // namespace

BackupModelOptions LocalStepOf(const wire::OptimizerSpec& optimizer) {
  BackupModelOptions backup{.updater = UpdaterOptionsOf(optimizer)};
  backup.updater.rescale_grad = 1;  // sees the gradient as backward made it
  return backup;
}

absl::StatusOr<std::unique_ptr<WeightExchange>> StartExchange(KVStore* store,
                                                              std::span<const Parameter> parameters,
                                                              const wire::OptimizerSpec& optimizer,
                                                              const ExchangeOptions& options) {
  SLIMPS_RETURN_IF_ERROR(CheckCanTrain(*store, optimizer, options));
  SLIMPS_RETURN_IF_ERROR(InitParameters(optimizer, parameters, store));
  std::unique_ptr<WeightExchange> exchange;
  if (options.backup.has_value()) {
    SLIMPS_ASSIGN_OR_RETURN(exchange,
                            MakeBackupExchange(store, parameters, options, optimizer.schedule()));
  } else {
    exchange = MakeSyncExchange(store, parameters, options);
  }
  // Nobody's first step is timed while others still wait for their first weights.
  SLIMPS_RETURN_IF_ERROR(store->Barrier());
  return exchange;
}

}  // namespace slimps
