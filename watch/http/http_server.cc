// SPDX-License-Identifier: Apache-2.0
#include "watch/http/http_server.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "watch/http/connection.h"

namespace slimps {
namespace {

constexpr size_t kOtherThreads = 4;                  // for requests that are answered at once
constexpr size_t kMaxWaiting = 64;                   // connections that no thread has taken yet
constexpr absl::Duration kGrace = absl::Seconds(1);  // for answers to be taken when it stops
constexpr char kNothingRuns[] = "default-src 'none'; frame-ancestors 'none'";

std::string PolicyOfPage(const std::string& nonce) {
  return absl::StrCat("default-src 'none'; script-src 'nonce-", nonce, "'; style-src 'nonce-",
                      nonce,
                      "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

// Takes the same time for all wrong texts of the right length.
bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return differs == 0;
}

void Refuse(int status, const std::string& why, httplib::Response* response) {
  response->status = status;
  response->set_content(absl::StrCat(why, "\n"), "text/plain; charset=utf-8");
}

// A connection as the library wants it.
class ConnectionStream final : public httplib::Stream {
 public:
  ConnectionStream(int socket, const Clock* clock) : connection_(socket, clock) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t size) override { return connection_.Read(bytes, size); }
  ssize_t write(const char* bytes, size_t size) override { return connection_.Write(bytes, size); }
  // Nobody asks who the client is.
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    get_remote_ip_and_port(ip, port);
  }
  int socket() const override { return connection_.socket(); }

 private:
  Connection connection_;
};

// The library's pool, but who accepts connections waits while too many wait for a thread.
class BoundedPool final : public httplib::TaskQueue {
 public:
  explicit BoundedPool(size_t threads) : pool_(threads) {}

  void enqueue(std::function<void()> task) override {
    {
      MutexLock lock(&mutex_);
      while (waiting_ == kMaxWaiting) taken_.Wait(&mutex_);
      ++waiting_;
    }
    pool_.enqueue([this, task = std::move(task)] {
      {
        MutexLock lock(&mutex_);
        --waiting_;
        taken_.NotifyAll();
      }
      task();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  Mutex mutex_;
  CondVar taken_;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  httplib::ThreadPool pool_;
};

}  // namespace

bool IsOwnHost(std::string_view host) {
  std::string name(host);
  if (name.starts_with('[')) {
    const size_t end = name.find(']');
    if (end == std::string::npos) return false;
    const std::string rest = name.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return false;
    in6_addr address;
    return inet_pton(AF_INET6, name.substr(1, end - 1).c_str(), &address) == 1;
  }
  name = name.substr(0, name.find(':'));
  in_addr address;
  return name == "localhost" || inet_pton(AF_INET, name.c_str(), &address) == 1;
}

std::string AddressForOthers(const std::string& address) {
  const std::string port = address.substr(address.rfind(':'));
  char name[HOST_NAME_MAX + 1] = "";
  const bool is_any = address == "0.0.0.0" + port || address == "[::]" + port;
  return is_any && gethostname(name, sizeof(name)) == 0 ? name + port : address;
}

absl::StatusOr<std::string> DrawToken() {
  std::string bits(16, '\0');
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    return absl::InternalError(absl::StrCat("no random bits: ", std::strerror(errno)));
  }
  return absl::BytesToHexString(bits);
}

// Owns the library's server and the thread that accepts connections.
class HttpServer::Impl final : private httplib::Server {
 public:
  Impl(const HttpServer::Options& options, std::vector<HttpRoute> routes)
      : options_(options), routes_(std::move(routes)) {
    // A stream holds a thread for as long as somebody looks.
    new_task_queue = [] { return new BoundedPool(kMaxStreams + kOtherThreads); };
    set_payload_max_length(0);
    // The library's own choice lets two processes share a port, and each would get some requests.
    set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    set_default_headers({{"Cache-Control", "no-store"},
                         {"Referrer-Policy", "no-referrer"},
                         {"X-Content-Type-Options", "nosniff"}});
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, &response);
      if (!response.has_header("Content-Security-Policy")) {
        response.set_header("Content-Security-Policy", kNothingRuns);
      }
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  ~Impl() override {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      changed_.NotifyAll();
      for (const int socket : sockets_) shutdown(socket, SHUT_RD);
    }
    stop();
    {
      MutexLock lock(&mutex_);
      const SteadyTime until = options_.clock->Now() + kGrace;
      for (SteadyTime now = options_.clock->Now(); !sockets_.empty() && now < until;
           now = options_.clock->Now()) {
        changed_.WaitFor(&mutex_, until - now);
      }
      for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
    }
    if (accepting_.joinable()) accepting_.Join();
  }

