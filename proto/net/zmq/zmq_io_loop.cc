// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_io_loop.h"

#include <algorithm>
#include <list>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/net/zmq/zmq_link.h"

namespace slimps {
namespace {

// How long a stopping transport waits for the return of what it lent, with nothing else to do.
constexpr absl::Duration kReturnLinger = absl::Milliseconds(500);

PayloadSharingOptions SharingOptions(const ZmqTransportOptions& options) {
  return {.limits = options.limits,
          .memory = options.shared_memory,
          .min_bytes = options.min_shared_bytes,
          .max_leased_bytes = options.max_leased_bytes_per_process};
}

}  // namespace

ZmqIoLoop::ZmqIoLoop(const ZmqTransportOptions& options, TransportState* state, MessageSink* sink,
                     ZmqContext context, std::vector<ZmqSocket> bound)
    : options_(options),
      state_(state),
      sink_(sink),
      sharing_(SharingOptions(options), state->wakeup()),
      peers_(&options_, state, sink, &sharing_, std::move(context), std::move(bound)),
      watch_(&options_, state, sink, &peers_),
      receiver_(&options_, state, sink, &sharing_, &peers_, &watch_),
      sender_(state, sink, &sharing_, &peers_) {}

class ABSL_SCOPED_LOCKABLE ZmqIoLoop::TurnLock final {
 public:
  struct Locked {};  // this thread holds turn_ already

  explicit TurnLock(ZmqIoLoop* loop) ABSL_EXCLUSIVE_LOCK_FUNCTION(loop->turn_) : loop_(loop) {
    loop_->turn_.Lock();
    loop_->in_turn_ = Thread::CurrentId();
  }
  TurnLock(ZmqIoLoop* loop, Locked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(loop->turn_) : loop_(loop) {
    loop_->in_turn_ = Thread::CurrentId();
  }
  ~TurnLock() ABSL_UNLOCK_FUNCTION() {
    loop_->in_turn_ = Thread::Id();
    loop_->turn_.Unlock();
  }
  TurnLock(const TurnLock&) = delete;
  TurnLock& operator=(const TurnLock&) = delete;

 private:
  ZmqIoLoop* const loop_;
};

void ZmqIoLoop::Run() {
  while (Turn()) Sleep();
}

bool ZmqIoLoop::Turn() {
  const TurnLock lock(this);
  CheckEvents();
  receiver_.ReceiveReady();
  SteadyTime now = options_.clock->Now();
  receiver_.DeliverDue(now);
  watch_.CloseExcessive(now);
  // Cleared before the queue is read: what is sent before this line leaves below (also what the
  // handlers above sent); a Send after it signals again and ends the next sleep.
  state_->wakeup()->Clear();
  peers_.OpenConnections();
  peers_.ReleaseHeld(now);
  sender_.SendControls(now);
  sender_.SendReady(now);
  now = options_.clock->Now();
  if (Finished(now)) {
    Close(now);
    return false;
  }
  // Receiving and sending used sockets, which may have swallowed the signal on their fds. So the
  // events are read once more before the thread sleeps on the fds.
  sleep_until_ = CheckEvents() ? SteadyTime::InfinitePast() : NextWake();
  const std::list<ZmqLink>& links = peers_.links();
  // No socket has anything left, so the sink has all that had arrived when the last sleep began.
  if (std::ranges::none_of(links, &ZmqLink::readable)) state_->Delivered(slept_at_);
  fds_.clear();
  for (const ZmqLink& link : links) fds_.push_back({link.fd, POLLIN, 0});
  if (sharing_.on()) fds_.push_back({sharing_.process_fd(), POLLIN, 0});
  for (const ZmqLink& link : links) fds_.push_back({link.monitor.fd(), POLLIN, 0});
  return true;
}

void ZmqIoLoop::Sleep() {
  slept_at_ = options_.clock->Now();
  state_->wakeup()->Sleep(&fds_, sleep_until_);
  const TurnLock lock(this);
  size_t i = 0;
  for (ZmqLink& link : peers_.links()) link.unchecked |= fds_[i++].revents != 0;
  if (sharing_.on() && fds_[i++].revents != 0) sharing_.TakeEndedProcesses();
  for (ZmqLink& link : peers_.links()) link.has_events |= fds_[i++].revents != 0;
}

bool ZmqIoLoop::CheckEvents() {
  bool work = sender_.more_to_send();
  for (ZmqLink& link : peers_.links()) {
    link.CheckReadiness();
    work |= (link.readable || !link.events.empty()) && !receiver_.IsFull();
    work |= link.writable && !link.is_router && peers_.IsHeldUnwritable(link.peer);
  }
  return work;
}

SteadyTime ZmqIoLoop::NextWake() const {
  return std::min({state_->NextSend(), receiver_.NextWake(), stop_by_, returns_by_,
                   watch_.NextLook(), peers_.NextRetry()});
}

void ZmqIoLoop::SendHere() {
  // A sink that sends from a handler is in a turn of this thread already. Even to try the lock
  // would then be undefined behaviour.
  if (in_turn_ == Thread::CurrentId() || !turn_.TryLock()) {
    return state_->wakeup()->Signal();
  }
  bool more = true;
  {
    const TurnLock lock(this, TurnLock::Locked());
    sender_.SendReady(options_.clock->Now());
    // Using a socket may swallow the signal on its fd on which the I/O thread sleeps.
    more = CheckEvents() || !state_->NothingToSend();
  }
  if (more) state_->wakeup()->Signal();
}

void ZmqIoLoop::Admit(PeerId peer) {
  // A handler runs in a turn of its own thread. This also avoids locking turn_ twice.
  if (in_turn_ != Thread::CurrentId()) return;
  // This thread holds turn_ (checked above), which the analysis cannot see.
  [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { watch_.Admit(peer); }();
}

// ---- stopping ------------------------------------------------------------

bool ZmqIoLoop::Finished(SteadyTime now) {
  if (!state_->stopping()) return false;
  if (stop_by_ == SteadyTime::InfiniteFuture()) stop_by_ = now + options_.linger;
  // The linger time bounds everything. Once nothing is left to send, only loans are waited for, and
  // for a shorter time.
  if (now >= stop_by_) return true;
  if (!state_->NothingToSend()) return false;
  if (returns_by_ == SteadyTime::InfiniteFuture()) returns_by_ = now + kReturnLinger;
  return !sharing_.lends() || now >= returns_by_;
}

void ZmqIoLoop::Close(SteadyTime now) {
  for (const Outgoing& message : state_->TakeAll()) {
    state_->ReportUndeliverable(sink_, message.to,
                                absl::UnavailableError("stopped before it could be sent"));
  }
  // The last returns leave, so that their lenders need not keep the payloads.
  sender_.SendControls(now);
  sharing_.Close();
  peers_.Close(stop_by_ - now);
}

}  // namespace slimps
