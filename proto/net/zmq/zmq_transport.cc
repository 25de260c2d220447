// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_transport.h"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"
#include "proto/net/zmq/curve/zap_handler.h"
#include "proto/net/zmq/curve/zmq_curve.h"
#include "proto/net/zmq/zmq_io_loop.h"

namespace slimps {
namespace {

// A connection's own socket, and both ends of the one that reports when it comes and goes.
constexpr int kSocketsOfConnection = 3;

absl::Status BindError(std::string_view address, int error) {
  const std::string text =
      absl::StrCat("cannot listen on ", std::string(address), ": ", zmq_strerror(error));
  switch (error) {
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case ENODEV:
    case EACCES:
      return absl::UnavailableError(text);
    default:
      return absl::InvalidArgumentError(text);
  }
}

// Returns the address in the form that zmq_bind takes.
absl::StatusOr<std::string> BindTarget(std::string_view text) {
  SLIMPS_ASSIGN_OR_RETURN(Address address, ParseAddress(text));
  if (address.kind == Address::Kind::kTcp) {
    address.host = ResolveForBind(address.host);
  } else if (IpcPathIsServed(address.path)) {
    // ZeroMQ would take the path away from the process that listens there.
    return BindError(text, EADDRINUSE);
  }
  return address.ToString();
}

}  // namespace

ZmqTransport::ZmqTransport(const ZmqTransportOptions& options)
    : options_(options), state_(options), context_(zmq_ctx_new()) {
  MutexLock lock(&mutex_);
  zmq_ctx_set(context_.get(), ZMQ_IO_THREADS, options.io_threads);
  zmq_ctx_set(context_.get(), ZMQ_MAX_SOCKETS, kSocketsOfConnection * options.max_connections);
}

ZmqTransport::~ZmqTransport() {
  Stop();
  MutexLock lock(&mutex_);
  bound_.clear();  // before the context, whose destruction waits for its sockets
}

absl::StatusOr<std::string> ZmqTransport::Bind(std::string_view address) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string target, BindTarget(address));
  MutexLock lock(&mutex_);
  if (started_) return absl::FailedPreconditionError("Bind comes before Start");
  SLIMPS_ASSIGN_OR_RETURN(ZmqSocket socket, OpenSocket(context_.get(), ZMQ_ROUTER, options_));
  if (address.starts_with("ipc://")) {
    SLIMPS_RETURN_IF_ERROR(SetSocketOption(
        socket.get(), ZMQ_IPC_FILTER_UID, static_cast<int>(geteuid()), "the user who may connect"));
  } else if (!options_.secret_key.empty()) {
    SLIMPS_RETURN_IF_ERROR(Secure(socket.get()));
  }
  if (zmq_bind(socket.get(), target.c_str()) != 0) return BindError(address, zmq_errno());
  std::string endpoint = LastEndpoint(socket.get());
  bound_.push_back(std::move(socket));
  return endpoint;
}

absl::Status ZmqTransport::Secure(void* socket) {
  if (zap_ == nullptr) {
    if (options_.allowed_keys == nullptr) {
      return absl::InvalidArgumentError("whoever binds with a key must know who may connect");
    }
    auto handler = std::make_unique<ZapHandler>(options_.allowed_keys);
    SLIMPS_RETURN_IF_ERROR(handler->Start(context_.get()));
    zap_ = std::move(handler);
  }
  return ServeCurve(socket, options_.secret_key);
}

absl::Status ZmqTransport::Start(MessageSink* sink) {
  MutexLock lock(&mutex_);
  if (started_ || state_.stopping()) {
    return absl::FailedPreconditionError("a transport starts once, before it stops");
  }
  if (!state_.wakeup()->ok()) return absl::ResourceExhaustedError("no file descriptor left");
  loop_ = std::make_unique<ZmqIoLoop>(options_, &state_, sink, std::move(context_),
                                      std::exchange(bound_, {}));
  started_ = true;
  try {
    io_thread_ = Thread("slimps-io", [this, loop = loop_.get(), sink] {
      state_.RunOrTell(sink, [loop] { loop->Run(); });
    });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no I/O thread: ", error.what()));
  }
  running_ = loop_.get();
  return absl::OkStatus();
}

absl::StatusOr<PeerId> ZmqTransport::Connect(std::string_view address) {
  SLIMPS_ASSIGN_OR_RETURN(Address parsed, ParseAddress(address));
  if (parsed.kind == Address::Kind::kTcp && (parsed.port == 0 || parsed.host == "*")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(address), "' can be listened on, not connected to: host and port needed"));
  }
  if (parsed.kind == Address::Kind::kTcp && parsed.key.empty() != options_.secret_key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(address),
                     parsed.key.empty()
                         ? "': the public key of who listens there is needed, since this node has "
                           "keys"
                         : "': this node has no key of its own"));
  }
  return state_.Connect(parsed.ToString());
}

absl::Status ZmqTransport::Send(PeerId to, Message message, SendOptions options) {
  ZmqIoLoop* const loop = running_;
  if (loop == nullptr || !options.may_hand_over_here) {
    return state_.Send(to, std::move(message), std::move(options));
  }
  SLIMPS_RETURN_IF_ERROR(state_.Queue(to, std::move(message), std::move(options)));
  loop->SendHere();
  return absl::OkStatus();
}

void ZmqTransport::Stop() {
  // Else a handshake that waits for keys would hold up the context's end.
  if (options_.allowed_keys != nullptr) options_.allowed_keys->Close();
  state_.Stop();
  Thread io_thread;
  {
    MutexLock lock(&mutex_);
    io_thread = std::move(io_thread_);
  }
  if (io_thread.joinable()) io_thread.Join();
}

void ZmqTransport::Admit(PeerId peer) {
  if (ZmqIoLoop* const loop = running_; loop != nullptr) loop->Admit(peer);
}

TransportStats ZmqTransport::stats() const { return state_.stats(); }

}  // namespace slimps
