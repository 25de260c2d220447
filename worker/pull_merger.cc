#include "worker/pull_merger.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "compress/format/format.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// Requests are tiny and leave before everything else. Above all a request must not be overtaken by this worker's push
// of the next round, or the server could answer with the version after the one asked for.
constexpr int kRequestPriority = std::numeric_limits<int>::max();

}  // namespace

// Owned by the pull thread once its requests are out.
struct PullMerger::State {
  PullJob job;
  size_t pending = 0;  // partitions
  absl::Status status;
};

PullMerger::PullMerger(Courier* courier, absl::Duration timeout)
    : courier_(courier), timeout_(timeout), thread_([this] { Run(); }) {}

PullMerger::~PullMerger() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyAll();
  }
  thread_.join();
}

void PullMerger::Submit(PullJob job) {
  auto state = std::make_shared<State>();
  state->job = std::move(job);
  state->pending = state->job.tensor->partitions.size();
  MutexLock lock(&mutex_);
  requests_.push_back(std::move(state));
  work_.NotifyAll();
}

void PullMerger::Run() {
  for (;;) {
    std::deque<std::shared_ptr<State>> requests;
    Reply reply;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && requests_.empty() && replies_.empty()) work_.Wait(&mutex_);
      requests.swap(requests_);
      if (requests.empty() && replies_.empty()) return;  // stopping, and nobody is left waiting
      if (!replies_.empty()) {
        reply = std::move(replies_.front());
        replies_.pop_front();
      }
    }
    if (!requests.empty()) SendRequests({requests.begin(), requests.end()});
    if (reply.state != nullptr) Merge(std::move(reply));
  }
}

void PullMerger::SendRequests(std::vector<std::shared_ptr<State>> states) {
  std::stable_sort(states.begin(), states.end(),
                   [](const auto& a, const auto& b) { return a->job.priority > b->job.priority; });
  std::map<uint32_t, std::vector<OutgoingItem>> by_server;
  for (const std::shared_ptr<State>& state : states) {
    const TensorPlan& tensor = *state->job.tensor;
    if (tensor.partitions.empty()) state->job.done(absl::OkStatus());
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      wire::PullItem pull;
      pull.mutable_id()->set_key(tensor.key.id());
      pull.mutable_id()->set_partition(static_cast<uint32_t>(i));
      pull.set_min_version(state->job.min_version);
      pull.set_timeout_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(timeout_)));
      pull.set_priority(state->job.priority);
      pull.set_elements(tensor.partitions[i].elements);
      OutgoingItem item{
          .item = std::move(pull), .payload = {}, .key_name = tensor.key.typed_name(), .done = {}};
      item.done = [this, state, i](Answer answer) {
        MutexLock lock(&mutex_);
        replies_.push_back(Reply{state, i, std::move(answer)});
        work_.NotifyAll();
      };
      const uint32_t server = tensor.partitions[i].server;
      by_server[server].push_back(std::move(item));
    }
  }
  for (auto& [server, items] : by_server) {
    courier_->Dispatch(server, std::move(items), kRequestPriority);
  }
}

void PullMerger::Merge(Reply reply) {
  State& state = *reply.state;
  const absl::Status status = reply.answer.status.ok()
                                  ? MergePartition(state, reply.partition, reply.answer)
                                  : reply.answer.status;
  if (state.status.ok()) state.status = status;
  if (--state.pending == 0) state.job.done(state.status);
}

absl::Status PullMerger::MergePartition(const State& state, size_t partition,
                                        const Answer& answer) {
  const TensorPlan& tensor = *state.job.tensor;
  const PartitionPlan& plan = tensor.partitions[partition];
  const auto where = [&] {
    return absl::StrCat("pull of key ", tensor.key.typed_name(), " partition ", partition,
                        " from server ", plan.server, ": ");
  };
  if (answer.pull.elements() != plan.elements) {
    return absl::DataLossError(absl::StrCat(where(), "expected ", plan.elements, " elements, got ",
                                            answer.pull.elements()));
  }
  if (answer.pull.version() < state.job.min_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        where(), "expected version ", state.job.min_version, ", got ", answer.pull.version()));
  }
  const absl::Time start = absl::Now();
  const auto format = static_cast<PayloadFormat>(answer.pull.format());
  const absl::Status valid = ValidatePayload(format, answer.payload.bytes(), plan.elements);
  if (!valid.ok()) return absl::Status(valid.code(), absl::StrCat(where(), valid.message()));
  Decode(format, answer.payload.bytes(), plan.elements, 0,
         state.job.out.subspan(plan.offset, plan.elements));
  MutexLock lock(&mutex_);
  totals_.payload_bytes += answer.payload.size();
  totals_.decode += absl::Now() - start;
  return absl::OkStatus();
}

PullTotals PullMerger::totals() const {
  MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace slimps
