// SPDX-License-Identifier: Apache-2.0
#include "python/extension/store.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <stop_token>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "python/extension/layer.h"
#include "python/extension/status.h"
#include "python/extension/waiting.h"
#include "worker/collective_optimizer.h"

namespace slimps::python {

namespace py = pybind11;

namespace {

// grad_buf's smallest size, and the bytes that a store lets wait for the network
// (PushPipelineOptions). Below these limits a push only copies, so it runs on the caller's thread:
// a thread of its own would cost more than the push.
constexpr size_t kRoomForLaterPushes = size_t{64} << 20;
constexpr size_t kBytesWaiting = size_t{1} << 30;

// The stores whose updaters this thread runs, possibly one inside another.
class RunningUpdaters final {
 public:
  RunningUpdaters() = default;
  RunningUpdaters(const Store* store, const RunningUpdaters& outer)
      : innermost_(std::make_shared<const Frame>(Frame{store, outer.innermost_})) {}
  bool IsOf(const Store* store) const {
    for (const Frame* frame = innermost_.get(); frame != nullptr; frame = frame->outer.get()) {
      if (frame->store == store) return true;
    }
    return false;
  }

 private:
  struct Frame {
    const Store* store;
    std::shared_ptr<const Frame> outer;
  };
  std::shared_ptr<const Frame> innermost_;
};
thread_local RunningUpdaters running;

// Aborts the store. The other workers would otherwise wait for this worker's part of their rounds.
// No thread may use the call's memory once the call has returned.
void Interrupt(KVStore* store) {
  store->Abort(absl::CancelledError(
      absl::StrCat("worker ", store->rank(), " was interrupted, as by Ctrl-C, while it waited")));
}

}  // namespace

void CheckCount(const char* what, size_t keys, size_t got) {
  if (keys == got) return;
  throw py::value_error(absl::StrCat(what, ": expected one per key, ", keys, ", got ", got));
}

bool PushesUnderWay::MayWait(KeyId key, size_t bytes) const {
  if (bytes_ + bytes > kBytesWaiting) return true;
  const bool only_first = later_ == 0 && BytesOf(key) == 0;
  return !only_first && bytes_ + bytes > kRoomForLaterPushes;
}

void PushesUnderWay::Add(KeyId key, size_t bytes) {
  OfKey& pushed = by_key_[key];
  bytes_ += bytes;
  if (pushed.first == 0) {
    pushed.first = bytes;
    return;
  }
  pushed.later += bytes;
  later_ += bytes;
}

size_t PushesUnderWay::BytesOf(KeyId key) const {
  const auto pushed = by_key_.find(key);
  return pushed == by_key_.end() ? 0 : pushed->second.first + pushed->second.later;
}

void PushesUnderWay::Acknowledged(const Marks& marks) {
  for (const auto& [key, bytes] : marks) {
    const auto pushed = by_key_.find(key);
    if (pushed == by_key_.end()) continue;
    const size_t left = BytesOf(key) - std::min(bytes, BytesOf(key));
    bytes_ -= BytesOf(key) - left;
    later_ -= pushed->second.later;
    if (left > 0) {
      pushed->second = {.first = left};
    } else {
      by_key_.erase(pushed);
    }
  }
}

void PushesUnderWay::AllAcknowledged() {
  by_key_.clear();
  bytes_ = later_ = 0;
}

std::unique_ptr<Store> Store::Create(const std::string& type, const KVStoreOptions& options) {
  std::stop_source stop;
  struct Created {
    absl::StatusOr<std::unique_ptr<KVStore>> store = absl::UnknownError("not created");
  };
  auto created = std::make_shared<Created>();
  KVStoreOptions stoppable = options;
  stoppable.stop = stop.get_token();
  Await(StartCall([created, type, stoppable] {
          created->store = KVStore::Create(type, stoppable);
          return created->store.status();
        }),
        [&stop] { stop.request_stop(); });
  return std::unique_ptr<Store>(new Store(*std::move(created->store)));
}

Store::~Store() {
  if (getpid() != process_) {
    // A forked child has none of the store's threads, so it cannot close the store: leak both.
    new std::shared_ptr<KVStore>(std::move(store_));
    new std::vector<HeldArray>(std::move(kept_));
    return;
  }
  if (store_.use_count() > 1 && !kept_.empty()) {
    // A call that could not be ended may still write into the arrays, so they are leaked.
    new std::vector<HeldArray>(std::move(kept_));
  }
  py::gil_scoped_release no_gil;  // closing waits
  store_.reset();
}

void Store::Keep(std::vector<HeldArray> arrays) {
  kept_.insert(kept_.end(), std::make_move_iterator(arrays.begin()),
               std::make_move_iterator(arrays.end()));
}

void Store::AwaitWith(const std::shared_ptr<Pending>& pending, std::vector<HeldArray> arrays) {
  Await(
      pending,
      [this] {
        aborted_ = true;
        Interrupt(store_.get());
      },
      [&arrays](Cancelled how) {
        // A thread may still read or write the arrays, so leak them instead of releasing them.
        if (how == Cancelled::kStillUnderWay) new std::vector<HeldArray>(std::move(arrays));
      });
}

void Store::CheckCaller() const {
  if (running.IsOf(this)) {
    RaiseIfError(absl::FailedPreconditionError("an updater must not call its store"));
  }
  if (getpid() == process_) return;
  RaiseIfError(absl::FailedPreconditionError(
      absl::StrCat("the store belongs to process ", process_,
                   ", and this is a child that was forked from it, ", getpid())));
}

void Store::Call(std::function<absl::Status(KVStore*)> call, std::vector<HeldArray> arrays) {
  CheckCaller();
  AwaitWith(StartCall([store = store_, call = std::move(call), updaters = running] {
              running = updaters;  // those of the thread that waits for this one
              return call(store.get());
            }),
            std::move(arrays));
}

void Store::Init(const std::vector<py::object>& keys,
                 const std::vector<std::vector<int64_t>>& shapes,
                 const std::vector<py::object>& values, const std::vector<bool>& halves,
                 const std::vector<std::string>& layers) {
  CheckCount("shapes", keys.size(), shapes.size());
  CheckCount("values", keys.size(), values.size());
  CheckCount("halves", keys.size(), halves.size());
  CheckCount("layers", keys.size(), layers.size());
  std::vector<HeldArray> arrays;
  std::vector<InitTensor> tensors;
  arrays.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    arrays.emplace_back(values[i], HeldArray::Access::kRead);
    tensors.push_back({.key = ToKey(keys[i]),
                       .shape = shapes[i],
                       .value = arrays.back().floats(),
                       .layer = ToLayer(layers[i], shapes[i]),
                       .dtype = halves[i] ? wire::FLOAT16 : wire::FLOAT32});
  }
  Call([tensors = std::move(tensors)](KVStore* store) { return store->Init(tensors); },
       std::move(arrays));
}

