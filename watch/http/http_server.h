// SPDX-License-Identifier: Apache-2.0
// A small HTTP server for people and tools that look at a job. It only answers GET, and nothing
// that it serves changes anything.
//
//   SLIMPS_ASSIGN_OR_RETURN(
//       const auto server,
//       HttpServer::Start({.port = 9100}, {{.path = "/x", .content = [&] { return text; }}}));
//   LOG(INFO) << "text at http://" << server->address() << "/x";
//
// What it refuses, each with one line of text:
//   403  no or a wrong token where one is asked for
//   403  where no token is asked for: a Host that is neither an address nor localhost. A foreign
//        page that resolves its own name to this machine must not read what a browser here may read
//   404  another path
//   405  another method
//   503  as many streams as are allowed
#ifndef SLIMPS_WATCH_HTTP_HTTP_SERVER_H_
#define SLIMPS_WATCH_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"

namespace slimps {

// One thing to look at.
struct HttpRoute {
  enum class Kind {
    kText,    // the content as it is
    kPage,    // HTML; each @NONCE@ in it is replaced, and only what has that nonce runs
    kEvents,  // server-sent events: the content, one line, as one event each kEventEvery
  };
  std::string path;
  std::string content_type = "text/plain; charset=utf-8";
  Kind kind = Kind::kText;
  std::function<std::string()> content;  // called on any thread, also on several at once
};

// Thread-safe.
class HttpServer final {
 public:
  static constexpr size_t kMaxStreams = 16;
  static constexpr absl::Duration kEventEvery = absl::Milliseconds(500);

  struct Options {
    std::string bind = "127.0.0.1";  // a numeric address
    uint16_t port = 0;               // 0: any free one
    std::string token;               // "": anybody may look
    const Clock* clock = MachineClock();
  };

  // Listens until it is destroyed. What the routes refer to must live as long.
  // Unavailable: it cannot listen there; the message names the address and why.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const Options& options, std::vector<HttpRoute> routes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Returns "127.0.0.1:9100".
  const std::string& address() const { return address_; }

 private:
  class Impl;
  HttpServer(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

// What is logged where others can reach the address of a server.
inline constexpr char kPlainHttpWarning[] =
    "watch_bind: others can reach this address, and what is served there goes in plain HTTP: "
    "whoever is between can read it, and the token too";

// True if `host`, as a Host header has it, is a numeric address or localhost, with or without a
// port.
bool IsOwnHost(std::string_view host);

// Returns `address`, as HttpServer has it, with this machine's name for "any address".
std::string AddressForOthers(const std::string& address);

// Returns 128 random bits in hexadecimal.
// Internal: the system has no randomness.
[[nodiscard]] absl::StatusOr<std::string> DrawToken();

}  // namespace slimps

#endif  // SLIMPS_WATCH_HTTP_HTTP_SERVER_H_
