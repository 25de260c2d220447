// SPDX-License-Identifier: Apache-2.0
#include "worker/store/row_traffic.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/rows.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/courier/item_gathering.h"
#include "worker/tensor/row_sparse.h"

namespace slimps {
namespace {

absl::Status CheckAnswer(const TensorPlan& tensor, const RowRequest& request, uint64_t min_version,
                         const Answer& answer) {
  const wire::PullReplyItem& got = answer.pull;
  if (got.version() >= min_version && got.format() == wire::RAW_F32 && !got.is_change() &&
      got.elements() == request.elements &&
      answer.payload.size() == request.elements * sizeof(float)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "pull of rows of key ", tensor.key.typed_name(), " partition ", request.partition,
      " from server ", tensor.partitions[request.partition].server, ": expected version ",
      min_version, " and ", request.elements, " elements in RAW_F32, got version ", got.version(),
      " and ", got.elements(), " in ", wire::Format_Name(got.format())));
}

std::vector<ReadyPayload> MakeReady(std::vector<Payload> payloads) {
  std::vector<ReadyPayload> ready;
  for (Payload& rows : payloads) {
    const EncodeStats stats = {.payload_bytes = rows.size(),
                               .elements_sent = ElementsInRows(rows.bytes())};
    ready.push_back({.format = wire::ROWS,
                     .payload = std::move(rows),
                     .elements = stats.elements_sent,
                     .stats = stats});
  }
  return ready;
}

}  // namespace

absl::Status RowTraffic::Push(const Key& key, std::span<const int64_t> rows,
                              std::span<const float> values, int priority) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(key));
  if (const CodecSpec& codec = codecs_->plan()->compressor().spec(); codec.name != "none") {
    return absl::FailedPreconditionError(absl::StrCat(
        "push of rows of key ", key.typed_name(), ": expected gradient compression none, got ",
        codec.ToString(), ", whose residuals belong to whole tensors"));
  }
  if (codecs_->plan()->adapts()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push of rows of key ", key.typed_name(),
        ": expected policy threshold, got one that adapts, whose codecs take whole tensors"));
  }
  if (codecs_->compresses_momenta()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push of rows of key ", key.typed_name(),
        ": expected another optimizer than onebit_adam, whose momenta belong to whole tensors"));
  }
  const SteadyTime start = options_.clock->Now();
  using Payloads = std::shared_ptr<const std::vector<ReadyPayload>>;
  const auto prepare = [&]() -> absl::StatusOr<Payloads> {
    SLIMPS_ASSIGN_OR_RETURN(const SummedRows sums,
                            SumByRow(*tensor, rows, values, options_.grad_scale));
    SLIMPS_ASSIGN_OR_RETURN(std::vector<Payload> payloads, MakeRowPayloads(*tensor, sums));
    return std::make_shared<const std::vector<ReadyPayload>>(MakeReady(std::move(payloads)));
  };
  SLIMPS_ASSIGN_OR_RETURN(Payloads payloads,
                          OrOutOfMemory(prepare, "push of rows", key.typed_name()));
  {
    MutexLock lock(&mutex_);
    copy_ += options_.clock->Now() - start;
  }
  return tensors_->PushRows(*tensor, std::move(payloads), priority);
}

absl::Status RowTraffic::Pull(const Key& key, std::span<const int64_t> row_ids,
                              std::vector<int64_t>* rows, std::vector<float>* values,
                              int priority) {
  SLIMPS_RETURN_IF_ERROR(node_->CheckOpen());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(key));
  const auto pull = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(std::vector<int64_t> unique, UniqueRows(*tensor, row_ids));
    SLIMPS_RETURN_IF_ERROR(tensors_->AwaitOwnPushes(*tensor));
    SLIMPS_ASSIGN_OR_RETURN(std::vector<float> found, Fetch(*tensor, unique, priority));
    *rows = std::move(unique);
    *values = std::move(found);
    return absl::OkStatus();
  };
  return OrOutOfMemory(pull, "pull of rows", key.typed_name());
}

absl::StatusOr<std::vector<float>> RowTraffic::Fetch(const TensorPlan& tensor,
                                                     std::span<const int64_t> unique,
                                                     int priority) {
  const uint64_t min_version = tensors_->NewestPushed(tensor.key);
  const TraceSpan span(TraceStage::kWait, {tensor.key.typed_name(), 0, min_version});
  const SteadyTime start = options_.clock->Now();
  const std::vector<RowRequest> requests = PlanRowRequests(tensor, unique);
  ItemGathering gathering(node_->courier(), {.priority = ItemGathering::kBeforeAll});
  for (const RowRequest& request : requests) {
    wire::PullItem pull = tensors_->MakePull(tensor, request.partition, min_version);
    pull.set_priority(tensors_->PriorityOf(priority));
    pull.set_rows_only(true);
    pull.set_rows(request.RowBytes());
    gathering.Add(
        tensor.partitions[request.partition].server,
        {.item = std::move(pull), .payload = {}, .key_name = tensor.key.typed_name(), .done = {}},
        request.elements * sizeof(float));
  }
  const absl::StatusOr<std::vector<Answer>> answers = node_->AwaitAnswers(gathering);
  {
    MutexLock lock(&mutex_);
    wait_ += options_.clock->Now() - start;
  }
  SLIMPS_RETURN_IF_ERROR(answers.status());
  const size_t row_elements = RowElements(tensor);
  std::vector<float> found(unique.size() * row_elements);
  uint64_t bytes = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer& answer = (*answers)[i];
    SLIMPS_RETURN_IF_ERROR(CheckAnswer(tensor, requests[i], min_version, answer));
    PlaceRowParts(tensor, requests[i], answer.payload.bytes(), unique, found);
    bytes += answer.payload.size();
  }
  MutexLock lock(&mutex_);
  bytes_pulled_ += bytes;
  return found;
}

void RowTraffic::AddTo(StoreTotals* totals) const {
  MutexLock lock(&mutex_);
  totals->bytes_pulled += bytes_pulled_;
  totals->copy += copy_;
  totals->wait += wait_;
}

uint64_t RowTraffic::bytes_pulled() const {
  MutexLock lock(&mutex_);
  return bytes_pulled_;
}

}  // namespace slimps
