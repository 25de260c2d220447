// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/raw_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "tools/bench/transport/monotonic.h"

namespace slimps {
namespace {

constexpr long kSilenceMs = 30000;  // NOLINT: zmq_poll takes a long
constexpr int kMessagesPerTurn = 64;

absl::Status ServerGone() { return absl::UnavailableError("a server is gone"); }

// Returns one link's part of a number that is divided over all links.
uint64_t PartOf(uint64_t whole, size_t link, size_t links) {
  return whole / links + (link < whole % links ? 1 : 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawClient>> RawClient::Connect(
    const std::vector<std::string>& endpoints) {
  std::unique_ptr<RawClient> client(new RawClient);
  for (const std::string& endpoint : endpoints) {
    SLIMPS_ASSIGN_OR_RETURN(RawSocket socket, OpenRawSocket(client->context_.get(), ZMQ_DEALER));
    if (zmq_connect(socket.get(), endpoint.c_str()) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot connect to \"", endpoint, "\": ", zmq_strerror(zmq_errno())));
    }
    client->links_.push_back(Link{.socket = std::move(socket), .stream = {}});
  }
  return client;
}

absl::StatusOr<double> RawClient::Stream(std::string_view mode, const RawRun& run) {
  SLIMPS_RETURN_IF_ERROR(Arm(mode, run));
  SleepUntilMonotonic(run.start_at);
  const double begin = MonotonicSeconds();
  const auto done = [](const Link& link) { return link.stream.done(); };
  for (;;) {
    SLIMPS_RETURN_IF_ERROR(SendDue());
    if (std::all_of(links_.begin(), links_.end(), done)) return MonotonicSeconds() - begin;
    SLIMPS_RETURN_IF_ERROR(AwaitAnything());
    SLIMPS_RETURN_IF_ERROR(Receive());
  }
}

absl::StatusOr<std::vector<double>> RawClient::Ping(const RawRun& run, absl::Duration pause) {
  SLIMPS_RETURN_IF_ERROR(Arm("ping", run));
  SleepUntilMonotonic(run.start_at);
  std::vector<double> microseconds;
  microseconds.reserve(run.count);
  for (uint64_t i = 0; i < run.count; ++i) {
    if (pause > absl::ZeroDuration()) absl::SleepFor(pause);
    const double begin = MonotonicSeconds();
    if (!buffers_->SendNext(links_[0].socket.get(), "")) return ServerGone();
    SLIMPS_RETURN_IF_ERROR(AwaitAnything());
    RawFrame frame;
    if (!frame.Receive(links_[0].socket.get()) || frame.bytes().size() != run.bytes) {
      return absl::DataLossError(
          absl::StrCat("ping: expected ", run.bytes, " bytes back, got ", frame.bytes().size()));
    }
    sum_ += ReadEveryByte(frame.bytes());
    microseconds.push_back(1e6 * (MonotonicSeconds() - begin));
  }
  return microseconds;
}

absl::Status RawClient::Arm(std::string_view mode, const RawRun& run) {
  if (run.window < links_.size() || run.count < links_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("window and count: expected at least ",
                                                   links_.size(), ", one for each server"));
  }
  const bool fits = buffers_ && buffers_->bytes() == run.bytes && buffers_->count() == run.window;
  if (!fits) buffers_.emplace(run.bytes, run.window);
  for (size_t i = 0; i < links_.size(); ++i) {
    const uint64_t count = PartOf(run.count, i, links_.size());
    const uint64_t window = PartOf(run.window, i, links_.size());
    links_[i].stream = RawStream(
        {.to_send = count, .to_receive = mode == "two_way" ? count : 0, .window = window});
    SLIMPS_RETURN_IF_ERROR(ArmOne(&links_[i], absl::StrCat(std::string(mode), " bytes=", run.bytes,
                                                           " window=", window, " count=", count)));
  }
  return absl::OkStatus();
}

absl::Status RawClient::ArmOne(Link* link, const std::string& command) {
  if (!SendSmall(link->socket.get(), "", command)) return ServerGone();
  SLIMPS_RETURN_IF_ERROR(AwaitAnything());
  RawFrame frame;
  if (!frame.Receive(link->socket.get()) || frame.text() != "ready") {
    return absl::DataLossError(
        absl::StrCat("expected \"ready\", got ", frame.bytes().size(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status RawClient::SendDue() {
  for (Link& link : links_) {
    const uint32_t owed = link.stream.TakeAcknowledgements();
    if (owed > 0 && !SendAcknowledgements(link.socket.get(), "", owed)) return ServerGone();
    while (link.stream.CanSend()) {
      if (!buffers_->SendNext(link.socket.get(), "")) return ServerGone();
      link.stream.OnSent();
    }
  }
  return absl::OkStatus();
}

absl::Status RawClient::Receive() {
  for (Link& link : links_) SLIMPS_RETURN_IF_ERROR(ReceiveFrom(&link));
  return absl::OkStatus();
}

absl::Status RawClient::ReceiveFrom(Link* link) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    RawFrame frame;
    if (!frame.Receive(link->socket.get())) return absl::OkStatus();
    if (frame.bytes().size() == sizeof(uint64_t)) {
      SLIMPS_RETURN_IF_ERROR(TakeAcknowledgement(frame.bytes(), &link->stream));
    } else {
      sum_ += ReadEveryByte(frame.bytes());
      link->stream.OnReceived();
    }
  }
  return absl::OkStatus();
}

absl::Status RawClient::AwaitAnything() {
  std::vector<zmq_pollitem_t> items;
  for (const Link& link : links_) items.push_back({link.socket.get(), 0, ZMQ_POLLIN, 0});
  if (zmq_poll(items.data(), static_cast<int>(items.size()), kSilenceMs) > 0) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("nothing came from any server for ", kSilenceMs / 1000, " s"));
}

}  // namespace slimps
