// SPDX-License-Identifier: Apache-2.0
// slimps_store: a handle of a store. A store has one or several; the store closes with the last
// one. A handle with a call runs in the background whatever has to wait.
//
//   slimps_status slimps_rank(const slimps_store* store, uint32_t* rank) {
//     return Ask(__func__, store, [=](KVStore* open) { ... });         // never waits
//   slimps_status slimps_barrier(slimps_store* store) {
//     return Await(__func__, store, [](KVStore* open) { return open->Barrier(); });
//
// What is given to Await may run when the C function has returned. So it captures by value, and
// memory that it points to is the C caller's. Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_C_API_HANDLE_H_
#define SLIMPS_WORKER_CAPI_C_API_HANDLE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "worker/capi/background_call.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_answers.h"
#include "worker/capi/c_api_calls.h"
#include "worker/capi/c_api_outcome.h"
#include "worker/capi/c_api_support.h"
#include "worker/kvstore.h"

namespace slimps {

// What the handles of a store share. Thread-safe.
class SharedStore final {
 public:
  // `type` is as slimps_create was asked for it.
  SharedStore(std::string type, std::unique_ptr<KVStore> store)
      : type_(std::move(type)), store_(std::move(store)) {}

  // Waits for the threads of calls under way, then closes the store.
  ~SharedStore();

  // True for types of stores that are of this process alone. Their calls never wait for others,
  // and their updaters run on the calling thread.
  static bool IsLocal(std::string_view type) { return type == "local" || type == "device"; }

  // Runs `work` on a thread of its own. `work` shares no ownership of this store, which would end
  // on that thread.
  // Throws std::system_error if no thread can be started.
  void RunOnThread(std::function<void()> work);

  const std::string& type() const { return type_; }
  bool is_local() const { return IsLocal(type_); }
  KVStore* store() const { return store_.get(); }
  AnswerThread& answers() { return answers_; }

 private:
  const std::string type_;
  Mutex mutex_;
  CondVar ended_;
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  AnswerThread answers_;
  // Declared last, so that it ends first: its threads may still hand over answers.
  const std::unique_ptr<KVStore> store_;
};

}  // namespace slimps

struct slimps_call {
  std::shared_ptr<slimps::BackgroundCall> call;
};

struct slimps_store {
  std::shared_ptr<slimps::SharedStore> shared;
  std::shared_ptr<slimps::BackgroundCall> call;  // null: the handle's functions wait

  // True if what may have to wait runs in the background.
  bool in_background() const { return call != nullptr && !shared->is_local(); }
};

namespace slimps {

// Runs `body(KVStore*)`, which returns a Status, on the calling thread.
template <typename Body>
slimps_status Ask(const char* function, const slimps_store* store, const Body& body) noexcept {
  return Guarded(function, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    return body(store->shared->store());
  });
}

// Runs `body(KVStore*, const Key&)` on the calling thread.
template <typename Body>
slimps_status AskKey(const char* function, const slimps_store* store, const slimps_key& key,
                     const Body& body) noexcept {
  return Ask(function, store, [&](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    return body(open, name);
  });
}

// Same as Ask, for a function that is refused while the handle's call is under way.
template <typename Body>
slimps_status AskIdle(const char* function, const slimps_store* store, const Body& body) noexcept {
  return Ask(function, store, [&](KVStore* open) -> absl::Status {
    if (store->call != nullptr) SLIMPS_RETURN_IF_ERROR(store->call->CheckIdle());
    return body(open);
  });
}

// Runs `body(KVStore*)` on a thread of the library, for store->call.
slimps_status StartOnThread(const char* function, const slimps_store& store,
                            std::function<absl::Status(KVStore*)> body);

// Runs `body(KVStore*)`, which returns a Status and may have to wait.
template <typename Body>
slimps_status Await(const char* function, const slimps_store* store, Body body) noexcept {
  if (store == nullptr || !store->in_background()) return AskIdle(function, store, body);
  try {
    return StartOnThread(function, *store, std::move(body));
  } catch (...) {
    return Report(OutcomeOfException(function));
  }
}

// Runs `body(KVStore*, given)`, which may have to wait, with what `prepare()` returns, a StatusOr.
// `prepare` runs at once.
template <typename Prepare, typename Body>
slimps_status AwaitWith(const char* function, const slimps_store* store, const Prepare& prepare,
                        Body body) noexcept {
  using Given = typename std::invoke_result_t<Prepare>::value_type;
  std::shared_ptr<const Given> given;
  const slimps_status prepared = Ask(function, store, [&](KVStore*) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(Given made, prepare());
    given = std::make_shared<const Given>(std::move(made));
    return absl::OkStatus();
  });
  if (prepared != SLIMPS_OK) return prepared;
  return Await(function, store,
               [given = std::move(given), body](KVStore* open) { return body(open, *given); });
}

// AwaitWith, with the key.
template <typename Body>
slimps_status AwaitKey(const char* function, const slimps_store* store, const slimps_key& key,
                       Body body) noexcept {
  return AwaitWith(
      function, store, [&] { return ToKey(key); }, std::move(body));
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_C_API_HANDLE_H_
