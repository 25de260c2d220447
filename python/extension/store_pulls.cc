// SPDX-License-Identifier: Apache-2.0
// Store: pulls that the caller waits for, and pulls that a callback answers.
#include <pybind11/stl.h>

#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "python/extension/status.h"
#include "python/extension/store.h"
#include "python/extension/waiting.h"

namespace slimps::python {

namespace py = pybind11;

struct Store::PullJob {
  Key key;
  std::span<float> out;
};

std::vector<Store::PullJob> Store::PullJobs(const std::vector<py::object>& keys,
                                            const std::vector<py::object>& outs,
                                            std::vector<HeldArray>* arrays) {
  CheckCount("outs", keys.size(), outs.size());
  std::vector<PullJob> jobs;
  jobs.reserve(keys.size());
  arrays->reserve(arrays->size() + keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    arrays->emplace_back(outs[i], HeldArray::Access::kWrite);
    jobs.push_back({ToKey(keys[i]), arrays->back().floats()});
  }
  return jobs;
}

namespace {

absl::Status PushOne(KVStore* store, const Key& key,
                     const std::vector<std::span<const float>>& gradients, int priority) {
  try {
    return store->PushSum(key, gradients, priority);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("push: ", error.what()));
  }
}

}  // namespace

PushesUnderWay::Marks Store::MarksOf(const std::vector<PullJob>& jobs) const {
  PushesUnderWay::Marks marks;
  for (const PullJob& job : jobs)
    marks.emplace_back(job.key.id(), under_way_->BytesOf(job.key.id()));
  return marks;
}

void Store::AskOne(KVStore* store, const PullJob& job, size_t number, int priority,
                   const std::shared_ptr<Pending>& pending) {
  // `pending` must learn of every pull, also of one that failed to start: the caller's arrays are
  // held until all have ended, and pulls that were started before still write into them.
  try {
    store->PullAsync(job.key, job.out, priority, [pending, number](absl::Status status) {
      pending->Finish(number, std::move(status));
    });
  } catch (const std::exception& error) {
    pending->Finish(number, absl::InternalError(absl::StrCat("pull: ", error.what())));
  }
}

void Store::Ask(const std::vector<PullJob>& jobs, int priority,
                const std::shared_ptr<Pending>& pending) {
  py::gil_scoped_release no_gil;
  for (size_t i = 0; i < jobs.size(); ++i) AskOne(store_.get(), jobs[i], i, priority, pending);
}

void Store::Pull(const std::vector<py::object>& keys, const std::vector<py::object>& outs,
                 int priority) {
  CheckCaller();
  std::vector<HeldArray> arrays;
  const std::vector<PullJob> jobs = PullJobs(keys, outs, &arrays);
  if (jobs.empty()) return;
  const PushesUnderWay::Marks marks = MarksOf(jobs);
  const auto pending = std::make_shared<Pending>(jobs.size());
  Ask(jobs, priority, pending);
  AwaitWith(pending, std::move(arrays));
  under_way_->Acknowledged(marks);
}

void Store::PushPull(const std::vector<py::object>& keys,
                     const std::vector<std::vector<py::object>>& gradients,
                     const std::vector<py::object>& outs, int priority) {
  CheckCaller();
  CheckCount("gradients", keys.size(), gradients.size());
  std::vector<HeldArray> arrays;
  std::vector<PullJob> jobs = PullJobs(keys, outs, &arrays);
  if (jobs.empty()) return;
  std::vector<std::vector<std::span<const float>>> values(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const py::object& gradient : gradients[i]) {
      arrays.emplace_back(gradient, HeldArray::Access::kRead);
      values[i].push_back(arrays.back().floats());
    }
  }
  std::vector<std::vector<std::span<const float>>> of_key = values;
  for (size_t i = 0; i < jobs.size(); ++i) of_key[i].push_back(jobs[i].out);
  const bool at_once = AreApart(of_key);
  bool may_wait = false;
  for (const PullJob& job : jobs) {
    may_wait = may_wait || under_way_->MayWait(job.key.id(), job.out.size_bytes());
    under_way_->Add(job.key.id(), job.out.size_bytes());
  }
  const PushesUnderWay::Marks marks = MarksOf(jobs);
  const auto pending = std::make_shared<Pending>(jobs.size());
  // `pending` must learn of every job, or the wait below never ends. So only PushOne and AskOne,
  // which catch exceptions, may call what throws.
  auto push_and_ask = [store = store_, jobs = std::move(jobs), values = std::move(values), at_once,
                       priority, pending] {
    absl::Status pushed;
    size_t asked = 0;
    for (size_t i = 0; i < jobs.size() && pushed.ok(); ++i) {
      pushed = PushOne(store.get(), jobs[i].key, values[i], priority);
      if (pushed.ok() && at_once) AskOne(store.get(), jobs[asked++], i, priority, pending);
    }
    for (; asked < jobs.size(); ++asked) {
      if (pushed.ok()) {
        AskOne(store.get(), jobs[asked], asked, priority, pending);
      } else {
        pending->Finish(asked, pushed);
      }
    }
    return absl::OkStatus();
  };
  if (may_wait) {
    StartCall(std::move(push_and_ask));
  } else {
    py::gil_scoped_release no_gil;
    push_and_ask().IgnoreError();  // pending has it
  }
  AwaitWith(pending, std::move(arrays));
  under_way_->Acknowledged(marks);
}

void Store::PullThen(const std::vector<py::object>& keys, const std::vector<py::object>& outs,
                     int priority, py::object done) {
  CheckCaller();
  // Python's objects. The thread that brings the last answer releases them, holding the GIL.
  struct Asked {
    std::vector<HeldArray> arrays;
    PushesUnderWay::Marks marks;
    py::object done;
    std::shared_ptr<PushesUnderWay> under_way;
  };
  auto asked = std::make_unique<Asked>();
  const std::vector<PullJob> jobs = PullJobs(keys, outs, &asked->arrays);
  if (jobs.empty()) throw py::value_error("pull_then: expected at least one key");
  asked->marks = MarksOf(jobs);
  asked->done = std::move(done);
  asked->under_way = under_way_;
  const auto pending =
      std::make_shared<Pending>(jobs.size(), [held = asked.release()](const absl::Status& status) {
        py::gil_scoped_acquire gil;
        const std::unique_ptr<Asked> last(held);
        last->arrays.clear();
        if (status.ok()) last->under_way->Acknowledged(last->marks);
        try {
          last->done(status.ok() ? py::none() : ToException(status));
        } catch (py::error_already_set& error) {
          error.discard_as_unraisable("a pull's callback");
        } catch (const std::bad_alloc&) {
          PyErr_NoMemory();
          PyErr_WriteUnraisable(last->done.ptr());
        }
      });
  Ask(jobs, priority, pending);
}

py::tuple Store::PullRows(const py::object& key, const py::buffer& row_ids, int priority) {
  struct Pulled {
    std::vector<int64_t> rows;
    std::vector<float> values;
  };
  const auto pulled = std::make_shared<Pulled>();
  Call([name = ToKey(key), ids = ToRowIds(row_ids), pulled, priority](KVStore* store) {
    return store->PullRows(name, ids, &pulled->rows, &pulled->values, priority);
  });
  return py::make_tuple(AsBytes(pulled->rows), AsBytes(pulled->values));
}

}  // namespace slimps::python
