// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/raw_server.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// The server receives at most so many messages before it sends again, so that both directions move.
constexpr int kMessagesPerTurn = 64;

absl::Status ClientGone() { return absl::UnavailableError("a client is gone"); }

}  // namespace

absl::StatusOr<std::unique_ptr<RawServer>> RawServer::Bind(const std::string& address) {
  std::unique_ptr<RawServer> server(new RawServer);
  SLIMPS_ASSIGN_OR_RETURN(server->socket_, OpenRawSocket(server->context_.get(), ZMQ_ROUTER));
  char text[256] = "";
  size_t size = sizeof(text);
  if (zmq_bind(server->socket_.get(), address.c_str()) != 0 ||
      zmq_getsockopt(server->socket_.get(), ZMQ_LAST_ENDPOINT, text, &size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", zmq_strerror(zmq_errno())));
  }
  server->endpoint_ = text;
  return server;
}

absl::Status RawServer::Serve() {
  for (;;) {
    zmq_pollitem_t item{socket_.get(), 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, -1) < 0) return absl::InternalError(zmq_strerror(zmq_errno()));
    SLIMPS_RETURN_IF_ERROR(HandleMessages());
    SLIMPS_RETURN_IF_ERROR(SendDue());
  }
}

absl::Status RawServer::HandleMessages() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    RawFrame sender, frame;
    if (!sender.Receive(socket_.get())) return absl::OkStatus();
    const std::string routing_id(sender.text());
    if (!frame.Receive(socket_.get())) return absl::DataLossError("a message without content");
    SLIMPS_RETURN_IF_ERROR(HandleOne(routing_id, &frame));
  }
  return absl::OkStatus();
}

absl::Status RawServer::HandleOne(const std::string& routing_id, RawFrame* frame) {
  Client& client = clients_[routing_id];
  const std::span<const std::byte> bytes = frame->bytes();
  if (bytes.size() == sizeof(uint64_t)) return TakeAcknowledgement(bytes, &client.stream);
  if (bytes.size() <= kControlBytes) {
    SLIMPS_ASSIGN_OR_RETURN(const Command command, ParseCommand(frame->text()));
    return Arm(routing_id, command);
  }
  sum_ += ReadEveryByte(bytes);
  if (client.echo) {
    return client.buffers->SendNext(socket_.get(), routing_id) ? absl::OkStatus() : ClientGone();
  }
  client.stream.OnReceived();
  client.started = true;
  return absl::OkStatus();
}

absl::Status RawServer::Arm(const std::string& routing_id, const Command& command) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t bytes,
                          command.Count("bytes", kControlBytes + 1, kMaxMessageBytes));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t window, command.Count("window", 1, 1 << 20));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t count, command.Count("count", 1, kMaxMessages));
  Client& client = clients_[routing_id];
  client.echo = command.verb == "ping";
  client.started = false;
  client.stream = RawStream(
      {.to_send = command.verb == "two_way" ? count : 0, .to_receive = count, .window = window});
  const bool fits =
      client.buffers && client.buffers->bytes() == bytes && client.buffers->count() == window;
  if (!fits) client.buffers.emplace(bytes, window);
  return SendSmall(socket_.get(), routing_id, "ready") ? absl::OkStatus() : ClientGone();
}

absl::Status RawServer::SendDue() {
  for (auto& [routing_id, client] : clients_) {
    const uint32_t owed = client.stream.TakeAcknowledgements();
    if (owed > 0 && !SendAcknowledgements(socket_.get(), routing_id, owed)) return ClientGone();
    while (client.started && client.stream.CanSend()) {
      if (!client.buffers->SendNext(socket_.get(), routing_id)) return ClientGone();
      client.stream.OnSent();
    }
  }
  return absl::OkStatus();
}

}  // namespace slimps