void Store::Push(const py::object& key, const std::vector<py::object>& gradients, int priority) {
  CheckCaller();
  const Key name = ToKey(key);
  std::vector<HeldArray> arrays;
  std::vector<std::span<const float>> values;
  arrays.reserve(gradients.size());
  for (const py::object& gradient : gradients) {
    arrays.emplace_back(gradient, HeldArray::Access::kRead);
    values.push_back(arrays.back().floats());
  }
  const size_t bytes = values.empty() ? 0 : values[0].size_bytes();
  if (under_way_->MayWait(name.id(), bytes)) {
    Call(
        [name, values, priority](KVStore* store) { return store->PushSum(name, values, priority); },
        std::move(arrays));
  } else {
    absl::Status pushed;
    {
      py::gil_scoped_release no_gil;
      pushed = store_->PushSum(name, values, priority);
    }
    RaiseIfError(pushed);
  }
  under_way_->Add(name.id(), bytes);
}

void Store::PushRows(const py::object& key, const py::buffer& rows, const py::object& values,
                     int priority) {
  std::vector<HeldArray> arrays;
  arrays.emplace_back(values, HeldArray::Access::kRead);
  const std::span<const float> floats = arrays.back().floats();
  Call([name = ToKey(key), ids = ToRowIds(rows), floats,
        priority](KVStore* store) { return store->PushRowSparse(name, ids, floats, priority); },
       std::move(arrays));
}

