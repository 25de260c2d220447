// SPDX-License-Identifier: Apache-2.0
// WorkerNode: this worker as a member of the job. It joins, connects to the servers, hands on what
// arrives, knows whether the worker can go on, tells everybody if it cannot, and leaves.
//
//   WorkerNode node(mode, options, std::move(transport));
//   SLIMPS_RETURN_IF_ERROR(node.Join());     // rank() and courier() are known from here on
//   ... make the stages, which use courier() ...
//   SLIMPS_RETURN_IF_ERROR(node.Serve({.on_failed = ..., .on_codec_map = ...}));
//   ...
//   return node.Close(drain);                // before the stages are destroyed
//
// Owned by the store, whose stages use it until they end. It holds no lock while it calls a stage.
// Thread-safe; Join and Serve are called once, by the thread that makes the store.
#ifndef SLIMPS_WORKER_STORE_WORKER_NODE_H_
#define SLIMPS_WORKER_STORE_WORKER_NODE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/incarnation.h"
#include "proto/net/membership/membership.h"
#include "proto/net/transport.h"
#include "worker/activity.h"
#include "worker/courier/courier.h"
#include "worker/courier/item_gathering.h"
#include "worker/courier/rpc_client.h"
#include "worker/kvstore.h"
#include "worker/store/server_connections.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// What a node tells the store's stages.
struct WorkerNodeEvents {
  // Must end every wait in the stages with `why`. Called on any thread, perhaps more than once.
  std::function<void(const absl::Status& why)> on_failed;
  // Called on the I/O thread. An error fails this worker.
  std::function<absl::Status(const wire::CodecMap&)> on_codec_map;
};

class WorkerNode final : private MessageSink {
 public:
  // kOurs: this worker failed, and the scheduler must be told. kOthers: the scheduler knows it.
  enum class Cause { kOurs, kOthers };

  // REQUIRES: `transport` has not been started; `options` and `activity` outlive the node.
  // `activity` is told when items travel.
  WorkerNode(wire::StoreMode mode, KVStoreOptions* options, std::unique_ptr<Transport> transport,
             Activity* activity);

  // Joins the job, waits until all nodes are there, and connects to the servers. Sets the options'
  // timeout as the job says.
  [[nodiscard]] absl::Status Join();

  // Hands on messages and failures from now on. Returns the failure that there was before, if any.
  // REQUIRES: Join was OK.
  [[nodiscard]] absl::Status Serve(WorkerNodeEvents events);

  // Reports that there will be no store. The others wait for this worker if it has joined. Waits
  // until the scheduler has heard it: at most a few seconds.
  void GiveUp(const absl::Status& why);

  // Fails the worker, and tells every stage and, for kOurs, the scheduler. `cause` is the error or,
  // if OK, the job has ended. Only the first failure counts, and none does after Close.
  void Fail(const absl::Status& cause, Cause whose);

  // Fails the worker if `answer` says that a server is gone. That ends the job, and this worker may
  // not have heard of it yet. Returns InOwnWords(answer).
  absl::Status FailIfServerIsGone(const absl::Status& answer);

  // Returns the worker's failure in place of an answer that says that a server is gone. If this
  // worker ended the job, a server's answer may be faster than Fail.
  absl::Status InOwnWords(const absl::Status& answer) const;

  // The check with which a call of the store begins.
  // FailedPrecondition: Close was called.
  // Otherwise the error of FirstError.
  [[nodiscard]] absl::Status CheckOpen() const;

  // Returns why the worker has failed or how the job ended; FailedPrecondition once Close is done.
  [[nodiscard]] absl::Status FirstError() const;

  // Waits for the answers. Fails the worker if a server is gone.
  [[nodiscard]] absl::StatusOr<std::vector<Answer>> AwaitAnswers(ItemGathering& gathering);

  // Sends one message to every server and waits for their acknowledgements. If servers may be
  // started again, waits until their snapshots have what it did.
  [[nodiscard]] absl::Status TellServers(const wire::Header& message, const std::string& what);

  // Asks one server, and waits up to `timeout` for its acknowledgement. It may go to a process that
  // was started anew.
  [[nodiscard]] absl::StatusOr<wire::Header> AskServer(uint32_t server, const wire::Header& message,
                                                       absl::Duration timeout,
                                                       const std::string& what);

  // Same, for a question that has payloads or whose answer has.
  [[nodiscard]] absl::StatusOr<Message> ExchangeWith(uint32_t server, Message question,
                                                     absl::Duration timeout,
                                                     const std::string& what);

