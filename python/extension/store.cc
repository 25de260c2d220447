#include "python/extension/store.h"

#include <pybind11/stl.h>

#include <stop_token>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "python/extension/status.h"
#include "python/extension/waiting.h"

namespace slimps::python {

namespace py = pybind11;

namespace {

// Pushes only copy, up to where so much is under way that they may wait for room: beyond this they are called as what
// waits is. Below, a thread for each would cost more than the push.
constexpr size_t kPushesThatDoNotWait = size_t{64} << 20;

// The others would wait for this worker's part of rounds, and this call's memory must be nobody's when it returns.
void Interrupt(KVStore* store) {
  store->Abort(absl::CancelledError(
      absl::StrCat("worker ", store->rank(), " was interrupted, as by Ctrl-C, while it waited")));
}

// Nobody pushes before the servers know the optimizer: they would refuse it once a round has begun. A sum and not a
// barrier, so that the caller's own barriers do not count.
absl::Status SetOptimizerTogether(const wire::OptimizerSpec& spec, KVStore* store) {
  const absl::Status set = store->SetOptimizer(spec);
  const absl::StatusOr<std::vector<double>> refusals = store->AllReduceSum({set.ok() ? 0.0 : 1.0});
  if (!set.ok()) return set;
  if (absl::IsDeadlineExceeded(refusals.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("setting the optimizer: every worker must do so, and some have not: ",
                     std::string(refusals.status().message())));
  }
  if (!refusals.ok()) return refusals.status();
  if (refusals->at(0) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "setting the optimizer: refused at ", refusals->at(0), " other workers, which know why"));
}

void CheckCount(const char* what, size_t keys, size_t got) {
  if (keys == got) return;
  throw py::value_error(absl::StrCat(what, ": expected one per key, ", keys, ", got ", got));
}

std::vector<int64_t> ToRowIds(const py::buffer& ids) {
  const py::buffer_info info = ids.request();
  if (info.ndim != 1 || info.itemsize != sizeof(int64_t) ||
      (info.format != "l" && info.format != "q") || (info.size > 1 && info.strides[0] != 8)) {
    throw py::type_error(
        absl::StrCat("row ids: expected contiguous int64, got format \"", info.format, "\""));
  }
  const auto* first = static_cast<const int64_t*>(info.ptr);
  return {first, first + info.size};
}

template <typename Value>
py::bytes AsBytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

}  // namespace

Key ToKey(py::handle key) {
  if (py::isinstance<py::str>(key)) return Key(key.cast<std::string>());
  if (py::isinstance<py::int_>(key) && !py::isinstance<py::bool_>(key)) {
    return Key(key.cast<int64_t>());
  }
  throw py::type_error(
      absl::StrCat("key: expected an int of 64 bits or a str, got ", std::string(py::repr(key))));
}

HeldArray::HeldArray(py::handle array, Access access) {
  if (!py::isinstance<py::buffer>(array)) {
    throw py::type_error(absl::StrCat("array: expected a buffer of float32, got ",
                                      std::string(py::repr(py::type::of(array)))));
  }
  info_ = py::reinterpret_borrow<py::buffer>(array).request(access == Access::kWrite);
  py::ssize_t packed = info_.itemsize;
  bool contiguous = true;
  for (py::ssize_t i = info_.ndim - 1; i >= 0; --i) {
    contiguous = contiguous && (info_.shape[i] <= 1 || info_.strides[i] == packed);
    packed *= info_.shape[i];
  }
  if (info_.format != "f" || !contiguous) {
    throw py::type_error(absl::StrCat("array: expected contiguous float32, got format \"",
                                      info_.format, "\"", contiguous ? "" : " with gaps"));
  }
}

std::span<float> HeldArray::floats() const {
  return {static_cast<float*>(info_.ptr), static_cast<size_t>(info_.size)};
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
  py::gil_scoped_release no_gil;  // closing waits
  store_.reset();
}

void Store::AwaitWith(const std::shared_ptr<Pending>& pending, std::vector<HeldArray> arrays) {
  Await(
      pending,
      [this] {
        aborted_ = true;
        Interrupt(store_.get());
      },
      [&arrays](Cancelled how) {
        // Somebody may still read or write them: better lost than given back.
        if (how == Cancelled::kStillUnderWay) new std::vector<HeldArray>(std::move(arrays));
      });
}

void Store::Call(std::function<absl::Status(KVStore*)> call, std::vector<HeldArray> arrays) {
  AwaitWith(StartCall([store = store_, call = std::move(call)] { return call(store.get()); }),
            std::move(arrays));
}

void Store::Init(const std::vector<py::object>& keys,
                 const std::vector<std::vector<int64_t>>& shapes,
                 const std::vector<py::object>& values, const std::vector<bool>& halves) {
  CheckCount("shapes", keys.size(), shapes.size());
  CheckCount("values", keys.size(), values.size());
  CheckCount("halves", keys.size(), halves.size());
  std::vector<HeldArray> arrays;
  std::vector<InitTensor> tensors;
  arrays.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    arrays.emplace_back(values[i], HeldArray::Access::kRead);
    tensors.push_back({.key = ToKey(keys[i]),
                       .shape = shapes[i],
                       .value = arrays.back().floats(),
                       .dtype = halves[i] ? wire::FLOAT16 : wire::FLOAT32});
  }
  Call([tensors = std::move(tensors)](KVStore* store) { return store->Init(tensors); },
       std::move(arrays));
}

