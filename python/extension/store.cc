#include "python/extension/store.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <iterator>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "python/extension/status.h"
#include "python/extension/waiting.h"
#include "worker/collective_optimizer.h"

namespace slimps::python {

namespace py = pybind11;

namespace {

// A round's pushes only copy: grad_buf has room for one of all keys. A second push of a key that was not pulled since may wait
// for room, beyond this, and is called as what waits is; a thread for each would cost more than the push.
constexpr size_t kPushesThatDoNotWait = size_t{64} << 20;

// The others would wait for this worker's part of rounds, and this call's memory must be nobody's when it returns.
void Interrupt(KVStore* store) {
  store->Abort(absl::CancelledError(
      absl::StrCat("worker ", store->rank(), " was interrupted, as by Ctrl-C, while it waited")));
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

struct PullJob {
  Key key;
  std::span<float> out;
};

// `arrays` hold the memory.
std::vector<PullJob> PullJobs(const std::vector<py::object>& keys,
                              const std::vector<py::object>& outs, std::vector<HeldArray>* arrays) {
  std::vector<PullJob> jobs;
  for (size_t i = 0; i < keys.size(); ++i) {
    arrays->emplace_back(outs[i], HeldArray::Access::kWrite);
    jobs.push_back({ToKey(keys[i]), arrays->back().floats()});
  }
  return jobs;
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
  if (getpid() != process_) {
    new std::shared_ptr<KVStore>(std::move(store_));  // a child's: its threads are not here
    new std::vector<HeldArray>(std::move(kept_));
    return;
  }
  if (store_.use_count() > 1 && !kept_.empty()) {
    new std::vector<HeldArray>(
        std::move(kept_));  // a call that could not be ended may write into them
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
        // Somebody may still read or write them: better lost than given back.
        if (how == Cancelled::kStillUnderWay) new std::vector<HeldArray>(std::move(arrays));
      });
}

void Store::CheckProcess() const {
  if (getpid() == process_) return;
  RaiseIfError(absl::FailedPreconditionError(
      absl::StrCat("the store belongs to process ", process_,
                   ", and this is a child that was forked from it, ", getpid())));
}

void Store::Call(std::function<absl::Status(KVStore*)> call, std::vector<HeldArray> arrays) {
  CheckProcess();
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
  CheckProcess();
  const Key name = ToKey(key);
  std::vector<HeldArray> arrays;
  arrays.emplace_back(gradient, HeldArray::Access::kRead);
  const std::span<const float> values = arrays.back().floats();
  size_t& of_key = under_way_by_key_[name.id()];
  const bool first = of_key == 0;  // there is room for one round of all keys
  of_key += values.size_bytes();
  under_way_ += values.size_bytes();
  if (!first && under_way_ > kPushesThatDoNotWait) {
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
  CheckProcess();
  CheckCount("outs", keys.size(), outs.size());
  if (keys.empty()) return;
  std::vector<HeldArray> arrays;
  std::vector<PullJob> jobs = PullJobs(keys, outs, &arrays);
  std::vector<KeyId> ids;
  for (const PullJob& job : jobs) ids.push_back(job.key.id());
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
  for (const KeyId id : ids) NoteAcknowledged(id);
}

void Store::NoteAcknowledged(KeyId id) {
  const auto pushed = under_way_by_key_.find(id);
  if (pushed == under_way_by_key_.end()) return;
  under_way_ -= pushed->second;
  under_way_by_key_.erase(pushed);
}

// The last answer calls; with the GIL held when it destroys what Python owns.
struct Store::PullsUnderWay {
  Store* store;
  std::vector<HeldArray> arrays;
  std::vector<KeyId> ids;
  py::object done;
  Mutex mutex;
  size_t missing ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex);

  // Whether that was the last.
  bool Arrived(absl::Status arrived) {
    MutexLock lock(&mutex);
    if (status.ok()) status = std::move(arrived);
    return --missing == 0;
  }
  absl::Status result() {
    MutexLock lock(&mutex);
    return status;
  }
};

void Store::Deliver(std::shared_ptr<PullsUnderWay> pulls) {
  py::gil_scoped_acquire gil;
  const std::shared_ptr<PullsUnderWay> last = std::move(pulls);
  const absl::Status status = last->result();
  last->arrays.clear();
  try {
    if (status.ok()) {
      for (const KeyId id : last->ids) last->store->NoteAcknowledged(id);
    }
    last->done(status.ok() ? py::none() : ToException(status));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("a pull's callback");
  }
  last->done = py::object();
}

void Store::PullThen(const std::vector<py::object>& keys, const std::vector<py::object>& outs,
                     int priority, py::object done) {
  CheckCount("outs", keys.size(), outs.size());
  if (keys.empty()) throw py::value_error("pull_then: expected at least one key");
  auto pulls = std::make_shared<PullsUnderWay>();
  pulls->store = this;
  pulls->done = std::move(done);
  const std::vector<PullJob> jobs = PullJobs(keys, outs, &pulls->arrays);
  for (const PullJob& job : jobs) pulls->ids.push_back(job.key.id());
  {
    MutexLock lock(&pulls->mutex);
    pulls->missing = jobs.size();
  }
  py::gil_scoped_release no_gil;
  for (const PullJob& job : jobs) {
    store_->PullAsync(job.key, job.out, priority, [pulls](absl::Status status) {
      if (pulls->Arrived(std::move(status))) Deliver(pulls);
    });
  }
  pulls = nullptr;  // empty, or whoever delivers has it
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
  absl::Status set;
  {
    py::gil_scoped_release no_gil;  // an updater that runs has the store's locks and wants the GIL
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

void Store::SetHyper(const py::object& key, double learning_rate, double weight_decay) {
  RaiseIfError(store_->SetHyper(
      ToKey(key), Hyper{.learning_rate = learning_rate, .weight_decay = weight_decay}));
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
  StoreTotals totals;
  {
    py::gil_scoped_release no_gil;
    totals = store_->totals();
  }
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

py::object Store::Decision() const {
  std::optional<wire::CodecMap> map;
  {
    py::gil_scoped_release no_gil;
    map = store_->codec_map();
  }
  if (!map.has_value()) return py::none();
  const auto threshold = [](bool there, uint64_t bytes) -> py::object {
    return there ? py::object(py::int_(bytes)) : py::object(py::none());
  };
  py::list rows;
  for (const wire::ThresholdRow& row : map->table()) {
    py::dict one;
    one["direction"] = row.direction() == wire::PULL ? "pull" : "push";
    one["bytes"] = row.bytes();
    one["t_c_ms"] = row.t_c_ms();
    one["t_cq_ms"] = row.t_cq_ms();
    one["t_pq_ms"] = row.t_pq_ms();
    rows.append(std::move(one));
  }
  py::dict found;
  found["from_round"] = map->from_round();
  found["codec"] = map->codec();
  found["threshold_bytes"] = threshold(map->has_threshold(), map->threshold_bytes());
  found["pull_codec"] = map->pull_codec();
  found["pull_threshold_bytes"] = threshold(map->has_pull_threshold(), map->pull_threshold_bytes());
  found["table"] = std::move(rows);
  return found;
}

}  // namespace slimps::python
