// Payloads by reference between processes of one machine: who may be sent references, what is lent to whom, what is
// borrowed from whom. Knows no sockets: the I/O loop carries what it is given (sharing_wire.h).
//
//   sharing.AddPeer(peer);                                       // each side offers, each answers the other's offer
//   for (auto& control : sharing.TakeControls()) ...             // send it
//   if (auto loan = sharing.Lend(peer, frame)) ...               // send loan->parts instead of the frame
//   if (IsSharingPart(first)) sharing.HandleControl(peer, first) // or Borrow(peer, first) if it is REFERENCES
//
//            OFFER -->                                    payload lent: the sender's reference stays in leases_
//   sender <-- ACCEPT   receiver        sender  REFERENCES, header -->  receiver: Payload into the mapping
//          lends                                <-- RETURN              ... its last copy is gone
//
// A lease ends when it is returned or when the borrowing process has ended; nothing else, for whoever borrowed may
// still be reading though its connection broke. What is lent when the transport stops is kept until a transport is made
// or stopped after then (orphaned_loans.h). Beyond max_leased_bytes payloads travel in-line: a receiver may have to keep many until it can use
// one, so that waiting for its returns might be waiting forever.
//
// What is due to a peer is bounded, whatever it sends and however little it reads: one answer, one OFFER, and returns as
// lease numbers, kMaxReturnsDue in all. Returns outlive the connection that they were due on: they go to the lender's
// process by any other that it has or makes, until it has ended.
#ifndef SLIMPS_PROTO_NET_PAYLOAD_SHARING_H_
#define SLIMPS_PROTO_NET_PAYLOAD_SHARING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/frame.h"
#include "proto/net/lease_returns.h"
#include "proto/net/process_watch.h"
#include "proto/net/segment_mapping.h"
#include "proto/net/shared_memory.h"
#include "proto/net/sharing_wire.h"
#include "proto/net/transport.h"
#include "proto/net/wakeup.h"

namespace slimps {

struct PayloadSharingOptions {
  Limits limits;
  SharedMemory* memory = nullptr;  // null: off; offers are refused
  size_t min_bytes = size_t{32} << 10;
  size_t max_leased_bytes = size_t{1} << 30;  // per process
};

// Leases of payloads that were let go of and whose lender cannot be told now; what is beyond stays lent. Far more than a
// lender of ours has out: max_leased_bytes / min_bytes.
inline constexpr size_t kMaxReturnsDue = size_t{1} << 18;

// Thread-compatible: used in the I/O loop's turns, one at a time.
class PayloadSharing final {
 public:
  struct Control {
    PeerId peer{};
    Payload part;
    SharingKind kind = SharingKind::kOffer;  // kAccept: an answer, REFUSE too
    std::vector<ReturnedLease> returns;      // of a RETURN
  };
  struct Loan {
    Frame parts;              // to be sent as one message
    size_t inline_bytes = 0;  // of all parts
    size_t lent_bytes = 0;
    std::vector<uint64_t> leases;
  };
  struct Borrowed {
    size_t payload = 0;  // its number in the frame
    Payload bytes;
  };

  PayloadSharing(const PayloadSharingOptions& options, std::shared_ptr<Wakeup> wakeup);
  ~PayloadSharing();

  bool on() const { return options_.memory != nullptr && watch_.ok(); }
  // Readable when TakeEndedProcesses has something to do; -1 when off.
  int process_fd() const { return on() ? watch_.fd() : -1; }
  void TakeEndedProcesses();

  void AddPeer(PeerId peer);
  void RemovePeer(PeerId peer);
  // What is to be sent now to those peers that `may_send` lets through (empty: all), each part a message.
  std::vector<Control> TakeControls(const std::function<bool(PeerId)>& may_send = {});
  // It was not sent.
  void PutBack(Control control);

  // None: nothing of it can be lent to this peer, the frame travels as it is.
  std::optional<Loan> Lend(PeerId peer, const Frame& frame);
  // A loan that was not sent.
  void TakeBack(const std::vector<uint64_t>& leases);
  bool lends() const { return !leases_.empty(); }

  // Any sharing part but REFERENCES, which has Borrow. InvalidArgument: malformed.
  [[nodiscard]] absl::Status HandleControl(PeerId peer, std::span<const std::byte> part);
  // Why a peer is sent payloads in-line, if that was found out since the last call; else "".
  std::string TakeRefusal() { return std::exchange(refusal_, {}); }
  // The payloads that a REFERENCES part stands for. InvalidArgument: another kind, malformed or out of range.
  // FailedPrecondition: off. Otherwise the segment cannot be read, and the peer is told to send in-line. All leases
  // are returned in time, whatever the result.
  [[nodiscard]] absl::StatusOr<std::vector<Borrowed>> Borrow(PeerId peer,
                                                             std::span<const std::byte> part);
  // Nothing is sent or received any more.
  void Close();

 private:
  struct Peer {
    uint64_t pid = 0;       // 0: not known
    bool offered = false;   // to that process
    bool accepted = false;  // it can read our memory
    // To be sent.
    bool offer_due = false;
    Payload answer_due;  // the latest; empty: none
  };
  struct Process {
    SegmentCache segments;
    size_t leased_bytes = 0;
    size_t leases = 0;
    size_t borrowed = 0;  // of its payloads, and not let go of yet
  };
  // Of this process, borrowed through this peer.
  using Lender = std::pair<uint64_t, PeerId>;
  struct Lease {
    uint64_t pid = 0;
    Payload payload;
  };

  Payload Build(SharingPart part) const;
  void Answer(Peer* peer, const absl::Status& result);
  absl::Status TakeAccept(PeerId peer, uint64_t pid);
  absl::Status Meet(PeerId peer, uint64_t pid);
  absl::Status TryOffer(PeerId peer, const SharingPart& offer);
  // By this process; leases of others are none of its business.
  void TakeReturned(uint64_t pid, std::span<const uint64_t> leases);
  void EndLease(uint64_t lease);
  void ForgetIfUnused(uint64_t pid);
  void Bury(uint64_t pid);
  void AddReturn(const ReturnedLease& lease);
  bool HasReturnsDue(uint64_t pid) const;
  std::vector<PeerId> PeersFor(const Lender& lender) const;
  void BuildReturns(PeerId peer, const Lender& lender, std::span<const uint64_t> leases,
                    std::vector<Control>* controls) const;
  void TakeReturns(const std::function<bool(PeerId)>& may_send, std::vector<Control>* controls);

  const PayloadSharingOptions options_;
  const uint64_t own_pid_;
  const std::shared_ptr<LeaseReturns> returns_;
  ProcessWatch watch_;
  std::map<PeerId, Peer> peers_;
  std::map<uint64_t, Process> processes_;  // by pid; all are watched
  std::unordered_map<uint64_t, Lease> leases_;
  uint64_t next_lease_;
  std::string refusal_;
  std::map<Lender, std::vector<uint64_t>> returns_due_;
  size_t num_returns_due_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_PAYLOAD_SHARING_H_