void Store::Push(const py::object& key, const py::object& gradient, int priority) {
  const Key name = ToKey(key);
  std::vector<HeldArray> arrays;
  arrays.emplace_back(gradient, HeldArray::Access::kRead);
  const std::span<const float> values = arrays.back().floats();
  under_way_ += values.size_bytes();
  under_way_by_key_[name.id()] += values.size_bytes();
  if (under_way_ > kPushesThatDoNotWait) {
    Call([name, values, priority](KVStore* store) { return store->Push(name, values, priority); },
         std::move(arrays));
    return;
  }
  absl::Status pushed;
  {
    py::gil_scoped_release no_gil;
    pushed = store_->Push(name, values, priority);
  }
  RaiseIfError(pushed);
}

void Store::PushSum(const py::object& key, const std::vector<py::object>& gradients, int priority) {
  const Key name = ToKey(key);
  std::vector<HeldArray> arrays;
  std::vector<std::span<const float>> values;
  arrays.reserve(gradients.size());
  for (const py::object& gradient : gradients) {
    arrays.emplace_back(gradient, HeldArray::Access::kRead);
    values.push_back(arrays.back().floats());
  }
  absl::Status pushed;
  {
    py::gil_scoped_release no_gil;
    pushed = store_->PushSum(name, values, priority);
  }
  RaiseIfError(pushed);
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

void Store::PushNothing(const py::object& key) {
  Call([name = ToKey(key)](KVStore* store) { return store->PushNothing(name); });
}

void Store::Pull(const std::vector<py::object>& keys, const std::vector<py::object>& outs,
                 int priority) {
  CheckCount("outs", keys.size(), outs.size());
  if (keys.empty()) return;
  struct Job {
    Key key;
    std::span<float> out;
  };
  std::vector<HeldArray> arrays;
  std::vector<Job> jobs;
  std::vector<KeyId> ids;
  arrays.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    arrays.emplace_back(outs[i], HeldArray::Access::kWrite);
    jobs.push_back({ToKey(keys[i]), arrays.back().floats()});
    ids.push_back(jobs.back().key.id());
  }
  auto pending = std::make_shared<Pending>(jobs.size());
  auto ask = [store = store_, pending, jobs = std::move(jobs), priority] {
    for (size_t i = 0; i < jobs.size(); ++i) {
      store->PullAsync(jobs[i].key, jobs[i].out, priority, [pending, i](absl::Status status) {
        pending->Finish(i, std::move(status));
      });
    }
  };
  if (asks_late()) {
    std::thread(std::move(ask)).detach();
  } else {
    py::gil_scoped_release no_gil;
    ask();
  }
  AwaitWith(pending, std::move(arrays));
  // Weights of the newest pushed round: its pushes have been acknowledged.
  for (const KeyId id : ids) {
    const auto pushed = under_way_by_key_.find(id);
    if (pushed == under_way_by_key_.end()) continue;
    under_way_ -= pushed->second;
    under_way_by_key_.erase(pushed);
  }
}

void Store::SetOptimizer(const wire::OptimizerSpec& spec) {
  Call([spec](KVStore* store) { return SetOptimizerTogether(spec, store); });
}

py::bytes Store::SaveOptimizerStates() {
  const auto content = std::make_shared<std::string>();
  Call([content](KVStore* store) {
    absl::StatusOr<std::string> saved = store->SaveOptimizerStates();
    if (saved.ok()) *content = *std::move(saved);
    return saved.status();
  });
  return {*content};
}

void Store::LoadOptimizerStates(const std::string& content) {
  Call([content](KVStore* store) { return store->LoadOptimizerStates(content); });
}

void Store::SetUpdater(const py::object& updater) {
  Updater made;
  if (!updater.is_none()) {
    // Whoever lets go of it last need not hold the GIL.
    const std::shared_ptr<py::object> call(new py::object(updater), [](py::object* held) {
      py::gil_scoped_acquire gil;
      delete held;
    });
    made = [call](const Key& key, std::span<const float> gradient, std::span<float> weight) {
      py::gil_scoped_acquire gil;
      const auto view = [](const float* data, size_t elements, bool readonly) {
        return py::memoryview::from_buffer(const_cast<float*>(data), {elements}, {sizeof(float)},
                                           readonly);
      };
      (*call)(key.typed_name(), view(gradient.data(), gradient.size(), true),
              view(weight.data(), weight.size(), false));
    };
  }
  RaiseIfError(store_->SetUpdater(std::move(made)));
}

void Store::SetGradientCompression(const std::string& codec_spec) {
  Call([codec_spec](KVStore* store) { return store->SetGradientCompression(codec_spec); });
}

void Store::SetGradientCompression(const std::map<std::string, std::string>& dictionary) {
  Call([dictionary](KVStore* store) { return store->SetGradientCompression(dictionary); });
}

void Store::Barrier() {
  Call([](KVStore* store) { return store->Barrier(); });
}

void Store::Wait() {
  Call([](KVStore* store) { return store->Wait(); });
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
  aborted_ = true;
  py::gil_scoped_release no_gil;
  store_->Abort(absl::AbortedError(why));
}

py::dict Store::Totals() const {
  const StoreTotals totals = store_->totals();
  py::dict found;
  found["bytes_pushed"] = totals.bytes_pushed;
  found["bytes_pulled"] = totals.bytes_pulled;
  found["copy_s"] = absl::ToDoubleSeconds(totals.copy);
  found["encode_s"] = absl::ToDoubleSeconds(totals.encode);
  found["send_s"] = absl::ToDoubleSeconds(totals.send);
  found["wait_s"] = absl::ToDoubleSeconds(totals.wait);
  found["decode_s"] = absl::ToDoubleSeconds(totals.decode);
  return found;
}

}  // namespace slimps::python
