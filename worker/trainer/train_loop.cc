// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/combination.h"
#include "worker/trainer/batch_plan.h"
#include "worker/trainer/checkpoint_folder.h"

namespace slimps {

namespace {

constexpr size_t kEvaluationBatch = 256;

BatchPlan::Options PlanOf(const TrainOptions& options, const Dataset& data, const KVStore& store) {
  return {.samples = data.train.count,
          .workers = store.num_workers(),
          .rank = store.rank(),
          .batch = options.batch,
          .seed = options.seed};
}

// Returns the servers' optimizer. A schedule without an end ends with the run, after its warm-up.
wire::OptimizerSpec OptimizerOf(const TrainOptions& options, const BatchPlan::Options& plan,
                                const KVStore& store) {
  wire::OptimizerSpec optimizer = options.optimizer;
  wire::LearningRateSchedule* const schedule = optimizer.mutable_schedule();
  const size_t all = BatchPlan(plan, /*epoch=*/0).steps() * options.epochs;
  if (schedule->total_rounds() == 0) {
    const size_t steps = std::min(all, options.max_steps.value_or(all));
    // A store without common rounds applies each push on arrival, so each worker's push is a round
    // of its own.
    const bool in_common = FindStoreMode(store.type()).value_or(wire::DIST_SYNC) == wire::DIST_SYNC;
    const size_t rounds = in_common ? steps : steps * plan.workers;
    const auto warmup = static_cast<size_t>(options.warmup * static_cast<double>(rounds));
    if (warmup > 0) schedule->set_warmup_rounds(warmup);
    schedule->set_total_rounds(rounds - warmup);
  }
  return optimizer;
}

// Adds the counts of rows, of which the k-th is about steps k * every + 1 to (k + 1) * every. A
// worker that came later lacks the first rows, and adds 0 there.
void AddRows(size_t count, size_t every, std::vector<EpochReport>* rows, uint64_t* none,
             std::vector<uint64_t*>* counts) {
  std::vector<EpochReport*> by_place(count, nullptr);
  for (EpochReport& row : *rows) by_place[row.steps == 0 ? 0 : (row.steps - 1) / every] = &row;
  for (EpochReport* row : by_place) {
    counts->push_back(row == nullptr ? none : &row->bytes_pushed);
    counts->push_back(row == nullptr ? none : &row->bytes_pulled);
  }
}

// Sums the totals of all workers at the scheduler. Durations travel as seconds.
absl::Status SumOverWorkers(const TrainOptions& options, size_t steps_per_epoch, KVStore* store,
                            TrainingReport* report) {
  StageTimes& stages = report->stages;
  absl::Duration* const durations[] = {&stages.compute, &stages.copy,        &stages.encode,
                                       &stages.send,    &stages.wait,        &stages.decode,
                                       &stages.overlap, &stages.local_update};
  std::vector<uint64_t*> counts = {&report->samples, &report->bytes_pushed, &report->bytes_pulled};
  std::vector<double*> norms;
  const auto add = [&](PushCounts* pushed) {
    counts.insert(counts.end(),
                  {&pushed->elements, &pushed->elements_sent, &pushed->payload_bytes});
    norms.insert(norms.end(), {&pushed->input_norm2, &pushed->decoded_norm2, &pushed->error_norm2});
  };
  add(&report->pushed);
  for (TensorPushes& tensor : report->tensors) add(&tensor.pushed);
  uint64_t none = 0;
  const size_t every = std::max<size_t>(1, options.evaluate_every);
  AddRows(options.epochs, steps_per_epoch, &report->epochs, &none, &counts);
  const size_t evaluations = options.evaluate_every > 0 ? report->steps / every : 0;
  AddRows(evaluations, every, &report->evaluations, &none, &counts);
  std::vector<double> mine;
  for (const uint64_t* count : counts) mine.push_back(static_cast<double>(*count));
  // The scheduler sums finite numbers only. A worker with a non-finite norm sends 0, and a flag
  // beside it.
  for (const double* norm2 : norms) {
    mine.push_back(std::isfinite(*norm2) ? *norm2 : 0);
    mine.push_back(std::isfinite(*norm2) ? 0 : 1);
  }
  for (const absl::Duration* duration : durations) {
    mine.push_back(absl::ToDoubleSeconds(*duration));
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> sums, store->AllReduceSum(mine));
  if (sums.size() != mine.size()) {
    return absl::InternalError(
        absl::StrCat("sum over workers: expected ", mine.size(), " numbers, got ", sums.size()));
  }
  size_t at = 0;
  for (uint64_t* count : counts) *count = static_cast<uint64_t>(sums[at++]);
  for (double* norm2 : norms) {
    const double sum = sums[at++];
    *norm2 = sums[at++] == 0 ? sum : std::numeric_limits<double>::quiet_NaN();
  }
  for (absl::Duration* duration : durations) *duration = absl::Seconds(sums[at++]);
  return absl::OkStatus();
}

// Fills in what this worker's store and exchange counted since `before`.
void AddTotals(const StoreTotals& before, const StoreTotals& after, const ExchangeTimes& times,
               TrainingReport* report) {
  report->bytes_pushed = after.bytes_pushed - before.bytes_pushed;
  report->bytes_pulled = after.bytes_pulled - before.bytes_pulled;
  report->pushed = after.pushed;  // nothing was pushed before
  StageTimes& stages = report->stages;
  stages.copy = after.copy - before.copy;
  stages.encode = after.encode - before.encode;
  stages.send = after.send - before.send;
  stages.decode = after.decode - before.decode;
  stages.wait = times.wait;
  stages.local_update = times.local_update;
  stages.overlap = times.overlap;
}

// Runs the steps of one run. Owned by the training thread.
class Trainer final {
 public:
  Trainer(const TrainOptions& options, const Dataset& data, Model* model, KVStore* store,
          WeightExchange* exchange, const StepObserver& observer)
      : options_(options),
        data_(data),
        model_(model),
        store_(store),
        exchange_(exchange),
        observer_(observer),
        plan_(PlanOf(options, data, *store)),
        resumed_(std::max<size_t>(exchange->steps(), store->former_rounds())),
        before_(store->totals()),
        start_(options_.exchange.clock->Now()) {}

