// Store: worker/kvstore.h as the Python package sees it. Arrays come through the buffer protocol, float32 and contiguous;
// slimps/kv.py brings everything else into that form.
//
//   store = _slimps.Store.create("dist_sync", options)
//   store.init(["w"], [[784, 10]], [weights], [False], ["dense"])
//   store.push("w", gradient, 0)
//   store.pull(["w"], [weights], 0)
//
// Calls that wait do so without the GIL and see Ctrl-C (waiting.h), which ends the store: everyone in the job is told.
#ifndef SLIMPS_PYTHON_EXTENSION_STORE_H_
#define SLIMPS_PYTHON_EXTENSION_STORE_H_

#include <pybind11/pybind11.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "python/extension/arrays.h"
#include "python/extension/waiting.h"
#include "worker/kvstore.h"

namespace slimps::python {

// ValueError: `got` of something is not one per key.
void CheckCount(const char* what, size_t keys, size_t got);

// Pushes that may still be under way. Read and written with the GIL held.
class PushesUnderWay final {
 public:
  // Keys with the bytes that were under way of them at some moment.
  using Marks = std::vector<std::pair<KeyId, size_t>>;

  // Whether a push of so many bytes may have to wait: for room in grad_buf, which has some for one of each key, or for the
  // network, which may be as far behind as the store allows.
  bool MayWait(KeyId key, size_t bytes) const;
  void Add(KeyId key, size_t bytes);
  size_t BytesOf(KeyId key) const;
  // The pushes of these keys up to then have been acknowledged. Allocates nothing.
  void Acknowledged(const Marks& marks);
  void AllAcknowledged();

 private:
  struct OfKey {
    size_t first = 0, later = 0;  // bytes of the first push, and of those after it
  };
  std::unordered_map<KeyId, OfKey> by_key_;
  size_t bytes_ = 0, later_ = 0;  // of all keys
};

// Thread-safe, as the store that it wraps; every method is called with the GIL held.
class Store final {
 public:
  static std::unique_ptr<Store> Create(const std::string& type, const KVStoreOptions& options);
  ~Store();

  void Init(const std::vector<pybind11::object>& keys,
            const std::vector<std::vector<int64_t>>& shapes,
            const std::vector<pybind11::object>& values, const std::vector<bool>& halves,
            const std::vector<std::string>& layers);
  // The sum of one array per device, which `device` stores compress one by one.
  void Push(const pybind11::object& key, const std::vector<pybind11::object>& gradients,
            int priority);
  void PushNothing(const pybind11::object& key);
  // `rows`: contiguous int64, in one dimension; `values`: one row after another.
  void PushRows(const pybind11::object& key, const pybind11::buffer& rows,
                const pybind11::object& values, int priority);
  // (rows, values): int64 and float32, as bytes.
  pybind11::tuple PullRows(const pybind11::object& key, const pybind11::buffer& row_ids,
                           int priority);
  // Calls done(None) or done(exception) when all have ended: on another thread or, where nothing has to be waited for, before
  // it returns. `done` must not wait for the store.
  void PullThen(const std::vector<pybind11::object>& keys,
                const std::vector<pybind11::object>& outs, int priority, pybind11::object done);
  // One array per key; returns when all are filled.
  void Pull(const std::vector<pybind11::object>& keys, const std::vector<pybind11::object>& outs,
            int priority);
  // Pushes as Push and pulls as Pull, of several keys: each key is pulled as soon as it is pushed, unless what is written
  // for one may be read for another. What follows a push that is refused is neither pushed nor pulled.
  void PushPull(const std::vector<pybind11::object>& keys,
                const std::vector<std::vector<pybind11::object>>& gradients,
                const std::vector<pybind11::object>& outs, int priority);
  void SetOptimizer(const wire::OptimizerSpec& spec);
  pybind11::bytes SaveOptimizerStates();
  void LoadOptimizerStates(const std::string& content);
  // updater(typed name, gradient, weight), memoryviews of float32 that end with the call; None: none any more.
  void SetUpdater(const pybind11::object& updater);
  void SetGradientCompression(const std::string& codec_spec);
  void SetGradientCompression(const std::map<std::string, std::string>& dictionary);
  pybind11::bytes SaveResiduals();
  void LoadResiduals(const std::string& content);
  std::vector<double> AllReduceSum(const std::vector<double>& values);
  void Barrier();
  void Wait();
  void Leave();
  void Close();
  void Abort(const std::string& why);
  pybind11::dict Totals() const;
  // None while nothing is decided, or where nothing is measured.
  pybind11::object Decision() const;

  const KVStore& store() const { return *store_; }

  // One call of the store that waits; `arrays` stay in place meanwhile, and for good if it cannot be ended.
  void Call(std::function<absl::Status(KVStore*)> call, std::vector<HeldArray> arrays = {});
  // FailedPrecondition, raised: this process was forked from the store's, or this thread runs its updater.
  void CheckCaller() const;
  // `arrays` stay in place as long as anybody uses the store.
  void Keep(std::vector<HeldArray> arrays);

 private:
  explicit Store(std::unique_ptr<KVStore> store) : store_(std::move(store)) {}

  pybind11::bytes BytesOf(std::function<absl::StatusOr<std::string>(KVStore*)> save);
  // One array of `keys` each, in `arrays`; `pending` is told of each answer. Returns at once.
  struct PullJob;
  static std::vector<PullJob> PullJobs(const std::vector<pybind11::object>& keys,
                                       const std::vector<pybind11::object>& outs,
                                       std::vector<HeldArray>* arrays);
  PushesUnderWay::Marks MarksOf(const std::vector<PullJob>& jobs) const;
  static void AskOne(KVStore* store, const PullJob& job, size_t number, int priority,
                     const std::shared_ptr<Pending>& pending);
  void Ask(const std::vector<PullJob>& jobs, int priority, const std::shared_ptr<Pending>& pending);
  void AwaitWith(const std::shared_ptr<Pending>& pending, std::vector<HeldArray> arrays);

  std::shared_ptr<KVStore> store_;  // shared with calls under way
  // Shared with answers that come when the store is gone.
  const std::shared_ptr<PushesUnderWay> under_way_ = std::make_shared<PushesUnderWay>();
  std::vector<HeldArray> kept_;
  const pid_t process_ = getpid();
  std::atomic<bool> aborted_{false};  // what closing would complain of is known
};

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_STORE_H_