void Store::PushNothing(const py::object& key) {
  Call([name = ToKey(key)](KVStore* store) { return store->PushNothing(name); });
}

void Store::SetOptimizer(const wire::OptimizerSpec& spec) {
  Call([spec](KVStore* store) { return SetOptimizerTogether(spec, store); });
}

py::bytes Store::BytesOf(std::function<absl::StatusOr<std::string>(KVStore*)> save) {
  const auto content = std::make_shared<std::string>();
  Call([content, save = std::move(save)](KVStore* store) {
    absl::StatusOr<std::string> saved = save(store);
    if (saved.ok()) *content = *std::move(saved);
    return saved.status();
  });
  return {*content};
}

py::bytes Store::SaveOptimizerStates() {
  return BytesOf([](KVStore* store) { return store->SaveOptimizerStates(); });
}

void Store::LoadOptimizerStates(const std::string& content) {
  Call([content](KVStore* store) { return store->LoadOptimizerStates(content); });
}

void Store::SetUpdater(const py::object& updater) {
  CheckCaller();
  Updater made;
  if (!updater.is_none()) {
    // The thread that drops the last reference may not hold the GIL, so the deleter takes it.
    const std::shared_ptr<py::object> call(new py::object(updater), [](py::object* held) {
      py::gil_scoped_acquire gil;
      delete held;
    });
    made = [this, call](const Key& key, std::span<const float> gradient, std::span<float> weight) {
      py::gil_scoped_acquire gil;
      const RunningUpdaters outer = running;
      const absl::Cleanup done = [&outer] { running = outer; };
      running = RunningUpdaters(this, outer);
      const auto view = [](const float* data, size_t elements, bool readonly) {
        return py::memoryview::from_buffer(const_cast<float*>(data), {elements}, {sizeof(float)},
                                           readonly);
      };
      (*call)(key.typed_name(), view(gradient.data(), gradient.size(), true),
              view(weight.data(), weight.size(), false));
    };
  }
  absl::Status set;
  {
    // A running updater holds the store's locks and waits for the GIL: holding it here would
    // deadlock.
    py::gil_scoped_release no_gil;
    set = store_->SetUpdater(std::move(made));
  }
  RaiseIfError(set);
}

void Store::SetGradientCompression(const std::string& codec_spec) {
  Call([codec_spec](KVStore* store) { return store->SetGradientCompression(codec_spec); });
}

void Store::SetGradientCompression(const std::map<std::string, std::string>& dictionary) {
  Call([dictionary](KVStore* store) { return store->SetGradientCompression(dictionary); });
}

py::bytes Store::SaveResiduals() {
  return BytesOf([](KVStore* store) { return store->SaveResiduals(); });
}

void Store::LoadResiduals(const std::string& content) {
  Call([content](KVStore* store) { return store->LoadResiduals(content); });
}

std::vector<double> Store::AllReduceSum(const std::vector<double>& values) {
  const auto sums = std::make_shared<std::vector<double>>();
  Call([values, sums](KVStore* store) {
    absl::StatusOr<std::vector<double>> reduced = store->AllReduceSum(values);
    if (reduced.ok()) *sums = *std::move(reduced);
    return reduced.status();
  });
  return *sums;
}

void Store::Barrier() {
  Call([](KVStore* store) { return store->Barrier(); });
}

void Store::Wait() {
  Call([](KVStore* store) { return store->Wait(); });
  under_way_->AllAcknowledged();
}

void Store::Leave() {
  Call([](KVStore* store) { return store->Leave(); });
}

void Store::Close() {
  Call([aborted = aborted_.load()](KVStore* store) {
    const absl::Status closed = store->Close();
    return aborted ? absl::OkStatus() : closed;
  });
}

void Store::Abort(const std::string& why) {
  CheckCaller();
  aborted_ = true;
  py::gil_scoped_release no_gil;
  store_->Abort(absl::AbortedError(why));
}

}  // namespace slimps::python