  absl::Status Run(TrainingReport* report) {
    for (size_t epoch = 0; epoch < options_.epochs; ++epoch) {
      const BatchPlan plan(plan_, epoch);
      const size_t all = plan.steps() * options_.epochs;
      const size_t limit = std::min(all, options_.max_steps.value_or(all));
      for (size_t step = 0; step < plan.steps(); ++step) {
        if (report->steps == limit) return absl::OkStatus();
        if (report->steps < resumed_) {
          ++report->steps;
          continue;
        }
        const std::span<const uint32_t> samples = plan.Batch(step);
        SLIMPS_ASSIGN_OR_RETURN(const LossSums loss, Step(samples, report));
        if (observer_ != nullptr) {
          observer_({.epoch = epoch + 1,
                     .epochs = options_.epochs,
                     .step = report->steps,
                     .steps = limit,
                     .loss = loss,
                     .samples = samples.size(),
                     .waited = exchange_->times().wait});
        }
        if (options_.evaluate_every > 0 && report->steps % options_.evaluate_every == 0) {
          SLIMPS_ASSIGN_OR_RETURN(EpochReport row, EvaluatedRow(*report));
          report->evaluations.push_back(row);
        }
        SaveIfDue(*report);
      }
      const bool is_new = report->steps > resumed_;
      if (is_new && report->steps < limit) SLIMPS_RETURN_IF_ERROR(EndEpoch(report));
    }
    return absl::OkStatus();
  }

  // Fills in the run's last row and totals.
  // REQUIRES: the last round has drained.
  void EndRun(TrainingReport* report) const {
    report->epochs.push_back(Row(*report));
    report->seconds = report->epochs.back().seconds;
    AddTotals(before_, store_->totals(), exchange_->times(), report);
  }

 private:
  EpochReport Row(const TrainingReport& report) const {
    const StoreTotals now = store_->totals();
    return {.steps = report.steps,
            .seconds = options_.exchange.clock->Now() - start_ - evaluated_,
            .bytes_pushed = now.bytes_pushed - before_.bytes_pushed,
            .bytes_pulled = now.bytes_pulled - before_.bytes_pulled};
  }

  // A checkpoint that fails costs no more than itself: training goes on, on all workers alike.
  void SaveIfDue(const TrainingReport& report) {
    if (options_.checkpoint_every == 0 || report.steps % options_.checkpoint_every != 0) return;
    const absl::Status saved = exchange_->Save(CheckpointOf(options_.checkpoint, report.steps));
    if (!saved.ok()) LOG(ERROR) << "no checkpoint after step " << report.steps << ": " << saved;
    if (saved.ok() && store_->rank() == 0) RemoveOldCheckpoints(options_.checkpoint, report.steps);
  }