  absl::StatusOr<std::string> Start() {
    errno = 0;
    int port = options_.port;
    if (port == 0) {
      port = bind_to_any_port(options_.bind);
    } else if (!bind_to_port(options_.bind, port)) {
      port = -1;
    }
    const std::string host =
        options_.bind.find(':') == std::string::npos ? options_.bind : "[" + options_.bind + "]";
    if (port <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen at ", host, ":", options_.port, ": ",
                       errno == 0 ? "no such address of this machine" : std::strerror(errno)));
    }
    accepting_ = Thread("slimps-http", [this] { listen_after_bind(); });
    // stop() does nothing before this.
    while (!is_running()) sched_yield();
    return absl::StrCat(host, ":", port);
  }

 private:
  // The library's own timeouts hold for each read, so a slow client could hold a thread for ever.
  bool process_and_close_socket(int socket) override {
    if (Note(socket)) {
      ConnectionStream connection(socket, options_.clock);
      bool closed = false;
      // For a header Range the library would make a copy of the answer for each range in it.
      const auto take_no_ranges = [](httplib::Request& request) {
        request.ranges.clear();
        request.headers.erase("Range");
      };
      try {
        process_request(connection, /*close_connection=*/true, closed, take_no_ranges);
      } catch (const std::exception&) {
        // The client sees its connection close, as where memory runs out.
      }
    }
    MutexLock lock(&mutex_);
    sockets_.erase(socket);
    changed_.NotifyAll();
    shutdown(socket, SHUT_RDWR);
    close(socket);
    return true;
  }

  // Returns false if the server stops.
  bool Note(int socket) {
    MutexLock lock(&mutex_);
    if (!stopped_) sockets_.insert(socket);
    return !stopped_;
  }

  void Answer(const httplib::Request& request, httplib::Response* response) {
    if (request.method != "GET") {
      response->set_header("Allow", "GET");
      return Refuse(405, "only GET is answered", response);
    }
    if (options_.token.empty()) {
      if (!IsOwnHost(request.get_header_value("Host"))) {
        return Refuse(403, "the Host must be an address or localhost", response);
      }
    } else if (!SameSecret(request.get_param_value("token"), options_.token)) {
      return Refuse(403, "wrong or no token", response);
    }
    for (const HttpRoute& route : routes_) {
      if (route.path != request.path) continue;
      try {
        return Serve(route, response);
      } catch (const std::exception& error) {
        return Refuse(500, error.what(), response);
      }
    }
    Refuse(404, "no such page", response);
  }

  void Serve(const HttpRoute& route, httplib::Response* response) {
    response->status = 200;
    switch (route.kind) {
      case HttpRoute::Kind::kText:
        return response->set_content(route.content(), route.content_type);
      case HttpRoute::Kind::kPage: {
        const absl::StatusOr<std::string> nonce = DrawToken();
        if (!nonce.ok()) return Refuse(500, nonce.status().ToString(), response);
        response->set_header("Content-Security-Policy", PolicyOfPage(*nonce));
        return response->set_content(absl::StrReplaceAll(route.content(), {{"@NONCE@", *nonce}}),
                                     route.content_type);
      }
      case HttpRoute::Kind::kEvents:
        return Stream(route, response);
    }
  }

  void Stream(const HttpRoute& route, httplib::Response* response) {
    {
      MutexLock lock(&mutex_);
      if (streams_ == kMaxStreams) {
        return Refuse(503, absl::StrCat(kMaxStreams, " pages look already"), response);
      }
      ++streams_;
    }
    response->set_chunked_content_provider(
        "text/event-stream",
        [this, &route](size_t offset, httplib::DataSink& sink) {
          const bool goes_on = offset == 0 || WaitForNextEvent();
          // Also when the server stops: the last event tells how the job has ended.
          const std::string event = absl::StrCat("data: ", route.content(), "\n\n");
          return sink.write(event.data(), event.size()) && goes_on;
        },
        [this](bool) {
          MutexLock lock(&mutex_);
          --streams_;
        });
  }

  // Returns false if the server stops.
  bool WaitForNextEvent() {
    MutexLock lock(&mutex_);
    const SteadyTime until = options_.clock->Now() + kEventEvery;
    for (SteadyTime now = options_.clock->Now(); !stopped_ && now < until;
         now = options_.clock->Now()) {
      changed_.WaitFor(&mutex_, until - now);
    }
    return !stopped_;
  }

  const HttpServer::Options options_;
  const std::vector<HttpRoute> routes_;
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  size_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int> sockets_ ABSL_GUARDED_BY(mutex_);  // on which a request comes or is answered
  Thread accepting_;                               // the last member: it uses the others
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                              std::vector<HttpRoute> routes) {
  // The library ignores SIGPIPE, for the whole process. A connection raises none, and what the
  // program does on it is the program's choice.
  struct sigaction chosen = {};
  sigaction(SIGPIPE, nullptr, &chosen);
  auto impl = std::make_unique<Impl>(options, std::move(routes));
  sigaction(SIGPIPE, &chosen, nullptr);
  SLIMPS_ASSIGN_OR_RETURN(std::string address, impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), std::move(address)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

HttpServer::~HttpServer() = default;

}  // namespace slimps
