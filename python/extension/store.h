// SPDX-License-Identifier: Apache-2.0
// Store: worker/kvstore.h for the Python package. Arrays are contiguous float32 and come by the
// buffer protocol; slimps/_kvstore.py converts everything else to that form.
//
//   store = _slimps.Store.create("dist_sync", options)
//   store.init(["w"], [[784, 10]], [weights], [False], ["dense"])
//   store.push("w", gradient, 0)
//   store.pull(["w"], [weights], 0)
//
// Calls that wait release the GIL while they wait and notice Ctrl-C (waiting.h). Ctrl-C aborts the
// store and tells every node of the job.
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

// Throws ValueError, naming `what`, unless `got` equals `keys`.
void CheckCount(const char* what, size_t keys, size_t got);

// Counts the bytes of pushes that may still be under way, to tell whether a push may have to wait.
// Guarded by the GIL.
class PushesUnderWay final {
 public:
  // Keys, each with the bytes that were under way at one moment.
  using Marks = std::vector<std::pair<KeyId, size_t>>;

  // True if a push of so many bytes may have to wait: for room in grad_buf, which has room for one
  // push of each key, or for the network, once as much waits for it as the store allows.
  bool MayWait(KeyId key, size_t bytes) const;

  void Add(KeyId key, size_t bytes);
  size_t BytesOf(KeyId key) const;

  // Removes the bytes of `marks`: those pushes have been acknowledged. Does not allocate.
  void Acknowledged(const Marks& marks);

  void AllAcknowledged();

 private:
  struct OfKey {
    size_t first = 0, later = 0;  // bytes of the first push, and of the pushes after it
  };
  std::unordered_map<KeyId, OfKey> by_key_;
  size_t bytes_ = 0, later_ = 0;  // sums over all keys: all bytes, and those of later pushes
};

// Thread-safe. The caller holds the GIL in every method. Every method raises the store's error as a
// Python exception.
class Store final {
 public:
  static std::unique_ptr<Store> Create(const std::string& type, const KVStoreOptions& options);
  ~Store();

  void Init(const std::vector<pybind11::object>& keys,
            const std::vector<std::vector<int64_t>>& shapes,
            const std::vector<pybind11::object>& values, const std::vector<bool>& halves,
            const std::vector<std::string>& layers);

  // Pushes the sum of `gradients`, one array per device. A "device" store compresses each of them.
  void Push(const pybind11::object& key, const std::vector<pybind11::object>& gradients,
            int priority);

  void PushNothing(const pybind11::object& key);

  // Pushes some rows. `rows` is contiguous int64 in one dimension; `values` has row after row.
  void PushRows(const pybind11::object& key, const pybind11::buffer& rows,
                const pybind11::object& values, int priority);

  // Returns (rows, values): int64 and float32, as bytes.
  pybind11::tuple PullRows(const pybind11::object& key, const pybind11::buffer& row_ids,
                           int priority);

  // Starts pulls and calls done(None) or done(exception) when all have ended. It does so on another
  // thread or, if nothing has to be waited for, before PullThen returns. `done` must not wait for
  // the store.
  // ValueError: there is no key.
  void PullThen(const std::vector<pybind11::object>& keys,
                const std::vector<pybind11::object>& outs, int priority, pybind11::object done);

  // Pulls into one array per key; returns when all are filled.
  void Pull(const std::vector<pybind11::object>& keys, const std::vector<pybind11::object>& outs,
            int priority);

  // Pushes as Push does and pulls as Pull does, for several keys. Pulls each key as soon as it is
  // pushed, unless an array that is written for one key may be read for another: then all pushes
  // come first. After a push that is refused, the keys behind it are neither pushed nor pulled.
  void PushPull(const std::vector<pybind11::object>& keys,
                const std::vector<std::vector<pybind11::object>>& gradients,
                const std::vector<pybind11::object>& outs, int priority);
  void SetOptimizer(const wire::OptimizerSpec& spec);
  pybind11::bytes SaveOptimizerStates();
  void LoadOptimizerStates(const std::string& content);

  // Sets updater(typed name, gradient, weight), which gets memoryviews of float32 that are valid
  // during the call only. None removes the updater.
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

  // Returns the decision in force as a dict; None while nothing is decided or if nothing is
  // measured.
  pybind11::object Decision() const;

  const KVStore& store() const { return *store_; }

  // Runs one call of the store that may wait. Holds `arrays` meanwhile; if the call cannot be ended
  // after Ctrl-C, the arrays are never released.
  void Call(std::function<absl::Status(KVStore*)> call, std::vector<HeldArray> arrays = {});

  // Raises FailedPrecondition if this process was forked from the store's process.
  // Raises FailedPrecondition if this thread runs the store's updater.
  void CheckCaller() const;

  // Holds `arrays` as long as anything uses the store.
  void Keep(std::vector<HeldArray> arrays);

 private:
  explicit Store(std::unique_ptr<KVStore> store) : store_(std::move(store)) {}

  // Calls `save` and returns its result as bytes.
  pybind11::bytes BytesOf(std::function<absl::StatusOr<std::string>(KVStore*)> save);

  // One key and the memory to pull it into.
  struct PullJob;
  // Makes one job per key and puts the arrays of `outs` into `arrays`, which holds their memory.
  static std::vector<PullJob> PullJobs(const std::vector<pybind11::object>& keys,
                                       const std::vector<pybind11::object>& outs,
                                       std::vector<HeldArray>* arrays);
  PushesUnderWay::Marks MarksOf(const std::vector<PullJob>& jobs) const;
  // Starts one pull and returns. `pending` learns of its end as call `number`. Does not throw.
  static void AskOne(KVStore* store, const PullJob& job, size_t number, int priority,
                     const std::shared_ptr<Pending>& pending);
  // Starts all pulls and returns.
  void Ask(const std::vector<PullJob>& jobs, int priority, const std::shared_ptr<Pending>& pending);
  // Waits for `pending` and holds `arrays` meanwhile, as Call does.
  void AwaitWith(const std::shared_ptr<Pending>& pending, std::vector<HeldArray> arrays);

  std::shared_ptr<KVStore> store_;  // shared with calls under way
  // Shared with answers that may come after the store is gone.
  const std::shared_ptr<PushesUnderWay> under_way_ = std::make_shared<PushesUnderWay>();
  std::vector<HeldArray> kept_;
  const pid_t process_ = getpid();
  std::atomic<bool> aborted_{false};  // then Close reports no error: the caller knows of the abort
};

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_STORE_H_