  absl::Status EndEpoch(TrainingReport* report) {
    if (!options_.evaluate_epochs) {
      report->epochs.push_back(Row(*report));
      return absl::OkStatus();
    }
    SLIMPS_ASSIGN_OR_RETURN(EpochReport row, EvaluatedRow(*report));
    report->epochs.push_back(row);
    return absl::OkStatus();
  }

  absl::StatusOr<EpochReport> EvaluatedRow(const TrainingReport& report) {
    EpochReport row = Row(report);
    if (store_->rank() != 0) return row;
    const SteadyTime start = options_.exchange.clock->Now();
    SLIMPS_ASSIGN_OR_RETURN(row.test, EvaluateTestSplit(data_, model_));
    evaluated_ += options_.exchange.clock->Now() - start;
    return row;
  }

  absl::StatusOr<LossSums> Step(std::span<const uint32_t> samples, TrainingReport* report) {
    SLIMPS_RETURN_IF_ERROR(exchange_->BeginStep());
    const SteadyTime start = options_.exchange.clock->Now();
    absl::SleepFor(options_.simulated_compute);
    LossSums loss;
    if (!samples.empty()) {
      const Minibatch batch = GatherBatch(data_, data_.train, samples);
      SLIMPS_ASSIGN_OR_RETURN(
          loss, model_->ForwardBackward(batch, [&](size_t index, std::span<const float> gradient) {
            exchange_->OnGradient(index, gradient);
          }));
    }
    report->stages.compute += options_.exchange.clock->Now() - start;
    TraceLog::Global().AddOfThread(TraceStage::kCompute, {"", 0, report->steps + 1}, start,
                                   options_.exchange.clock->Now());
    SLIMPS_RETURN_IF_ERROR(exchange_->EndStep());
    ++report->steps;
    report->samples += samples.size();
    return loss;
  }

  const TrainOptions& options_;
  const Dataset& data_;
  Model* const model_;
  KVStore* const store_;
  WeightExchange* const exchange_;
  const StepObserver& observer_;
  const BatchPlan::Options plan_;
  const size_t resumed_;  // steps of the run before it was resumed or this process came to it
  // Subtracted from later totals: the pulls of the first weights are initialisation.
  const StoreTotals before_;
  const SteadyTime start_;
  absl::Duration evaluated_;
};

}  // namespace

absl::StatusOr<TrainingReport> Train(const TrainOptions& options, const Dataset& data, Model* model,
                                     KVStore* store, const StepObserver& observer) {
  if (options.batch == 0) return absl::InvalidArgumentError("batch: expected at least 1, got 0");
  const wire::OptimizerSpec optimizer = OptimizerOf(options, PlanOf(options, data, *store), *store);
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<WeightExchange> exchange,
                          StartExchange(store, model->parameters(), optimizer, options.exchange));
  if (options.checkpoint_every > 0) {
    const size_t step = std::max<size_t>(exchange->steps(), store->former_rounds());
    SLIMPS_RETURN_IF_ERROR(CheckNoLaterCheckpoint(options.checkpoint, step));
  }
  TrainingReport report;
  Trainer trainer(options, data, model, store, exchange.get(), observer);
  SLIMPS_RETURN_IF_ERROR(trainer.Run(&report));
  SLIMPS_RETURN_IF_ERROR(exchange->Drain());
  trainer.EndRun(&report);
  for (const Parameter& parameter : model->parameters()) {
    report.tensors.push_back({.key = parameter.name,
                              .layer = parameter.layer,
                              .elements = parameter.values.size(),
                              .pushed = store->push_counts(parameter.name)});
  }
  const size_t steps_per_epoch = BatchPlan(PlanOf(options, data, *store), /*epoch=*/0).steps();
  SLIMPS_RETURN_IF_ERROR(SumOverWorkers(options, steps_per_epoch, store, &report));
  return report;
}

absl::StatusOr<LossSums> EvaluateTestSplit(const Dataset& data, Model* model) {
  LossSums all;
  std::vector<uint32_t> samples(data.test.count);
  std::iota(samples.begin(), samples.end(), 0u);
  for (size_t first = 0; first < samples.size(); first += kEvaluationBatch) {
    const size_t count = std::min(kEvaluationBatch, samples.size() - first);
    const Minibatch batch =
        GatherBatch(data, data.test, std::span<const uint32_t>(samples).subspan(first, count));
    SLIMPS_ASSIGN_OR_RETURN(const LossSums sums, model->Evaluate(batch));
    all.Add(sums);
  }
  return all;
}

}  // namespace slimps
