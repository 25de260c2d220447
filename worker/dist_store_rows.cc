// DistStore: row-sparse pushes, and pulls of chosen rows.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace.h"
#include "worker/dist_store.h"
#include "worker/item_gathering.h"
#include "worker/row_sparse.h"

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

}  // namespace

absl::Status DistStore::PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                      std::span<const float> values, int priority) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_.Find(key));
  if (const CodecSpec& codec = plan()->compressor().spec(); codec.name != "none") {
    return absl::FailedPreconditionError(absl::StrCat(
        "push of rows of key ", key.typed_name(), ": expected gradient compression none, got ",
        codec.ToString(), ", whose residuals belong to whole tensors"));
  }
  const absl::Time start = absl::Now();
  SLIMPS_ASSIGN_OR_RETURN(const SummedRows sums,
                          SumByRow(*tensor, rows, values, options_.grad_scale));
  SLIMPS_ASSIGN_OR_RETURN(std::vector<Payload> payloads, MakeRowPayloads(*tensor, sums));
  {
    MutexLock lock(&mutex_);
    copy_ += absl::Now() - start;
  }
  PushJob job = CountJob(tensor, priority);
  job.rows = std::make_shared<const std::vector<Payload>>(std::move(payloads));
  return Submit(std::move(job));
}

absl::Status DistStore::PullRows(const Key& key, std::span<const int64_t> row_ids,
                                 std::vector<int64_t>* rows, std::vector<float>* values,
                                 int priority) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_.Find(key));
  SLIMPS_ASSIGN_OR_RETURN(std::vector<int64_t> unique, UniqueRows(*tensor, row_ids));
  SLIMPS_RETURN_IF_ERROR(FindForPull(key, tensor->elements).status());
  const uint64_t min_version = mode_ == wire::DIST_SYNC ? keys_.PushedRounds(key) : 0;
  const TraceSpan span(TraceStage::kWait, {key.typed_name(), 0, min_version});
  const absl::Time start = absl::Now();
  const std::vector<RowRequest> requests = PlanRowRequests(*tensor, unique);
  ItemGathering gathering(courier_.get(), ItemGathering::kBeforeAll);
  for (const RowRequest& request : requests) {
    const PartitionPlan& partition = tensor->partitions[request.partition];
    wire::PullItem pull;
    pull.mutable_id()->set_key(key.id());
    pull.mutable_id()->set_partition(static_cast<uint32_t>(request.partition));
    pull.set_min_version(min_version);
    pull.set_timeout_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(options_.timeout)));
    pull.set_priority(PriorityOf(priority));
    pull.set_elements(partition.elements);
    pull.set_rows_only(true);
    pull.set_rows(request.RowBytes());
    gathering.Add(
        partition.server,
        {.item = std::move(pull), .payload = {}, .key_name = key.typed_name(), .done = {}});
  }
  const absl::StatusOr<std::vector<Answer>> answers = gathering.Await();
  AddWait(start);
  SLIMPS_RETURN_IF_ERROR(answers.status());
  const size_t row_elements = tensor->elements == 0 ? 0 : RowElements(*tensor);
  std::vector<float> found(unique.size() * row_elements);
  uint64_t bytes = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer& answer = (*answers)[i];
    SLIMPS_RETURN_IF_ERROR(CheckAnswer(*tensor, requests[i], min_version, answer));
    PlaceRowParts(*tensor, requests[i], answer.payload.bytes(), unique, found);
    bytes += answer.payload.size();
  }
  *rows = std::move(unique);
  *values = std::move(found);
  MutexLock lock(&mutex_);
  row_bytes_pulled_ += bytes;
  return absl::OkStatus();
}

}  // namespace slimps
