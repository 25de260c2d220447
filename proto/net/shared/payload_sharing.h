// SPDX-License-Identifier: Apache-2.0
// Passes payloads by reference between processes of one machine. Knows which peers are in this
// process or on this machine, and what was shared with them. Agrees with each peer that it may be
// sent references, and keeps three tables: which peer is which process (sharing_peers.h), what is
// lent (lent_payloads.h) and what is borrowed (borrowed_payloads.h). It knows no sockets: the I/O
// loop carries the parts that it builds (sharing_wire.h).
//
//   sharing.AddPeer(peer);                                       // each side offers and answers
//   for (auto& control : sharing.TakeControls()) ...             // send it
//   if (auto loan = sharing.Lend(peer, frame)) ...               // send loan->parts, not the frame
//   if (IsSharingPart(first)) sharing.HandleControl(peer, first) // Borrow, if it is REFERENCES
//
//   Agreement, in each direction:     A loan (the sender keeps the payload in lent_):
//
//     sender --> OFFER  --> receiver    sender --> REFERENCES, header --> receiver: Payload
//            <-- ACCEPT <--                                                in the mapping
//                                              <-- RETURN             <-- its last copy is gone
//
// A lease ends when it is returned or when the borrowing process has ended. The end of a connection
// does not end it, because the borrower may still be reading. What is lent when the transport stops
// is kept until the borrower has ended and another transport is made or stopped (orphaned_loans.h).
//
// Beyond max_leased_bytes payloads travel in-line. To wait for returns instead might block for
// ever: a receiver may have to keep many payloads until it can use one.
//
// What waits to be sent to a peer is bounded, whatever the peer sends and however little it reads:
// one answer, one OFFER, and at most kMaxReturnsDue lease numbers for all peers together. Returns
// outlive the connection on which they were due. They go to the lender's process by any other
// connection that it has or makes, until it has ended.
#ifndef SLIMPS_PROTO_NET_SHARED_PAYLOAD_SHARING_H_
#define SLIMPS_PROTO_NET_SHARED_PAYLOAD_SHARING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/frame.h"
#include "proto/net/queue/wakeup.h"
#include "proto/net/shared/borrowed_payloads.h"
#include "proto/net/shared/lease_returns.h"
#include "proto/net/shared/lent_payloads.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/shared/sharing_peers.h"
#include "proto/net/shared/sharing_wire.h"
#include "proto/net/transport.h"

namespace slimps {

struct PayloadSharingOptions {
  Limits limits;
  SharedMemory* memory = nullptr;             // null: sharing is off, and offers are refused
  size_t min_bytes = size_t{32} << 10;        // smaller payloads travel in-line
  size_t max_leased_bytes = size_t{1} << 30;  // lent to one process
};

// Thread-compatible: used by one turn of the I/O loop at a time.
class PayloadSharing final {
 public:
  // A part that goes to the peer as a message of its own.
  struct Control {
    PeerId peer{};
    Payload part;
    SharingKind kind = SharingKind::kOffer;  // kAccept for any answer, also for REFUSE
    std::vector<ReturnedLease> returns;      // those in a RETURN
  };
  using Loan = LentPayloads::Loan;
  using Borrowed = BorrowedPayloads::Borrowed;

  PayloadSharing(const PayloadSharingOptions& options, std::shared_ptr<Wakeup> wakeup);
  ~PayloadSharing();

  bool on() const { return options_.memory != nullptr && peers_.ok(); }

  // A descriptor that is readable when TakeEndedProcesses has something to do; -1 when off.
  int process_fd() const { return on() ? peers_.process_fd() : -1; }

  // Ends the leases of processes that have ended.
  void TakeEndedProcesses();

  void AddPeer(PeerId peer);
  void RemovePeer(PeerId peer);

  // Takes what is to be sent now, to those peers for which `may_send` is true (to all if it is
  // empty).
  std::vector<Control> TakeControls(const std::function<bool(PeerId)>& may_send = {});

  // Puts back a control that could not be sent.
  void PutBack(Control control);

  // Lends what can be lent of the frame to the peer. Returns nullopt if that is nothing; the frame
  // then travels as it is.
  std::optional<Loan> Lend(PeerId peer, const Frame& frame);

  // Ends the leases of a loan that was not sent.
  void TakeBack(const std::vector<uint64_t>& leases);

  // True if any lease is out.
  bool lends() const { return !lent_.empty(); }

  // Handles any sharing part but REFERENCES, which needs Borrow.
  // InvalidArgument: the part is malformed, or is REFERENCES.
  [[nodiscard]] absl::Status HandleControl(PeerId peer, std::span<const std::byte> part);

  // Returns why a peer is sent payloads in-line, if that was found out since the last call; else
  // "".
  std::string TakeRefusal() { return std::exchange(refusal_, {}); }

  // Returns the payloads for which a REFERENCES part stands. All leases are returned to the lender
  // later, whatever the result. If the segment cannot be read, the peer is also told to send
  // payloads in-line.
  // InvalidArgument: the part is of another kind, malformed, or refers to bytes out of range.
  // FailedPrecondition: sharing is off, or the peer is not known.
  // Any error of SegmentCache::Get or ProcessWatch::Add.
  [[nodiscard]] absl::StatusOr<std::vector<Borrowed>> Borrow(PeerId peer,
                                                             std::span<const std::byte> part);

  // Ends sharing: nothing is sent or received any more. Hands what is still lent to OrphanedLoans.
  void Close();

 private:
  Payload Build(SharingPart part) const;
  void Answer(SharingPeer* peer, const absl::Status& result);
  absl::Status TakeAccept(PeerId peer, uint64_t pid);
  absl::Status Meet(PeerId peer, uint64_t pid);
  absl::Status TryOffer(PeerId peer, const SharingPart& offer);
  void EndLease(uint64_t lease);
  // Forgets the process unless it is a peer, borrows, lends or is owed a return.
  void ForgetIfUnused(uint64_t pid);
  void Forget(uint64_t pid);
  void TakeReturns(const std::function<bool(PeerId)>& may_send, std::vector<Control>* controls);
  void BuildReturns(PeerId peer, const BorrowedPayloads::Lender& lender,
                    std::span<const uint64_t> leases, std::vector<Control>* controls) const;

  const PayloadSharingOptions options_;
  const uint64_t own_pid_;
  SharingPeers peers_;
  LentPayloads lent_;
  BorrowedPayloads borrowed_;
  std::string refusal_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_PAYLOAD_SHARING_H_
