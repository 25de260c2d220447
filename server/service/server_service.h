// SPDX-License-Identifier: Apache-2.0
// The server behind its transport. It admits messages, sorts their items by shard, and sends what
// the shards answer.
//
//   transport --OnMessage--> Admission --> Directory --ShardItems--> Shard 0 .. S-1 (threads)
//             <---------------------------Reply----------------------'
//
//   ServerService service(&transport, [&] { return membership.MakeHeader(); }, options, &clock);
//   service.SetRoster(membership.roster());       // on the I/O thread, whenever a new one has come
//
// Push, PushPull and Init are acknowledged item by item; one message acknowledges what one shard
// has handled together. A PullReply follows once its versions are there. A push is acknowledged
// when it was checked and counted, not when it was applied.
#ifndef SLIMPS_SERVER_SERVICE_SERVER_SERVICE_H_
#define SLIMPS_SERVER_SERVICE_SERVER_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "server/round/partition_spec.h"
#include "server/round/waiting_bytes.h"
#include "server/service/admission.h"
#include "server/service/beginning.h"
#include "server/service/byte_relay.h"
#include "server/service/checkpointer.h"
#include "server/service/directory.h"
#include "server/service/parked_messages.h"
#include "server/service/request.h"
#include "server/service/server_options.h"
#include "server/service/snapshotter.h"
#include "server/shard/shard.h"
#include "server/shard/shard_state.h"
#include "watch/node_report.pb.h"

namespace slimps {

// Counts what was dropped or refused without reaching a shard.
struct ServerCounters {
  uint64_t bad_frames = 0;
  uint64_t refused_messages = 0;
  uint64_t undeliverable = 0;
  SnapshotCounters snapshots;
};

// Thread-safe, except: OnMessage, OnBadFrame, OnUndeliverable and SetRoster are called on the
// transport's I/O thread, and Stop on one thread.
class ServerService final : public MessageSink {
 public:
  // `make_header` makes the part that all headers of this node share. It is called on any thread.
  // REQUIRES: `transport` and `clock` outlive the service.
  ServerService(Transport* transport, std::function<wire::Header()> make_header,
                const ServerOptions& options, const Clock* clock);

  // Goes on from `beginning` (beginning.h), which was made from the same options.
  ServerService(Transport* transport, std::function<wire::Header()> make_header,
                const ServerOptions& options, const Clock* clock, Beginning beginning);
  ~ServerService() override;

  void OnMessage(PeerId from, Message message) override;
  void OnBadFrame(PeerId from, const absl::Status& why) override;
  void OnUndeliverable(PeerId to, const absl::Status& why) override;

  // Begins to take snapshots in the name of `owner`, if this server takes any. Calls `on_replaced`,
  // on a thread of its own, once another process has taken over their folder.
  // FailedPrecondition, Unavailable: Snapshotter::Start's.
  [[nodiscard]] absl::Status StartSnapshots(const std::string& owner,
                                            Snapshotter::Done on_replaced);

  // Removes all snapshots: the job has ended in order. REQUIRES: Stop was called.
  void RemoveSnapshots();

  // Admits the workers of `roster`, waits no more for those that are away, and handles the messages
  // that waited for it.
  void SetRoster(const wire::Roster& roster);

  // Returns the epoch of the newest roster with a worker newly away, before which all that was
  // counted is on the disk. 0: there is none.
  uint64_t saved_epoch() const { return saved_epoch_.load(std::memory_order_relaxed); }

  // Call it when a node is lost: answers with `why` the pulls that wait, later pushes, and later
  // pulls that would have to wait (ShardState::Fail).
  void FailPending(const absl::Status& why);

  // Finishes what was accepted and joins the shard threads. What comes later is answered with
  // `why`. Idempotent. Call it before the transport's Stop, so that the last answers leave.
  void Stop(const absl::Status& why = absl::UnavailableError("the server is stopping"));
  ServerCounters counters() const;

  // Returns what this server says of itself while the job runs. Waits for no arithmetic and no
  // disk.
  watch::NodeReport Report() const;

 private:
  class AckCollector;  // sends one Ack once all shards are done

  void Receive(EarlyMessage received);
  void Dispatch(PeerId from, Message message);
  void HandleInit(Request& request);
  void HandlePushes(Request& request,
                    const google::protobuf::RepeatedPtrField<wire::PushItem>& items);
  void HandlePulls(Request& request,
                   const google::protobuf::RepeatedPtrField<wire::PullItem>& items);
  void HandleSetOptimizer(const Origin& origin, const wire::SetOptimizer& request);
  absl::Status CheckSetOptimizer(const Origin& origin, const wire::SetOptimizer& request) const;
  void HandleLeave(const Origin& origin, uint64_t from_round);
  void HandlePersist(const Origin& origin);
  // Tells the shards who is away or has ended since the last roster, and who is back.
  void NoteAbsent(const wire::Roster& roster);
  // Returns the shard of a partition that a worker asks about.
  absl::StatusOr<size_t> FindInitialised(const wire::InitItem& item) const;
  void HandleCheckpoint(const Origin& origin, const wire::Checkpoint& request);
  void HandleRelay(Request& request);
  absl::StatusOr<size_t> DeclareInit(const Origin& origin, const wire::Init& init,
                                     const wire::InitItem& item, PartitionSpec* spec);
  // Sends one Error that tells nothing of the job or of this server, whatever the message holds.
  void RefuseStranger(PeerId from, uint64_t request_id, const absl::Status& why);
  // Answers a message that servers do not take with one Error.
  void Refuse(PeerId from, uint64_t request_id, const absl::Status& why);
  void SendAck(const Origin& origin, const absl::Status& status,
               const wire::CheckpointFile& written = {});
  void SendReplies(ReplyOutbox& outbox);
  void SendReply(Reply reply);
  void PostToAll(const Origin& origin, const std::function<absl::Status(ShardState&)>& control);

  Transport* const transport_;
  const std::function<wire::Header()> make_header_;
  const ServerOptions options_;
  const Clock* const clock_;
  const SteadyTime began_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<Snapshotter> snapshotter_;  // null: this server takes no snapshots
  std::unique_ptr<Checkpointer> checkpointer_;

  // Owned by the I/O thread.
  Admission admission_;
  std::set<uint32_t> away_;                      // workers
  std::set<uint32_t> ended_;                     // workers
  const std::shared_ptr<WaitingBytes> waiting_;  // shared by all shards
  Directory directory_;
  std::optional<wire::StoreMode> mode_;  // that of the first Init or SetOptimizer
  std::optional<uint32_t> staleness_;    // that of the first Init
  ParkedMessages parked_;
  ByteRelay relay_;

  // Counters publish nothing but themselves.
  std::atomic<uint64_t> saved_epoch_{0};
  std::atomic<uint64_t> bad_frames_{0};
  std::atomic<uint64_t> refused_messages_{0};
  std::atomic<uint64_t> undeliverable_{0};
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_SERVER_SERVICE_H_