  // Waits until the servers' snapshots have all that they have counted of this worker. Returns at
  // once if no server may be started again.
  [[nodiscard]] absl::Status Persist();

  // Sends the report and does not wait. If it cannot, the worker fails.
  void Report(wire::ThresholdReport report);

  // A barrier of all workers.
  [[nodiscard]] absl::Status Barrier(const std::string& name);

  // A barrier that returns the sums of `values` (KVStore::AllReduceSumFor). Checks CheckOpen first.
  // Waits up to `timeout`; nullopt: the options'.
  [[nodiscard]] absl::StatusOr<std::vector<double>> Sum(
      const std::string& purpose, const std::vector<double>& values,
      std::optional<absl::Duration> timeout = std::nullopt);

  // A barrier that returns this worker's error or, if others failed and this worker did not,
  // Aborted. `what` names the call that workers make together.
  [[nodiscard]] absl::Status AgreeOn(const absl::Status& mine, const std::string& what,
                                     std::optional<absl::Duration> timeout = std::nullopt);

  // Refuses calls from now on. Then calls `drain` if Serve was called, and leaves the job if
  // nothing failed. When it returns, no stage and no callback of the courier is called any more.
  // Idempotent.
  [[nodiscard]] absl::Status Close(const std::function<absl::Status()>& drain);

  // REQUIRES: Join was OK.
  const ServerConnections& servers() const { return servers_; }

  // True until NotePush, if another process had this worker's rank before (rank_return.h).
  bool returning() const { return returning_.load(); }
  // To be called before each push.
  void NotePush();

  // Says that the servers' snapshots have all that they counted of the former process, which nobody
  // can send again. Before that, a server that is started again fails a returning worker.
  void NoteFormerSaved();

  uint32_t rank() const { return membership_.rank(); }
  TransportStats transport_stats() const { return transport_->stats(); }
  Membership* membership() { return &membership_; }
  std::string waits() const { return membership_.waits(); }
  RpcClient* rpc() { return &rpc_; }
  Courier* courier() const { return courier_.get(); }  // null until Join was OK

  // Every thread of the store has this at its top.
  const slimps::OnOutOfMemory& on_out_of_memory() const { return on_out_of_memory_; }

 private:
  // Returns true if a server's new process speaks at its former self's connection. It may lack what
  // this worker was told that the former has, so its answers count once the roster names it.
  bool IsOfUnknownProcess(PeerId from, const wire::Header& header);

  // kClosing: no new calls; what was pushed is still being sent.
  enum class State { kOpen, kClosing, kClosed };

  void OnMessage(PeerId from, Message message) override;
  void OnBadFrame(PeerId from, const absl::Status& why) override;
  void OnUndeliverable(PeerId to, const absl::Status& why) override;
  void OnConnectionLost(PeerId to) override;
  void OnOutOfMemory(const std::bad_alloc& error) override;
  // Connects to the servers that were started again, and sends them what they lack.
  void FollowRoster();
  // Asks a server for a snapshot, and does not wait for it.
  void WishSnapshot(uint32_t server);
  absl::Status CallServers(const wire::Header& message, const std::string& what);
  // Tells every stage and, for kOurs, the scheduler. May be called again.
  void Tell(const absl::Status& why, Cause whose);
  // Waits until the scheduler knows why this worker failed, if it did: at most kReportPatience.
  void AwaitReport();

  const wire::StoreMode mode_;
  KVStoreOptions& options_;
  const std::unique_ptr<Transport> transport_;
  Activity* const activity_;
  const slimps::OnOutOfMemory on_out_of_memory_;
  Membership membership_;
  RpcClient rpc_;
  ServerConnections servers_;
  Mutex following_;  // one thread at a time follows the roster; locked before all others

  mutable Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_) = State::kOpen;
  std::set<PeerId> undeliverable_ ABSL_GUARDED_BY(mutex_);  // peers already logged as such
  bool report_due_ ABSL_GUARDED_BY(mutex_) = false;         // first_error_ is not reported yet
  CondVar reported_;

  // Set by Join and Serve; constant afterwards.
  std::unique_ptr<Courier> courier_;
  WorkerNodeEvents events_;
  std::atomic<bool> ready_{false};  // publishes these to the I/O thread

  // These two publish nothing but themselves.
  std::map<PeerId, Incarnation> speakers_;  // servers' processes; used by the I/O thread
  std::atomic<bool> returning_{false};
  std::atomic<bool> has_pushed_{false};
  std::atomic<bool> former_saved_{false};
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_WORKER_NODE_H_
